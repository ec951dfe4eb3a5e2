//! Migrations as text, for people who run their own.
//!
//! Invariant: what is printed does what `init` and `revert` do, with the same records (`sql/init`).

use postrider_core::Result;

use super::{FORGET, MIGRATIONS, RECORD, serves, text_of};
use crate::Names;
use crate::setup::Setup;
use crate::sql::{Sql, sql};

const PRINT_SOURCE: Sql = sql!("init/print_source");
const PRINT_BEGIN: Sql = sql!("init/print_begin");
const PRINT_REVERT: Sql = sql!("init/print_revert");
const COMMIT: Sql = sql!("session/commit");

/// What [`init`](crate::init) does to a fresh database, as text.
pub(crate) fn print(setup: &Setup) -> Result<String> {
    setup.check()?;
    let mut text = String::new();
    let mut put = |part: &str| {
        text.push_str(setup.render(part).trim_end());
        text.push_str("\n\n");
    };
    put(PRINT_BEGIN.text);
    for (number, migration) in (1..).zip(MIGRATIONS) {
        put(&text_of(migration, setup));
        put(&recorded(RECORD.text, number, serves(MIGRATIONS, number)));
    }
    if let Some(source) = &setup.source {
        put(&PRINT_SOURCE.text.replace("$source$", &source.replace('\'', "''")));
    }
    put(COMMIT.text);
    Ok(text)
}

/// The text of a record of a migration, or of its end, with its values.
fn recorded(text: &str, number: usize, serves: u32) -> String {
    text.replace("$1::bigint", &number.to_string()).replace("$2::bigint", &serves.to_string())
}

/// What [`revert`](crate::revert) does to tables of this program's version, as text: each migration in a transaction of its own.
pub(crate) fn print_revert(names: &Names, to: u32) -> String {
    let mut text = String::new();
    for number in (to as usize + 1..=MIGRATIONS.len()).rev() {
        let migration = &MIGRATIONS[number - 1];
        let mut put = |part: &str| {
            text.push_str(names.render(part).trim_end());
            text.push_str("\n\n");
        };
        put(PRINT_REVERT.text);
        if number > 1 {
            put(&recorded(FORGET.text, number, serves(MIGRATIONS, number - 1)));
        }
        put(migration.down);
        put(COMMIT.text);
    }
    text
}
