//! The tables and their migrations.
//!
//! Invariant: a migration is applied once, in a transaction of its own with the record of it,
//! whoever and however many initialise the file at once.

use std::path::Path;

use postrider_core::{Error, ErrorKind, Result};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::error::During;
use crate::{connection, sql};

/// The migrations, in order; the version of the tables is how many were applied. From the sixth on each writes under
/// [`SERVES`] which older programs go on working with the tables after it: with the version before, if nothing that
/// they call, read, or write has changed its name, columns, or meaning; else its own (F41).
const MIGRATIONS: &[&str] = &[
    include_str!("../sql/schema/001.sql"),
    include_str!("../sql/schema/002.sql"),
    include_str!("../sql/schema/003.sql"),
    include_str!("../sql/schema/004.sql"),
    include_str!("../sql/schema/005.sql"),
    include_str!("../sql/schema/006.sql"),
    include_str!("../sql/schema/007.sql"),
];

/// The version of the tables that this program knows.
pub(crate) const VERSION: u32 = MIGRATIONS.len() as u32;

/// The oldest version of the tables that this program works with.
const NEEDS: u32 = 7;

/// The key of [`sql::META_READ`] under which the version stands.
const SCHEMA: &str = "schema";

/// The key under which the oldest program stands, by the version that it knows, that the tables serve; where nothing does, it
/// is their own version.
const SERVES: &str = "serves";

/// The tables, as SQL text and as a version.
#[derive(Clone, Copy, Debug)]
pub struct Schema;

impl Schema {
    /// The version of the tables that this program makes and knows.
    pub const VERSION: u32 = VERSION;

    /// Everything that [`init`] does to a fresh database, as text: for people who run their own
    /// migrations.
    pub fn sql() -> String {
        let mut text = String::from("pragma journal_mode = wal;\nbegin immediate;\n\n");
        for migration in MIGRATIONS {
            text.push_str(migration);
            text.push('\n');
        }
        text.push_str("commit;\n");
        text
    }
}

/// Creates the tables in a database file, or brings them to this program's version; creates the
/// file if there is none. Doing it again changes nothing, and two at once do it once.
///
/// The default of `outbox.source` becomes the file's name, like `/shop` for `shop.db`;
/// [`init_as`] sets another.
///
/// # Errors
/// `SchemaTooNew` if a newer program made the tables; `Conflict` if the database has tables of
/// these names that are not Postrider's; `Corrupt`, `ReadOnly`, `DiskFull`, `Busy`, `Unavailable`.
pub fn init(path: impl AsRef<Path>) -> Result<()> {
    let stem = path.as_ref().file_stem().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String =
        stem.to_string_lossy().chars().map(|c| if plain(c) { c } else { '-' }).take(200).collect();
    init_at(path.as_ref(), &format!("/{name}"), false)
}

/// The same as [`init`], with a default for `outbox.source`: a URI reference that names this
/// service among all whose events meet in one inbox. It can be changed while there never was an
/// event.
///
/// # Errors
/// As [`init`]; `Invalid` if the source is empty, longer than 255 bytes, or has control characters;
/// `Conflict` if events were enqueued under another: their identity is (source, id), and an inbox
/// would take each for a new one.
pub fn init_as(path: impl AsRef<Path>, source: &str) -> Result<()> {
    if source.is_empty() || source.len() > 255 || source.chars().any(char::is_control) {
        return Err(Error::new(ErrorKind::Invalid, "init")
            .message("a source has 1 to 255 bytes and no control characters"));
    }
    init_at(path.as_ref(), source, true)
}

fn init_at(path: &Path, source: &str, replace: bool) -> Result<()> {
    migrate(path, source, replace).map_err(|e| e.context("store", path.display()))
}

fn migrate(path: &Path, source: &str, replace: bool) -> Result<()> {
    let mut connection = connection::connect(path)?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).during("init")?;
    let found = version(&tx)?;
    for migration in MIGRATIONS.iter().skip(found as usize) {
        tx.execute_batch(migration).during("init")?;
    }
    if found > 0 && replace {
        may_rename(&tx, source)?;
    }
    if found == 0 || replace {
        tx.execute(sql::META_WRITE, ("source", source)).during("init")?;
    }
    tx.commit().during("init")
}

/// Checks that no event bears the old source yet.
fn may_rename(connection: &Connection, source: &str) -> Result<()> {
    let (events, scheduled): (i64, i64) = connection
        .query_row(sql::OUTBOX_GROWTH, (), |row| Ok((row.get(0)?, row.get(1)?)))
        .during("init")?;
    let known = read_meta(connection, "source")?.unwrap_or_default();
    if known == source || events + scheduled == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Conflict, "init")
        .message("events were enqueued under another source; it cannot be changed any more")
        .context("source", known))
}

/// The version of the tables; 0 if there are none.
fn version(connection: &Connection) -> Result<u32> {
    version_up_to(connection, VERSION)
}

/// The version of the tables, as a program sees it that knows them up to a version.
///
/// # Errors
/// `SchemaTooNew` if it is newer, and they do not serve that program.
fn version_up_to(connection: &Connection, known: u32) -> Result<u32> {
    let mut statement = connection.prepare(sql::META_TABLES).during("read schema")?;
    let tables = statement
        .query_map((), |row| row.get::<_, String>(0))
        .and_then(Iterator::collect::<rusqlite::Result<Vec<String>>>)
        .during("read schema")?;
    if tables.is_empty() {
        return Ok(0);
    }
    if !tables.iter().any(|table| table == "outbox_meta") {
        return Err(Error::new(ErrorKind::Conflict, "init")
            .message("the database has tables of these names that are not Postrider's")
            .context("tables", tables.join(", ")));
    }
    let number =
        |key| Ok::<_, Error>(read_meta(connection, key)?.and_then(|text| text.parse().ok()));
    match number(SCHEMA)? {
        Some(version) if version > known && number(SERVES)?.unwrap_or(version) > known => {
            Err(Error::new(ErrorKind::SchemaTooNew, "read schema")
                .message(format!("the tables have version {version}, this program knows {known}")))
        }
        Some(version) => Ok(version),
        None => Err(Error::new(ErrorKind::Corrupt, "read schema")
            .message("outbox_meta does not say which version the tables have")),
    }
}

/// Checks that the tables are there, and that this program works with them. Says their version.
pub(crate) fn check(connection: &Connection) -> Result<u32> {
    let missing =
        |message: String| Error::new(ErrorKind::SchemaMissing, "open store").message(message);
    match version(connection) {
        Ok(0) => Err(missing("the database has no Postrider tables".to_owned())),
        Ok(version) if version >= NEEDS => Ok(version),
        Ok(older) => Err(missing(format!(
            "the tables have version {older}, this program needs {NEEDS}: run `postrider init`"
        ))),
        Err(e) if e.kind() == ErrorKind::Conflict => {
            Err(missing("the database has no Postrider tables".to_owned()).source(e))
        }
        Err(e) => Err(e),
    }
}

/// Checks that a newer program has not replaced the tables under this one by such as do not serve it.
///
/// # Errors
/// `SchemaTooNew`
pub(crate) fn check_served(connection: &Connection) -> Result<()> {
    match read_meta(connection, SERVES)?.and_then(|text| text.parse::<u32>().ok()) {
        Some(oldest) if oldest > VERSION => version(connection).map(drop),
        _ => Ok(()),
    }
}

/// One value of `outbox_meta`.
pub(crate) fn read_meta(connection: &Connection, key: &str) -> Result<Option<String>> {
    connection
        .prepare_cached(sql::META_READ)
        .and_then(|mut statement| statement.query_row([key], |row| row.get(0)).optional())
        .during("read meta")
}

/// A number out of `outbox_meta` that must be there.
pub(crate) fn read_number(connection: &Connection, key: &'static str) -> Result<u64> {
    read_meta(connection, key)?.and_then(|text| text.parse().ok()).ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "read meta")
            .message("a number in outbox_meta is missing or is none")
            .context("key", key)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::lease::AcquireRequest;
    use postrider_core::source::RenewRequest;
    use postrider_core::{Lease, RelayId};

    use super::*;
    use crate::lease;

    /// F29: to a program that knows only an older version the tables are too new, and to a newer one
    /// they are what they are.
    #[test]
    fn an_older_program_refuses_these_tables() {
        let connection = Connection::open_in_memory().unwrap();
        for (applied, migration) in (1..).zip(MIGRATIONS) {
            connection.execute_batch(migration).unwrap();
            for known in 0..=VERSION + 1 {
                match version_up_to(&connection, known) {
                    Ok(found) => assert!(found == applied && known >= applied),
                    Err(refused) => {
                        assert!(known < applied, "{refused}");
                        assert_eq!(refused.kind(), ErrorKind::SchemaTooNew);
                        assert!(refused.to_string().contains(&format!("version {applied}")));
                    }
                }
            }
        }
    }

    /// What a later version says of itself.
    fn say(connection: &Connection, serves: &str) {
        for (key, value) in [(SCHEMA, "99"), (SERVES, serves)] {
            connection.execute(sql::META_WRITE, (key, value)).unwrap();
        }
    }

    /// F29, F41, R108: tables of a newer version that serve this program are worked with, also by a relay that is at work; it keeps and
    /// gets nothing where they do not serve it, until they do again.
    #[test]
    fn tables_of_a_newer_version_may_serve_this_program() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&MIGRATIONS.concat()).unwrap();
        let owner = RelayId::mint();
        let lease_duration = Duration::from_secs(60);
        let asks = AcquireRequest {
            owner: owner.clone(),
            lease_duration,
            wanted: u16::MAX,
            free_for: Duration::ZERO,
            presence: None,
            current: true,
            dead: None,
        };
        let granted = lease::acquire(&connection, &asks).unwrap().granted;
        let leases: Vec<Lease> = granted.into_iter().map(|granted| granted.lease).collect();
        assert_eq!(leases.len(), 1);
        let renews = RenewRequest { owner, leases: leases.clone(), lease_duration, current: true };
        let too_new = |refused: Error| assert_eq!(refused.kind(), ErrorKind::SchemaTooNew);
        for _ in 0..2 {
            say(&connection, "7");
            assert_eq!(check(&connection).unwrap(), 99);
            too_new(version_up_to(&connection, 6).unwrap_err());
            assert_eq!(lease::renew(&connection, &renews).unwrap().kept, leases);
            assert_eq!(lease::acquire(&connection, &asks).unwrap().granted, []);
            say(&connection, "8");
            too_new(check(&connection).unwrap_err());
            assert_eq!(lease::renew(&connection, &renews).unwrap().kept, []);
            too_new(lease::acquire(&connection, &asks).unwrap_err());
        }
    }

    /// One that forgets would serve those that an earlier one served, whatever it did.
    #[test]
    fn each_further_migration_says_whom_it_serves() {
        let says = |migration: &&str| migration.contains("'serves'");
        assert!(MIGRATIONS.iter().skip(5).all(says));
    }
}
