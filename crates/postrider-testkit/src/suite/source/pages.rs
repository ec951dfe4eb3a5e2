//! Pages: what is behind a cursor, in order, within limits.

use std::collections::BTreeMap;

use postrider_core::source::FetchRequest;
use postrider_core::{ErrorKind, PartitionId};

use crate::suite::relay::{Relay, a, event, fetch, ids};
use crate::suite::{StoreHarness, skip};

/// R029: a page ends at its rows or its bytes, and never before its first row.
pub async fn a_page_keeps_its_limits_and_has_at_least_one_row<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let big = |n| event("1", n).bytes(vec![7u8; 10_000], "application/octet-stream");
    let events: Vec<_> = (0..12).map(big).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    let start = relay.source.load(&lease, &a()).await.expect("load").cursor;
    for (rows_max, bytes_max, most) in [(5, u64::MAX / 4, 5), (100, 35_000, 3), (100, 1, 1)] {
        let request = fetch(&lease, &a(), start.clone(), rows_max, bytes_max);
        let page = relay.source.fetch(&request).await.expect("fetch");
        assert!(!page.rows.is_empty(), "at least one row");
        assert!(page.rows.len() <= most, "{} rows of {rows_max}, {bytes_max}", page.rows.len());
        let read: Vec<_> = page.rows.iter().map(|row| row.row.id).collect();
        assert_eq!(read, ids(&events[..read.len()]), "from the start, without a gap");
    }
}

/// R008: reading changes nothing; a restart reads the same again.
pub async fn reading_again_from_a_cursor_reads_the_same<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..20).map(|n| event(&(n % 3).to_string(), n)).collect();
    harness.commit(events).await.expect("commit");
    let first = relay.read(&a()).await;
    let mut other = Relay::idle(&harness).await;
    other.leases.clone_from(&relay.leases);
    let second = other.read(&a()).await;
    let content = |rows: &[(postrider_core::Lease, postrider_core::source::FetchedRow)]| {
        rows.iter().map(|(_, row)| (row.row, row.key_hash, row.event.clone())).collect::<Vec<_>>()
    };
    assert_eq!(first.len(), 20);
    assert_eq!(content(&first), content(&second));
}

/// R038: a drain has an end, however fast producers are.
pub async fn a_drain_stops_at_its_head<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (before, after) = (event("1", 1), event("1", 2));
    harness.commit(vec![before.clone()]).await.expect("commit");
    let (lease, _) = relay.find(before.event().id).await;
    let head = relay.source.head(&lease).await.expect("head");
    harness.commit(vec![after]).await.expect("commit");
    let start = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let request =
        FetchRequest { until: Some(head), ..fetch(&lease, &a(), start, 100, u64::MAX / 4) };
    let page = relay.source.fetch(&request).await.expect("fetch");
    let read: Vec<_> = page.rows.iter().map(|row| row.row.id).collect();
    assert_eq!(read, ids(&[before]));
    assert!(!page.more, "nothing more below the head");
}

/// After a restore the store's numbers may lie behind the cursor: stop, instead of skipping what
/// comes.
pub async fn a_cursor_ahead_of_the_store_is_refused<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..5).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    let begins = relay.source.load(&lease, &a()).await.expect("load").cursor;
    relay.drain(&a()).await;
    let Some(rewound) = harness.rewind() else {
        return skip("a_cursor_ahead_of_the_store_is_refused", "the numbers cannot be set back");
    };
    rewound.await.expect("rewind");
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    let request = fetch(&lease, &a(), loaded.cursor, 100, 1_000_000);
    let refused = relay.source.fetch(&request).await.expect_err("behind the cursor");
    assert_eq!(refused.kind(), ErrorKind::Rewound, "{refused}");
    // Nor is the way there shorter than it was.
    let mut way = fetch(&lease, &a(), begins, 100, 1_000_000);
    way.until = Some(request.after);
    match relay.source.fetch(&way).await {
        Ok(page) => assert_eq!(page.rows.len(), events.len(), "what lies there is found"),
        Err(refused) => assert_eq!(refused.kind(), ErrorKind::Rewound, "{refused}"),
    }
}

/// R071: all events of a key are in one partition, for ever.
pub async fn a_key_stays_in_its_partition<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    for n in 0..3 {
        let events = (0..40).map(|key| event(&key.to_string(), n)).collect();
        harness.commit(events).await.expect("commit");
    }
    let mut homes: BTreeMap<_, PartitionId> = BTreeMap::new();
    for (lease, row) in relay.read(&a()).await {
        let event = row.event.expect("readable");
        assert_eq!(event.key_hash(), row.key_hash, "the hash is the key's");
        let home = *homes.entry(row.key_hash).or_insert(lease.partition);
        assert_eq!(home, lease.partition, "{}", event.key());
    }
    assert_eq!(homes.len(), 40);
    if relay.leases.len() > 1 {
        let used: std::collections::BTreeSet<_> = homes.values().collect();
        assert!(used.len() > 1, "keys spread over partitions");
    }
}

/// R035: a commit is noticed without waiting for a poll.
pub async fn a_commit_wakes_the_relay<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().wakes {
        return skip("a_commit_wakes_the_relay", "the relay polls");
    }
    let relay = Relay::start(&harness).await;
    for n in 0..3 {
        // Waking may be spurious; after a commit it must not be missing, also when nobody was
        // waiting at that moment.
        harness.commit(vec![event("1", n)]).await.expect("commit");
        let woken = tokio::time::timeout(harness.wakes_within(), relay.source.wake()).await;
        assert!(woken.is_ok(), "commit {n} woke nobody");
        assert_eq!(relay.drain(&a()).await.len(), 1);
    }
}
