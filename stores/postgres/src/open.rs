//! Opening: the tables are there, of a version that serves this program, and what the store's promises rest on is as it was
//! when they were made.
//!
//! Keeps INV-1 where a database was restored, upgraded, or tampered with: a sequence or a transaction
//! counter that lies behind a cursor, a hash that sends a key to another partition, and a sequence
//! that hands out numbers early each stop the store, with what to do.

use postrider_core::source::StoreFacts;
use postrider_core::{Code, Error, ErrorKind, Result};
use tokio_postgres::Row;

use crate::schema;
use crate::session::Session;
use crate::sessions::Line;
use crate::setup::Setup;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::params;

const RECOVERY: Sql = sql!("meta/recovery");
const HIDDEN: Sql = sql!("meta/hidden");
const COLUMNS: Sql = sql!("meta/columns");
const CHECK: Sql = sql!("meta/check");
const COUNTERS: Sql = sql!("meta/counters");
const WRITABLE: Sql = sql!("meta/writable");

/// Checks the database, and says what it is.
pub(crate) async fn open(store: &PostgresStore) -> Result<StoreFacts> {
    let session = store.sessions().line(Line::Lease, "open store").await?;
    let facts = async {
        let facts = readable(store.name(), &session).await?;
        writable(&session).await?;
        Ok(facts)
    };
    facts.await.map_err(|error: Error| error.context("store", store.name()))
}

/// The same for who only looks; says whether it can be written to.
pub(crate) async fn open_to_read(store: &PostgresStore) -> Result<bool> {
    let session = store.sessions().line(Line::Lease, "open store").await?;
    let told = |error: Error| error.context("store", store.name());
    readable(store.name(), &session).await.map_err(told)?;
    match writable(&session).await {
        Err(error) if error.kind() == ErrorKind::ReadOnly => Ok(false),
        done => done.map(|()| true).map_err(told),
    }
}

async fn writable(session: &Session) -> Result<()> {
    let standby: bool = session.row("open store", &RECOVERY, params![]).await?.get(0);
    if standby {
        return Err(Error::new(ErrorKind::ReadOnly, "open store")
            .message("the server is a standby and cannot be written to; connect to the primary"));
    }
    session.execute("open store", &WRITABLE, params![]).await.map(drop)
}

async fn readable(name: &str, session: &Session) -> Result<StoreFacts> {
    all_seen(session, "open store").await?;
    let schema = schema::check(session).await?;
    same_columns(session).await?;
    let setup = schema::setup(session).await?;
    let partitions = setup.partitions.unwrap_or(Setup::PARTITIONS);
    let partitions_asked = i64::from(partitions);
    let found = session.row("open store", &CHECK, params![partitions_asked]).await?;
    same_partitions(&found)?;
    Ok(StoreFacts { name: name.to_owned(), partitions, schema })
}

/// Rows that a policy hides would count as not there: a cursor passes them, and a key does not wait for them (INV-1, INV-3).
/// Asked for as well where a page says that there are policies.
///
/// # Errors
/// `Unauthorized` if some are hidden from this user.
pub(crate) async fn all_seen(session: &Session, operation: &'static str) -> Result<()> {
    let Some(hides) = session.optional(operation, &HIDDEN, params![]).await? else {
        return Ok(());
    };
    let table: &str = hides.get(0);
    Err(Error::new(ErrorKind::Unauthorized, operation).message(format!(
        "row level security hides rows of {table} from this user: what it does not see would count as delivered; nothing was \
         read. Run: alter table {table} disable row level security; or, for the user: alter role … bypassrls"
    )))
}

/// All columns are there, by their names.
async fn same_columns(session: &Session) -> Result<()> {
    let Some(lost) = session.optional("open store", &COLUMNS, params![]).await? else {
        return Ok(());
    };
    let (table, column): (String, String) = (lost.get(0), lost.get(1));
    Err(Error::new(ErrorKind::SchemaMissing, "open store").message(format!(
        "the table {table} has no column `{column}` any more: somebody dropped or renamed it; nothing was read. Give it \
         back its name, or restore the table"
    )))
}

/// Events of one key go where they always went, in the order of their numbers.
fn same_partitions(found: &Row) -> Result<()> {
    let stop = |code, message: &str| {
        Err(Error::new(ErrorKind::Corrupt, "open store").code(code).message(message))
    };
    let (hash, function): (bool, bool) = (found.get("same_hash"), found.get("same_function"));
    if !hash {
        return stop(
            Code::PartitionsMoved,
            "this server hashes text otherwise than the one that made the tables; nothing was read",
        );
    }
    if !function {
        return stop(
            Code::PartitionsMoved,
            "the function that gives each key its partition is not the one that was made with the \
             tables; nothing was read",
        );
    }
    one_by_one("open store", found.get("sequence_cache"))
}

/// The sequence gives one number at a time. Asked for with each tick as well: a session keeps what it was given in
/// advance for transactions that have not begun, and a floor that was read since would pass those over.
///
/// # Errors
/// `Corrupt` if it gives more.
pub(crate) fn one_by_one(operation: &'static str, cache: i64) -> Result<()> {
    if cache == 1 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, operation)
        .code(Code::SequenceCached)
        .message("the outbox's sequence hands numbers out in advance; nothing was read"))
}

/// No cursor lies beyond what the server has given: for a relay, before it asks for a partition. Operators
/// may open such a store, because they have to mend it.
///
/// # Errors
/// `Rewound` if the sequence or the transaction counter lies behind a cursor.
pub(crate) async fn check_counters(session: &Session) -> Result<()> {
    let found = session.row("open store", &COUNTERS, params![]).await?;
    let behind = |what: &'static str, server: i64, cursor: i64| {
        if cursor <= server {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Rewound, "open store")
            .message(format!("the server's {what} lies behind a cursor; nothing was read"))
            .context("server", server)
            .context("cursor", cursor))
    };
    behind("sequence", found.get("sequence_given"), found.get("cursor_seq"))?;
    behind("transaction counter", found.get("server_xmax"), found.get("cursor_xmax"))
}
