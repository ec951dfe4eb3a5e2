//! Settling, waiting, and leases, where SQLite's own tables show what happened.

use std::time::Duration;

use postrider_core::source::{DueRequest, OutboxSource};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart, WaitingChange,
};
use postrider_core::{Cursor, ErrorKind, Lease};
use postrider_sqlite::SqliteStore;

use crate::support::{Fresh, acquire, event, fetch, id, number, pass};

fn failed() -> Attempted {
    Attempted { attempts: 1, reason: Reason::Failed, detail: "no answer".to_owned() }
}

async fn change(store: &SqliteStore, lease: &Lease, changes: Vec<WaitingChange>) {
    let mut part = SettlementPart::new(id("a"));
    part.changes = changes;
    let settlement = Settlement { lease: lease.clone(), parts: vec![part] };
    store.settle(&settlement).await.expect("settle");
}

async fn due(store: &SqliteStore, lease: &Lease) -> Vec<u64> {
    let request = DueRequest {
        lease: lease.clone(),
        destination: id("a"),
        except: Vec::new(),
        rows_max: 100,
        bytes_max: u64::MAX,
    };
    store.due(&request).await.expect("due").rows.iter().map(|row| row.row.seq).collect()
}

/// A settlement that is sent again is counted once, and one from another position is refused whole.
#[tokio::test]
async fn the_settled_log_counts_each_event_once() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&(0..5_000).map(event).collect::<Vec<_>>());
    let mut rows = Vec::new();
    loop {
        let after = rows.last().map_or(0, |row: &postrider_core::source::FetchedRow| row.row.seq);
        let page = fetch(&store, &lease, after).await;
        rows.extend(page.rows);
        if !page.more {
            break;
        }
    }
    let settlement = pass(&lease, 0, &rows, Passed::Acked);
    for _ in 0..2 {
        store.settle(&settlement).await.unwrap();
    }
    let connection = fresh.connect();
    let sums = "select sum(count) * 10 + count(*) from outbox_settled where acked = count";
    assert_eq!(number(&connection, sums), 50_002, "5,000 events in two buckets");
    let sum = rows
        .iter()
        .filter(|row| row.row.seq < 4_096)
        .fold(0u64, |sum, row| sum.wrapping_add(row.row.id.digest()));
    let stored = number(&connection, "select id_sum from outbox_settled where bucket = 0");
    assert_eq!(stored, sum.cast_signed());
    let mut elsewhere = settlement;
    elsewhere.parts[0].cursor = Some((Cursor::number(17), Cursor::number(6_000)));
    let refused = store.settle(&elsewhere).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
}

/// R017: what the view says was published was acknowledged, and nothing else is called so.
#[tokio::test]
async fn the_view_says_what_became_of_each_event() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&(0..5).map(event).collect::<Vec<_>>());
    let rows = fetch(&store, &lease, 0).await.rows;
    let mut settlement = pass(&lease, 0, &rows[..3], Passed::Acked);
    settlement.parts[0].passed[1].1 = Passed::Waiting;
    settlement.parts[0].passed[2].1 = Passed::Waiting;
    let dead = Placement::Dead { attempted: failed(), holds_key: true };
    for (row, placement) in [(&rows[1], dead), (&rows[2], Placement::Behind(Reason::Behind))] {
        settlement.parts[0].waiting.push(NewWaiting {
            row: row.row,
            key_hash: row.key_hash,
            event: None,
            placement,
        });
    }
    store.settle(&settlement).await.unwrap();
    let connection = fresh.connect();
    let mut statement = connection
        .prepare("select status from outbox_status where destination = 'a' order by seq")
        .unwrap();
    let statuses: Vec<String> =
        statement.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(statuses, ["published", "dead", "parked", "pending", "pending"]);
    let elsewhere = "select count(*) from outbox_status
        where destination = 'unrouted' and status = 'published'";
    assert_eq!(number(&connection, elsewhere), 0);
}

/// R122: the next of a key is promoted when the one before it leaves, one after the other, also
/// when they entered in another order.
#[tokio::test]
async fn a_key_drains_one_after_the_other() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&(0..4).map(event).collect::<Vec<_>>());
    let rows = fetch(&store, &lease, 0).await.rows;
    let mut settlement = pass(&lease, 0, &rows, Passed::Waiting);
    for row in rows.iter().rev() {
        settlement.parts[0].waiting.push(NewWaiting {
            row: row.row,
            key_hash: row.key_hash,
            event: None,
            placement: Placement::Behind(Reason::Behind),
        });
    }
    store.settle(&settlement).await.unwrap();
    assert_eq!(due(&store, &lease).await, [1, 2, 3, 4]);
    change(&store, &lease, vec![WaitingChange::Delivered(rows[0].row)]).await;
    assert_eq!(due(&store, &lease).await, [2, 3, 4]);
    let buried =
        |holds_key| WaitingChange::Dead { row: rows[1].row, attempted: failed(), holds_key };
    change(&store, &lease, vec![buried(true)]).await;
    assert_eq!(due(&store, &lease).await, [] as [u64; 0], "parked behind the dead letter");
    change(&store, &lease, vec![buried(false)]).await;
    assert_eq!(due(&store, &lease).await, [3, 4], "it lets its key go");
    let later = WaitingChange::Postpone { row: rows[2].row, delay: Duration::from_secs(60) };
    change(&store, &lease, vec![later]).await;
    assert_eq!(due(&store, &lease).await, [] as [u64; 0], "4 waits behind 3");
}

/// An operator's `discarded` stays: neither a late answer nor entering again brings the event back,
/// and the next of its key flows.
#[tokio::test]
async fn a_discarded_event_does_not_come_back() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&[event(1)]);
    let row = fetch(&store, &lease, 0).await.rows.remove(0);
    let mut part = SettlementPart::new(id("a"));
    part.waiting.push(NewWaiting {
        row: row.row,
        key_hash: row.key_hash,
        event: None,
        placement: Placement::Retry { delay: Duration::ZERO, attempted: failed() },
    });
    let settlement = Settlement { lease: lease.clone(), parts: vec![part] };
    store.settle(&settlement).await.unwrap();
    let connection = fresh.connect();
    connection.execute("update outbox_waiting set state = 'discarded'", ()).unwrap();
    let again = WaitingChange::Retry { row: row.row, delay: Duration::ZERO, attempted: failed() };
    change(&store, &lease, vec![again, WaitingChange::Delivered(row.row)]).await;
    store.settle(&settlement).await.unwrap();
    assert_eq!(due(&store, &lease).await, [] as [u64; 0]);
    let loaded = store.load(&lease, &id("a")).await.unwrap();
    assert_eq!((loaded.waiting_ahead, loaded.waiting_keys.len()), (vec![1], 0));
}

/// A waiting event that cannot be read, however it got to be due, is put back among the dead.
#[tokio::test]
async fn a_redriven_row_that_is_no_event_is_dead_again() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&[event(1)]);
    let row = fetch(&store, &lease, 0).await.rows.remove(0);
    let mut part = SettlementPart::new(id("a"));
    part.waiting.push(NewWaiting {
        row: row.row,
        key_hash: row.key_hash,
        event: None,
        placement: Placement::Behind(Reason::Behind),
    });
    store.settle(&Settlement { lease: lease.clone(), parts: vec![part] }).await.unwrap();
    fresh.connect().execute("update outbox_waiting set format = 9", ()).unwrap();
    assert_eq!(due(&store, &lease).await, [] as [u64; 0]);
    assert_eq!(store.counts(&id("a")).await.unwrap().dead, 1);
}

/// R115: only the database's clock decides. The row's own time is what counts, not how long anybody
/// waited.
#[tokio::test]
async fn a_lease_is_taken_when_the_database_says_so() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    assert!(acquire(&store, Duration::from_secs(15)).await.is_none());
    let ends_now = "update outbox_lease set expires_at =
        cast(round((julianday('now') - 2440587.5) * 86400000) as integer)";
    fresh.connect().execute(ends_now, ()).unwrap();
    let granted = acquire(&store, Duration::from_secs(15)).await.expect("it has expired");
    assert!(granted.lease.token > lease.token);
    assert_eq!(granted.takeovers, 1);
    let part = SettlementPart::new(id("a"));
    let refused = store.settle(&Settlement { lease, parts: vec![part] }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
}

/// INV-5: what is settled for a destination that was removed meanwhile is left out, and what is settled
/// for the others is written.
#[tokio::test]
async fn a_removed_destination_takes_nothing() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&[event(1)]);
    let rows = fetch(&store, &lease, 0).await.rows;
    let mut settlement = pass(&lease, 0, &rows, Passed::Acked);
    let mut gone = SettlementPart { destination: id("gone"), ..settlement.parts[0].clone() };
    gone.waiting = vec![NewWaiting {
        row: rows[0].row,
        key_hash: rows[0].key_hash,
        event: None,
        placement: Placement::Behind(Reason::Behind),
    }];
    settlement.parts.insert(0, gone);
    store.settle(&settlement).await.unwrap();
    let loaded = store.load(&lease, &id("a")).await.unwrap();
    assert_eq!(loaded.cursor, Cursor::number(rows[0].row.seq));
    assert_eq!(store.load(&lease, &id("gone")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.counts(&id("gone")).await.unwrap().total(), 0);
}
