//! The tables of one test: Postrider's, and those of a shop whose rows serialise each key.

use postrider_core::{Destination, DestinationId, OutboxSource, Route, Template};
use postrider_postgres::{Names, Options, PostgresStore, Setup, init};
use tokio_postgres::Client;

use crate::cluster::connect;
use crate::place::{HERE, Row};

/// Keys that many writers fight for.
pub(crate) const ACCOUNTS: u64 = 30;

/// One database with the tables. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pub(crate) url: String,
    names: Names,
}

impl Shop {
    /// Tables for so many partitions, a destination, and the shop's accounts.
    pub(crate) async fn open(url: &str, partitions: u16) -> Shop {
        let shop = Shop::at(url);
        let names = shop.names.clone();
        let setup = Setup { names, partitions: Some(partitions), ..Setup::default() };
        init(url, &setup).await.expect("the tables are made");
        shop.run(&format!(
            "create table account (id text primary key, n integer not null default 0);
             insert into account (id) select n::text from generate_series(0, {ACCOUNTS}) n"
        ))
        .await;
        shop.store().register(&[destination()]).await.expect("a destination");
        shop
    }

    /// The same tables somewhere else.
    pub(crate) fn at(url: &str) -> Shop {
        Shop { url: url.to_owned(), names: Names::default() }
    }

    pub(crate) fn store(&self) -> PostgresStore {
        let mut options = Options::default();
        options.names = self.names.clone();
        PostgresStore::with(&self.url, options).expect("a store")
    }

    pub(crate) fn sql(&self, statement: &str) -> String {
        self.names.render(statement)
    }

    pub(crate) async fn connect(&self) -> Client {
        connect(&self.url).await
    }

    pub(crate) async fn run(&self, statements: &str) {
        self.connect().await.batch_execute(&self.sql(statements)).await.expect("they run");
    }

    pub(crate) async fn number(&self, statement: &str) -> i64 {
        let client = self.connect().await;
        client.query_one(&self.sql(statement), &[]).await.expect("one row").get(0)
    }

    /// Everything that is committed.
    pub(crate) async fn rows(&self) -> Vec<Row> {
        let client = self.connect().await;
        let all = self.sql("select id, aggregate_id, event_version from {outbox} order by seq");
        let rows = client.query(&all, &[]).await.expect("rows");
        let row =
            |row: &tokio_postgres::Row| Row { id: row.get(0), key: row.get(1), n: row.get(2) };
        rows.iter().map(row).collect()
    }

    /// Rows whose transaction has a lower number than one that drew its number earlier.
    pub(crate) async fn inversions(&self) -> i64 {
        self.number(
            "select count(*) from (select xid, max(xid) over (order by seq
                rows between unbounded preceding and 1 preceding) as before from {outbox}) o
             where xid < before",
        )
        .await
    }

    /// Commits so many events, each of a key of its own.
    pub(crate) async fn events(&self, count: u32) {
        self.run(&events(count)).await;
    }
}

/// The statement that writes so many events, each of a key of its own.
pub(crate) fn events(count: u32) -> String {
    format!(
        "insert into {{outbox}} (aggregate_type, aggregate_id, event_type, payload)
         select 'order', gen_random_uuid()::text, 'order.placed', n::text
         from generate_series(1, {count}) n;"
    )
}

pub(crate) fn here() -> DestinationId {
    DestinationId::new(HERE).expect("a name")
}

fn destination() -> Destination {
    let topic: Template = "orders".parse().expect("a template");
    Destination::new(here(), "local", vec![Route::all(topic)])
}
