//! Who holds the rows and the cursors' floors, as the doctor names them and as the metrics measure them. On a server of
//! its own: whoever has a number holds them, whatever database of the server he is in.

use std::time::Duration;

use postrider_core::Code;
use postrider_core::operate::{Bloat, Finding, Level, Operator};
use postrider_postgres::{Setup, Thresholds};
use postrider_testkit::cluster::Cluster;
use tokio_postgres::Client;

use super::examined::{finding, nothing, rendered, store};
use crate::database::Database;
use crate::support::connect;

/// Who holds the rows, where nothing is bearable.
async fn holder(database: &Database) -> Finding {
    finding(database, "old transactions", nothing()).await
}

async fn bloat(database: &Database) -> Bloat {
    let bloat = store(database, Thresholds::default()).bloat().await.expect("statistics");
    bloat.expect("PostgreSQL has them")
}

async fn free(database: &Database) {
    let quiet = holder(database).await;
    assert_eq!(quiet.level, Level::Good, "{quiet:?}");
    assert_eq!(bloat(database).await.transaction_open, Duration::ZERO);
}

async fn held(database: &Database, named: &str, ends: &str) {
    let found = holder(database).await;
    assert!(found.level > Level::Good && found.code == Some(Code::CleanupHeld), "{found:?}");
    assert!(found.message.starts_with(named), "{found:?}");
    assert!(found.advice.as_ref().is_some_and(|advice| advice.contains(ends)), "{found:?}");
    let bearable = finding(database, "old transactions", Thresholds::default()).await;
    assert_eq!(bearable.level, Level::Good, "{bearable:?}");
    assert!(bloat(database).await.transaction_open > Duration::ZERO, "{named}");
}

/// A session with a transaction that begins so, and its process.
async fn open(url: &str, begin: &str) -> (Client, i32) {
    let client = connect(&format!("{url}?application_name=reports")).await;
    let pid = client.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    client.batch_execute(begin).await.unwrap();
    (client, pid)
}

/// R124, F16, F7: a transaction that is left open is named with the process that has it, and a prepared one, which no
/// session has, by its identifier; each with what ends it. In another database that is so of those with a number,
/// which hold every snapshot's beginning back; a mere snapshot there is nobody's business.
#[tokio::test]
async fn whoever_holds_the_rows_is_named_and_measured() {
    const LOOK: &str = "begin isolation level repeatable read; select 1";
    let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
    let setup = Setup { partitions: Some(1), ..Setup::default() };
    let database = Database::at(cluster.url(), &setup).await;
    free(&database).await;

    let (client, pid) = open(&database.url, LOOK).await;
    let named = format!("session {pid} (reports, user postgres, idle in transaction) has");
    held(&database, &named, &format!("pg_terminate_backend({pid})")).await;
    client.batch_execute("rollback").await.unwrap();
    free(&database).await;

    let write = rendered("begin; update {outbox_meta} set value = value where key = 'database';");
    database.run(&format!("{write} prepare transaction 'forgotten'")).await;
    let named = "prepared transaction (forgotten, user postgres) has";
    held(&database, named, "ends: commit prepared or rollback prepared 'forgotten'").await;
    database.run("rollback prepared 'forgotten'").await;
    free(&database).await;

    let (client, pid) = open(&cluster.url(), LOOK).await;
    free(&database).await;
    client.batch_execute("rollback; begin; select pg_current_xact_id()").await.unwrap();
    let named = format!(
        "session {pid} (reports, user postgres, idle in transaction, database postgres) has"
    );
    held(&database, &named, &format!("pg_terminate_backend({pid})")).await;
    client.batch_execute("prepare transaction 'elsewhere'").await.unwrap();
    let named = "prepared transaction (elsewhere, user postgres, database postgres) has";
    held(&database, named, "connected with postgres: commit prepared or rollback").await;
    client.batch_execute("rollback prepared 'elsewhere'").await.unwrap();
    free(&database).await;
    rows_are_counted(&database).await;
}

/// R124: the age of the oldest xmin, and the dead rows, are read from statistics alone.
async fn rows_are_counted(database: &Database) {
    let look = rendered("begin isolation level repeatable read; select from {outbox_waiting}");
    let (_holder, _) = open(&database.url, &look).await;
    let client = connect(&database.url).await;
    let update = rendered("update {outbox_renewal} set life = life");
    for _ in 0..60 {
        client.batch_execute(&update).await.unwrap();
    }
    client.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    let held = bloat(database).await;
    assert!(held.transaction_open > Duration::ZERO && held.xmin_age >= 60, "{held:?}");
    let names: Vec<&str> = held.dead_rows.iter().map(|(table, _)| *table).collect();
    assert_eq!(names, ["outbox", "outbox_waiting", "outbox_cursor", "outbox_renewal"]);
    assert_eq!(held.dead_rows[3], ("outbox_renewal", 60), "{held:?}");
}
