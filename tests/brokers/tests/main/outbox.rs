//! The outbox at the beginning of a whole way: what was committed to it, and what was taken back.

use std::fmt;
use std::path::PathBuf;

use postrider_core::EventId;
use postrider_postgres::{Setup, init};
use tokio_postgres::{Client, NoTls};

/// Keys of the events, each with one writer.
const KEYS: u32 = 10;

/// In which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Postgres,
    Sqlite,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Store::Postgres => "postgres",
            Store::Sqlite => "sqlite",
        })
    }
}

/// One event that was committed.
pub(crate) struct Committed {
    pub(crate) id: EventId,
    pub(crate) key: String,
}

/// An outbox, and what was done with it.
pub(crate) struct Outbox {
    place: Place,
    written: u32,
    pub(crate) rolled_back: Vec<EventId>,
}

enum Place {
    /// The address of a database.
    Postgres(String),
    /// A file.
    Sqlite(PathBuf),
}

/// A connection to a database; each time a new one, since the server may have been killed.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Outbox {
    /// One in this database, which has an inbox as well, or in this file.
    pub(crate) async fn make(store: Store, database: &str, file: PathBuf) -> Outbox {
        let setup = Setup { partitions: Some(4), ..Setup::default() };
        init(database, &setup).await.unwrap();
        let place = match store {
            Store::Postgres => Place::Postgres(database.to_owned()),
            Store::Sqlite => {
                postrider_sqlite::init(&file).unwrap();
                Place::Sqlite(file)
            }
        };
        Outbox { place, written: 0, rolled_back: Vec::new() }
    }

    /// As relays are told.
    pub(crate) fn address(&self) -> String {
        match &self.place {
            Place::Postgres(url) => url.clone(),
            Place::Sqlite(file) => file.display().to_string(),
        }
    }

    /// How many were committed.
    pub(crate) fn written(&self) -> usize {
        self.written as usize
    }

    /// Commits so many events, each key's next ones, and takes back as many.
    pub(crate) async fn write(&mut self, count: u32) {
        let rolled_back = match &self.place {
            Place::Postgres(url) => of_postgres(url, self.written, count).await,
            Place::Sqlite(file) => of_sqlite(file, self.written, count),
        };
        self.rolled_back.extend(rolled_back);
        self.written += count;
    }

    /// What was committed, each key in its order.
    pub(crate) async fn committed(&self) -> Vec<Committed> {
        let row = |id: String, key| Committed { id: id.parse().unwrap(), key };
        match &self.place {
            Place::Postgres(url) => {
                let all = "select id::text, aggregate_id, event_version from postrider.outbox \
                           order by event_version";
                let rows = connect(url).await.query(all, &[]).await.unwrap();
                rows.iter().map(|found| row(found.get(0), found.get(1))).collect()
            }
            Place::Sqlite(file) => {
                let connection = postrider_sqlite::connect(file).unwrap();
                let all = "select id, aggregate_id from outbox order by event_version";
                let mut statement = connection.prepare(all).unwrap();
                let rows = statement.query_map((), |found| Ok(row(found.get(0)?, found.get(1)?)));
                rows.unwrap().map(Result::unwrap).collect()
            }
        }
    }
}

/// The ids of what was taken back.
async fn of_postgres(url: &str, written: u32, count: u32) -> Vec<EventId> {
    let shop = connect(url).await;
    let insert = format!(
        "insert into postrider.outbox (aggregate_type, aggregate_id, event_type, event_version, payload)
         select 'account', (n % {KEYS})::text, 'account.moved', n + 1, n::text
         from generate_series({written}, {}) n returning id::text",
        written + count - 1
    );
    shop.batch_execute("begin").await.unwrap();
    shop.query(&insert, &[]).await.unwrap();
    shop.batch_execute("commit; begin").await.unwrap();
    let rows = shop.query(&insert, &[]).await.unwrap();
    shop.batch_execute("rollback").await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0).parse().unwrap()).collect()
}

/// The ids of what was taken back.
fn of_sqlite(file: &PathBuf, written: u32, count: u32) -> Vec<EventId> {
    let mut connection = postrider_sqlite::connect(file).unwrap();
    let mut ids = Vec::new();
    for commits in [true, false] {
        let tx = connection.transaction().unwrap();
        ids.clear();
        for n in written..written + count {
            let insert = "insert into outbox (aggregate_type, aggregate_id, event_type, \
                          event_version, payload) values ('account', ?1, 'account.moved', ?2, ?3) \
                          returning id";
            let values = ((n % KEYS).to_string(), n + 1, n.to_string());
            let id: String = tx.query_row(insert, values, |row| row.get(0)).unwrap();
            ids.push(id.parse().unwrap());
        }
        if commits {
            tx.commit().unwrap();
        }
    }
    ids
}
