//! The promises of `enqueue` and `accept` in transactions of `sea-orm`, against a real server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod accept;
mod enqueue;
mod trips;

use postrider_postgres::{Names, Setup, init};
use postrider_testkit::driver::{billing, event, incoming, place, waiting};
use sea_orm::{ConnectionTrait, Database};

/// An address of a server, and names in a fresh schema with the tables, or nothing with the reason printed.
async fn fresh() -> Option<(String, Names)> {
    let (url, schema) = place("the promises in transactions of sea-orm")?;
    let names = Names::new(&schema, "outbox", "inbox").unwrap();
    init(&url, &Setup { names: names.clone(), ..Setup::default() }).await.unwrap();
    Some((url, names))
}

async fn run(url: &str, statements: String) {
    Database::connect(url).await.unwrap().execute_unprepared(&statements).await.unwrap();
}
