//! Rewinding: history is sent again from a point on, and counted once.

use postrider_core::waiting::{Passed, Settlement};
use postrider_core::{Cursor, ErrorKind, Lease, OutboxSource};
use postrider_sqlite::SqliteStore;
use rusqlite::Connection;

use crate::play::Play;
use crate::support::{Fresh, LONG, acquire, event, fetch, id, pass};

async fn drain(store: &SqliteStore, lease: &Lease, mut at: u64) {
    loop {
        let rows = fetch(store, lease, at).await.rows;
        let Some(last) = rows.last() else { return };
        store.settle(&pass(lease, at, &rows, Passed::Acked)).await.expect("settle");
        at = last.row.seq;
    }
}

/// A rewind goes back to the beginning of a bucket, forgets the log above it, marks what is sent again,
/// and ends the lease, so that nothing in flight is settled from the old place.
#[tokio::test]
async fn a_rewind_sends_history_again() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&(0..10_000).map(event).collect::<Vec<_>>());
    drain(&store, &lease, 0).await;
    let log = |connection: &Connection| -> Vec<(i64, i64, i64)> {
        let statement = "select bucket, count, id_sum from outbox_settled order by bucket";
        let mut statement = connection.prepare(statement).unwrap();
        let rows = statement.query_map((), |row| row.try_into()).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let before = log(&fresh.connect());
    assert_eq!(before.len(), 3);
    let play = Play { fresh, store, lease, rows: Vec::new() };
    let nothing = play.ask_of("rewind", &[0], None, Some(10_001));
    let request = play.ask_of("rewind", &[0], None, Some(9_000));
    let other = play.ask("redrive", &[1]);
    let carried = play.carry_out(100).await;
    assert_eq!(play.request(nothing), (0, 1, true), "it is not there yet");
    assert_eq!(carried.surrendered, std::slice::from_ref(&play.lease));
    assert_eq!((carried.rows, carried.more), (2, false));
    assert_eq!(play.request(request), (1, 0, true));
    assert_eq!(play.request(other), (0, 0, false), "the next owner's");
    assert_eq!(log(&play.fresh.connect()), before[..2], "8,192 and what follows is forgotten");
    let again = play.carry_out(100).await;
    assert_eq!(again.rows, 0, "the lease is gone");
    let Play { fresh, store, lease: old, .. } = play;
    let late = Settlement { lease: old.clone(), parts: Vec::new() };
    assert_eq!(store.settle(&late).await.unwrap_err().kind(), ErrorKind::Fenced);
    let lease = acquire(&store, LONG).await.expect("it is free").lease;
    assert!(lease.token > old.token);
    let loaded = store.load(&lease, &id("a")).await.unwrap();
    assert_eq!((loaded.cursor, loaded.replay_through), (Cursor::number(8_191), 10_000));
    drain(&store, &lease, 8_191).await;
    assert_eq!(log(&fresh.connect()), before, "counted once");
}

/// A rewind below what retention has left is refused, and one to the first event that is left is not.
#[tokio::test]
async fn a_rewind_stays_within_the_history() {
    let play = Play::of(&[("1", None), ("2", None), ("3", None)]).await;
    let begins = "update outbox_meta set value = '2' where key = 'history_start'";
    play.fresh.connect().execute(begins, ()).unwrap();
    let (refused, done) =
        (play.ask_of("rewind", &[0], None, Some(1)), play.ask_of("rewind", &[0], None, Some(2)));
    play.carry_out(100).await;
    assert_eq!((play.request(refused), play.request(done)), ((0, 1, true), (1, 0, true)));
    let cursor =
        "select position * 1000 + replay_through from outbox_cursor where destination = 'a'";
    assert_eq!(play.number(cursor), 1_003);
    assert_eq!(play.number("select count(*) from outbox_settled"), 0);
}
