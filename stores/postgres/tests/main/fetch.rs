//! Reading what was committed: pages, their ends, and what commits out of order.

use std::time::{Duration, Instant};

use postrider_core::snapshot::SnapshotCursor;
use postrider_core::source::{FetchRequest, OutboxSource, Page};
use postrider_core::{Code, Cursor, ErrorKind, Lease, PartitionId, RelayId};
use postrider_postgres::PostgresStore;

use crate::support::{Fresh, id};

fn lease(partition: u16) -> Lease {
    Lease { partition: PartitionId(partition), owner: RelayId::mint(), token: 1 }
}

pub(crate) fn after(cursor: &Cursor, rows_max: u32, bytes_max: u64) -> FetchRequest {
    FetchRequest {
        lease: lease(0),
        destinations: vec![id("a")],
        after: cursor.clone(),
        until: None,
        rows_max,
        bytes_max,
    }
}

pub(crate) fn beginning() -> Cursor {
    SnapshotCursor::beginning().encode().unwrap()
}

pub(crate) fn numbers(page: &Page) -> Vec<u64> {
    page.rows.iter().map(|row| row.row.seq).collect()
}

const INSERT: &str = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload) \
                      values ('order', '42', 'order.placed', '{\"a\": 1}')";

pub(crate) async fn all(store: &PostgresStore, cursor: &mut Cursor, rows_max: u32) -> Vec<u64> {
    let mut found = Vec::new();
    loop {
        let page = store.fetch(&after(cursor, rows_max, 1 << 20)).await.expect("fetch");
        found.extend(numbers(&page));
        *cursor = page.end;
        if !page.more {
            return found;
        }
    }
}

/// INV-1, F29: a sequence that somebody lets give numbers in advance, under a relay that runs, stops it before a floor
/// passes one that a session keeps.
#[tokio::test]
async fn a_sequence_that_is_cached_under_way_stops_the_reading() {
    let Some(fresh) = Fresh::read_for_a(1).await else { return };
    let (store, _) = fresh.relay().await;
    let mut cursor = beginning();
    fresh.run(INSERT).await;
    assert_eq!(all(&store, &mut cursor, 10).await, [1]);
    fresh.run("alter sequence {outbox_seq} cache 20").await;
    for _ in 0..2 {
        // Each keeps the rest of the twenty that it was given.
        fresh.connect().await.batch_execute(&fresh.sql(INSERT)).await.unwrap();
    }
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "it reads on");
        match store.fetch(&after(&cursor, 10, 1 << 20)).await {
            Ok(page) => cursor = page.end,
            Err(error) => break error,
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(error.operator_code(), Some(Code::SequenceCached), "{error}");
}

/// R118: what commits later with a lower number is found, and nothing is found twice.
#[tokio::test]
async fn what_commits_out_of_order_is_found_once() {
    let Some(fresh) = Fresh::read_for_a(1).await else { return };
    let (store, mut late, other) = (fresh.store(), fresh.connect().await, fresh.connect().await);
    let insert = fresh.sql(INSERT);
    let tx = late.transaction().await.unwrap();
    tx.batch_execute(&insert).await.unwrap();
    other.batch_execute(&insert).await.unwrap();
    let mut cursor = beginning();
    assert_eq!(all(&store, &mut cursor, 10).await, [2]);
    other.batch_execute(&insert).await.unwrap();
    assert_eq!(all(&store, &mut cursor, 10).await, [3]);
    tx.commit().await.unwrap();
    assert_eq!(all(&store, &mut cursor, 10).await, [1]);
    assert_eq!(all(&store, &mut cursor, 10).await, [0u64; 0]);
    let same = store.fetch(&after(&cursor, 10, 1 << 20)).await.unwrap();
    // Other tests' transactions end meanwhile, so the cursor may move; it passes nothing.
    assert!(same.rows.is_empty() && !same.more);
}

/// R034, INV-6: pages end by rows and by bytes, with one row at least, and together they are everything.
#[tokio::test]
async fn pages_end_by_rows_and_by_bytes() {
    let Some(fresh) = Fresh::read_for_a(1).await else { return };
    let store = fresh.store();
    let many = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload) \
                select 'order', n::text, 'order.placed', to_json(repeat('x', 1000))::text \
                from generate_series(1, 100) as n";
    fresh.run(many).await;
    for rows_max in [1, 7, 99, 100, 101] {
        let mut cursor = beginning();
        assert_eq!(all(&store, &mut cursor, rows_max).await, (1..=100).collect::<Vec<u64>>());
    }
    let page = store.fetch(&after(&beginning(), 1_000, 10_000)).await.unwrap();
    assert_eq!((page.rows.len(), page.more), (7, true));
    let page = store.fetch(&after(&page.end, 1_000, 1)).await.unwrap();
    assert_eq!((numbers(&page), page.more), (vec![8], true));
}

/// INV-6: what many partitions ask for together is bounded, and each gets something.
#[tokio::test]
async fn partitions_that_ask_together_share_the_room() {
    let Some(fresh) = Fresh::read_for_a(8).await else { return };
    let store = fresh.store();
    let many = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload) \
                select 'order', n::text, 'order.placed', to_json(repeat('x', 1000000))::text \
                from generate_series(1, 40) as n";
    fresh.run(many).await;
    let mut found = std::collections::BTreeSet::new();
    let mut cursors = vec![Some(beginning()); 8];
    while cursors.iter().any(Option::is_some) {
        let asked = cursors.iter().enumerate().filter_map(|(partition, cursor)| {
            let mut request = after(cursor.as_ref()?, 1_000, 4 << 20);
            request.lease = lease(u16::try_from(partition).unwrap());
            let store = store.clone();
            Some(async move { (partition, store.fetch(&request).await.expect("fetch")) })
        });
        for (partition, page) in futures_util::future::join_all(asked).await {
            let goes_on = cursors[partition].as_ref() != Some(&page.end);
            assert!(!page.more || goes_on, "each page is a step");
            for row in &page.rows {
                assert!(found.insert(row.row.seq), "{} twice", row.row.seq);
            }
            cursors[partition] = page.more.then_some(page.end);
        }
    }
    assert_eq!(found.len(), 40);
}

/// INV-6: headers fill the room of a statement as payloads do: events with 16 KiB of them come in statements
/// of a few hundred, whole, and in order.
#[tokio::test]
async fn headers_count_like_payloads() {
    let Some(fresh) = Fresh::read_for_a(1).await else { return };
    let store = fresh.store();
    let many = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload, headers) \
                select 'order', n::text, 'order.placed', '1', \
                    jsonb_build_object('note', case when n > 100 then repeat('x', 16000) else 'x' end) \
                from generate_series(1, 1500) as n";
    fresh.run(many).await;
    let (mut cursor, mut found, mut largest) = (beginning(), Vec::new(), 0);
    loop {
        let page = store.fetch(&after(&cursor, 10_000, 1 << 30)).await.expect("fetch");
        for row in &page.rows {
            let event = row.event.as_ref().expect("an event");
            let note = if row.row.seq > 100 { 16_000 } else { 1 };
            assert_eq!(event.headers.get("note").map(String::len), Some(note), "{}", row.row.seq);
        }
        largest = largest.max(page.rows.iter().map(|row| row.bytes).sum::<u64>());
        found.extend(numbers(&page));
        cursor = page.end;
        if !page.more {
            break;
        }
    }
    assert_eq!(found, (1..=1_500).collect::<Vec<u64>>());
    // All of them together are 22 MB, and would have come in one answer.
    assert!(largest <= 8 << 20, "{largest} bytes in one answer");
    assert!(largest > 1 << 20, "pages are not smaller than they must be: {largest}");
}

/// INV-1: a cursor beyond the sequence is not read from.
#[tokio::test]
async fn a_sequence_behind_the_cursor_is_refused() {
    let Some(fresh) = Fresh::read_for_a(1).await else { return };
    let store = fresh.store();
    fresh.run(INSERT).await;
    let mut cursor = beginning();
    all(&store, &mut cursor, 10).await;
    fresh.run(INSERT).await;
    all(&store, &mut cursor, 10).await;
    assert!(SnapshotCursor::decode(&cursor).unwrap().floor() > 0, "a tick raised the floor");
    fresh.run("alter sequence {outbox_seq} restart").await;
    let refused = store.fetch(&after(&cursor, 10, 1 << 20)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Rewound);
}
