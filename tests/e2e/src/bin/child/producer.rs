//! The part of an application: orders and their events, one transaction each.
//!
//! `trying ID` is said before the transaction ends, `committed ID` or `rolled-back ID` after it has.
//! So what was tried and has no outcome is unknown, and only the database knows better.

use std::process::ExitCode;
use std::time::Duration;

use postrider_core::{Error, Jitter, NewEvent, Result};
use postrider_e2e::{PLACED, tenant, trouble};
use postrider_sqlite::Outbox;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::args::Args;
use crate::halt::Halt;
use crate::words::say;

/// How long the shop waits for a relay's writes, where a test is not about that.
const LOCKED_MAX: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &Args, halt: &Halt) -> Result<ExitCode> {
    let files = args.files()?;
    let mut connection = postrider_sqlite::connect(&files.shop)?;
    // SQLite lets no writer queue: on a slow disk a relay that saves again and again may have the lock for long.
    connection.busy_timeout(LOCKED_MAX).map_err(trouble)?;
    let pages: i64 = args.number("pages-more", 0)?;
    if pages > 0 {
        limit_pages(&connection, pages).map_err(trouble)?;
    }
    let mut dice = Jitter::seeded(args.number("seed", 1)?);
    let count: u64 = args.number("count", 1)?;
    let keys: u64 = args.number("keys", 7)?;
    let rollback_every: u64 = args.number("rollback-every", 0)?;
    let bytes: usize = args.number("bytes", 20)?;
    let tenants: u64 = args.number("tenants", 0)?;
    say("ready");
    for number in 1..=count {
        let drawn = dice.bits() % keys.max(1);
        let key = drawn.to_string();
        let rolls_back = rollback_every > 0 && number % rollback_every == 0;
        let mut event = NewEvent::new("order", &key, PLACED).json(&"x".repeat(bytes))?;
        if tenants > 0 {
            event = event.tenant(&tenant(drawn % tenants));
        }
        let id = event.event().id;
        match place(&mut connection, &event, &key, rolls_back, halt) {
            Ok(()) if rolls_back => say(&format!("rolled-back {id}")),
            Ok(()) => say(&format!("committed {id}")),
            Err(error) => {
                say(&format!("failed {id}"));
                return Err(error);
            }
        }
        halt.block_at("after_commit");
    }
    Ok(ExitCode::SUCCESS)
}

fn place(
    connection: &mut Connection,
    event: &NewEvent,
    key: &str,
    rolls_back: bool,
    halt: &Halt,
) -> Result<(), Error> {
    let tx = begin(connection)?;
    let id = event.event().id;
    tx.prepare_cached(include_str!("../../../sql/place_order.sql"))
        .and_then(|mut statement| statement.execute((format!("order/{key}"), id.to_string())))
        .map_err(trouble)?;
    Outbox::new().enqueue(&tx, event)?;
    say(&format!("trying {id}"));
    halt.block_at("before_commit");
    match rolls_back {
        true => tx.rollback(),
        false => tx.commit(),
    }
    .map_err(trouble)
}

fn begin(connection: &mut Connection) -> Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(trouble)
}

/// Lets the database grow by so many pages from now, as a disk that is nearly full does.
fn limit_pages(connection: &Connection, more: i64) -> rusqlite::Result<()> {
    let pages: i64 = connection.query_row("pragma page_count", (), |row| row.get(0))?;
    connection.pragma_update(None, "max_page_count", pages + more)
}
