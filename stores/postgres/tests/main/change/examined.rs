//! What the doctor asks a database about others: what is dead there, and whose commits may be taken back. Each test has a database of its own, since the answers are about all of it.

use std::time::Duration;

use postrider_core::operate::{Finding, Level, Operator};
use postrider_core::{Code, Timestamp};
use postrider_postgres::{Names, Options, PostgresStore, Setup, Thresholds};

use crate::database::Database;
use crate::support::connect;

/// One whose relays share no partitions.
async fn small() -> Option<Database> {
    Database::new(&Setup { partitions: Some(1), ..Setup::default() }).await
}

pub(super) fn store(database: &Database, thresholds: Thresholds) -> PostgresStore {
    let mut options = Options::default();
    options.thresholds = thresholds;
    PostgresStore::with(&database.url, options).expect("a store")
}

/// What the doctor says of a subject, where so much is bearable.
pub(super) async fn finding(database: &Database, subject: &str, thresholds: Thresholds) -> Finding {
    let found = store(database, thresholds).doctor(Timestamp::now()).await;
    let mut findings = found.expect("an examination").into_iter();
    findings.find(|finding| finding.subject == subject).expect("the finding")
}

pub(super) fn rendered(statements: &str) -> String {
    Names::default().render(statements)
}

/// Nothing is bearable, so that a test need not wait until something is old, or much.
pub(super) fn nothing() -> Thresholds {
    let mut thresholds = Thresholds::default();
    (thresholds.transaction_open, thresholds.dead_rows) = (Duration::ZERO, 0);
    thresholds
}

/// R124: dead rows are counted of the store's own tables, and the table that has them is named.
#[tokio::test]
async fn a_table_full_of_dead_rows_is_named() {
    let Some(database) = small().await else { return };
    let clean = finding(&database, "dead rows", nothing()).await;
    assert_eq!(clean.level, Level::Good, "{clean:?}");
    // Somebody looks at the rows, so that they cannot be pruned on the way.
    let holder = connect(&database.url).await;
    let look = rendered("begin isolation level repeatable read; select from {outbox_renewal}");
    holder.batch_execute(&look).await.unwrap();
    let update = "update {outbox_renewal} set life = life;".repeat(60);
    let client = connect(&database.url).await;
    for statement in rendered(&update).split_inclusive(';') {
        client.batch_execute(statement).await.unwrap();
    }
    client.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    let found = finding(&database, "dead rows", nothing()).await;
    assert_eq!((found.level, found.code), (Level::Warning, Some(Code::CleanupHeld)), "{found:?}");
    assert!(found.message.contains("outbox_renewal (60)"), "{found:?}");
    let bearable = finding(&database, "dead rows", Thresholds::default()).await;
    assert_eq!(bearable.level, Level::Good, "{bearable:?}");
    drop(holder);
    database.drop().await;
}

/// R124: dead events are counted of all tables that the outbox is divided into.
#[tokio::test]
async fn dead_events_are_those_of_every_part_of_the_outbox() {
    let Some(database) = small().await else { return };
    let insert = "insert into {outbox} (id, aggregate_type, aggregate_id, event_type, payload)
        select gen_random_uuid(), 'order', '42', 'order.placed', '0' from generate_series(1, 7)";
    let client = connect(&database.url).await;
    // What was rolled back is dead from the beginning.
    client.batch_execute(&rendered(&format!("begin; {insert}; rollback"))).await.unwrap();
    client.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    let bloat = store(&database, Thresholds::default()).bloat().await.unwrap().unwrap();
    assert_eq!(bloat.dead_rows[0], ("outbox", 7), "{bloat:?}");
    database.drop().await;
}

/// Commits of a role, or of the whole database, may be taken back by a crash while the doctor's own may not.
#[tokio::test]
async fn commits_that_a_crash_may_take_back_are_said() {
    let Some(database) = small().await else { return };
    let quick = finding(&database, "commits", Thresholds::default()).await;
    assert_eq!(quick.level, Level::Good, "{quick:?}");
    let role = format!("r{}", &database.name[1..]);
    let lazy = format!(
        "create role {role}; grant insert (id) on {{outbox}} to {role};
        alter role {role} set synchronous_commit = off"
    );
    database.run(&rendered(&lazy)).await;
    let found = finding(&database, "commits", Thresholds::default()).await;
    assert_eq!((found.level, found.code), (Level::Warning, Some(Code::DurabilityOff)));
    assert!(found.message.contains(&format!("is off for role {role}:")), "{found:?}");
    database.run(&format!("drop owned by {role}; drop role {role}")).await;
    let lazy = format!("alter database {} set synchronous_commit = off", database.name);
    database.run(&lazy).await;
    let found = finding(&database, "commits", Thresholds::default()).await;
    let named = format!("is off for database {}:", database.name);
    assert!(found.message.contains(&named), "{found:?}");
    database.drop().await;
}
