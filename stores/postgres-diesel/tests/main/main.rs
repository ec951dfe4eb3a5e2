//! The promises of `enqueue` and `accept` in transactions of `diesel` and `diesel-async`, against a real server.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on says where, one that is skipped why"
)]

mod accept;
mod enqueue;
mod sync;
mod trips;

use std::time::Duration;

use diesel::QueryableByName;
use diesel::sql_types::BigInt;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use postrider_core::Error;
use postrider_postgres::{Names, Setup, init};
use postrider_testkit::driver::{billing, event, incoming, place, waiting};

/// An address of a server, and names in a fresh schema with the tables, or nothing with the reason printed.
async fn fresh() -> Option<(String, Names)> {
    let (url, schema) = place("the promises in transactions of diesel")?;
    let names = Names::new(&schema, "outbox", "inbox").unwrap();
    init(&url, &Setup { names: names.clone(), ..Setup::default() }).await.unwrap();
    Some((url, names))
}

async fn run(url: &str, statements: String) {
    let mut connection = AsyncPgConnection::establish(url).await.unwrap();
    connection.batch_execute(&statements).await.unwrap();
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

async fn count(url: &str, statement: &str) -> i64 {
    let mut connection = AsyncPgConnection::establish(url).await.unwrap();
    let read = RunQueryDsl::get_result::<Count>(diesel::sql_query(statement), &mut connection);
    read.await.unwrap().count
}

async fn until_one_waits(url: &str, names: &Names) {
    while count(url, &waiting(names.schema())).await == 0 {
        // waits: a server tells nobody who waits for whom
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What a transaction of an application fails with.
#[derive(Debug)]
struct Failed(#[expect(dead_code, reason = "shown where a test fails")] String);

impl From<diesel::result::Error> for Failed {
    fn from(error: diesel::result::Error) -> Failed {
        Failed(error.to_string())
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed(error.to_string())
    }
}
