//! The promises of `enqueue` and `accept` in transactions of `sqlx`, against a real server.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on says where, one that is skipped why"
)]

mod accept;
mod enqueue;
mod trips;

use std::sync::Arc;

use postrider_core::{Event, EventId, HandlerName, NewEvent};
use postrider_postgres::{Names, Setup, init};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// An address of a server, and names in a fresh schema with the tables, or nothing with the reason printed.
async fn fresh() -> Option<(String, Names)> {
    let url = match postrider_testkit::services::postgres() {
        Ok(url) => url,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return None;
        }
    };
    let schema = format!("t{}", &uuid::Uuid::now_v7().simple().to_string()[4..]);
    let names = Names::new(&schema, "outbox", "inbox").unwrap();
    init(&url, &Setup { names: names.clone(), ..Setup::default() }).await.unwrap();
    Some((url, names))
}

fn event(n: u32) -> NewEvent {
    NewEvent::new("order", n.to_string(), "order.placed")
        .json(&n)
        .expect("JSON")
        .tenant("acme")
        .header("note", "grüße {\"a\", \\}, NULL")
}

/// An event as it comes from a broker.
fn incoming(number: u128) -> Event {
    let mut event = Event::new(EventId::from_u128(number), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    event
}

fn billing() -> HandlerName {
    HandlerName::new("billing").expect("a name")
}

/// How many wait for a lock with a statement of this schema's.
fn waiting(names: &Names) -> String {
    format!(
        "select count(*) from pg_stat_activity
        where wait_event_type = 'Lock' and query like '%{}%' and pid <> pg_backend_pid()",
        names.schema()
    )
}

async fn run(url: &str, statements: String) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await.unwrap();
}
