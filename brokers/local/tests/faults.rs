//! Faults of the file: full, locked, foreign, deleted. Each has its kind, and nothing acknowledged
//! is lost.

use std::time::Duration;

use postrider_core::{Broker, ErrorKind, Payload, Subscription};
use postrider_local::{LocalBroker, LocalOptions};
use rusqlite::Connection;

use crate::support::*;

/// F25: nothing of the batch is stored, what was acknowledged stays, and once there is room again
/// publishing goes on by itself.
#[tokio::test]
async fn a_full_disk_refuses_the_whole_batch() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    let options = LocalOptions { file_bytes_max: 200 * 1024, ..LocalOptions::default() };
    let small = LocalBroker::open_with(fixture.path(), options).unwrap();
    let batch: Vec<_> = (2..=9u128)
        .map(|n| {
            let mut event = event(n, &n.to_string());
            event.payload = Payload::bytes(vec![0; 64 * 1024]);
            outgoing(event)
        })
        .collect();
    let error = small.publish(&batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
    assert_eq!(stored(&fixture.broker).await, [1]);
    publish_all(&small, &[outgoing(event(10, "a"))]).await;
    publish_all(&fixture.broker, &batch).await;
    assert_eq!(stored(&small).await, [1, 10, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[tokio::test]
async fn a_writer_that_does_not_finish_makes_publishing_busy() {
    let fixture = Fixture::new();
    let options = LocalOptions { busy_wait: Duration::from_millis(30), ..LocalOptions::default() };
    let broker = LocalBroker::open_with(fixture.path(), options).unwrap();
    let stranger = Connection::open(fixture.path()).unwrap();
    stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = broker.publish(&[outgoing(event(1, "a"))]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(stored(&broker).await.is_empty(), "readers go on, and nothing was stored");
    stranger.execute_batch("ROLLBACK").unwrap();
    publish_all(&broker, &[outgoing(event(1, "a"))]).await;
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let text = "these are my notes, and they are longer than a header ".repeat(40);
    std::fs::write(&path, &text).unwrap();
    let error = LocalBroker::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_database_of_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let shop = Connection::open(&path).unwrap();
    shop.execute_batch("CREATE TABLE orders (id)").unwrap();
    let before = std::fs::read(&path).unwrap();
    assert_eq!(LocalBroker::open(&path).unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let missing = folder.path().join("no/such/folder/q.db");
    assert_eq!(LocalBroker::open(missing).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn tables_of_a_newer_version_are_refused() {
    let fixture = Fixture::new();
    let connection = Connection::open(fixture.path()).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    let error = LocalBroker::open(fixture.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SchemaTooNew);
}

/// INV-7: what is written to a deleted file is lost, so it is not acknowledged.
#[cfg(unix)]
#[tokio::test]
async fn a_deleted_file_acknowledges_nothing() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=1).await;
    let path = fixture.path();
    let moved = fixture.folder.path().join("moved.db");
    std::fs::rename(&path, &moved).unwrap();
    let error = fixture.broker.publish(&[outgoing(event(2, "a"))]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("PR-1008"), "{error}");
    std::fs::rename(&moved, &path).unwrap();
    fixture.publish("a", 2..=2).await;
    assert_eq!(stored(&fixture.broker).await, [1, 2]);
}

/// F21: a stored document that is no event is delivered as what it is, and can be refused.
#[tokio::test]
async fn a_damaged_document_can_be_refused() {
    let fixture = Fixture::new();
    fixture.publish("a", 1..=2).await;
    let stranger = Connection::open(fixture.path()).unwrap();
    stranger.execute("UPDATE message SET document = x'7b' WHERE seq = 1", []).unwrap();
    let subscription = fixture.subscribe(Duration::from_secs(30)).await;
    let got = receive(&subscription, 10).await;
    let fault = got[0].event.clone().unwrap_err();
    subscription.reject(&got[0], &fault).await.unwrap();
    assert_eq!(numbers(&receive(&subscription, 10).await), [2]);
    assert!(fixture.broker.dead_letters("g").await.unwrap()[0].event.is_err());
    let error = fixture.broker.messages("orders").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
