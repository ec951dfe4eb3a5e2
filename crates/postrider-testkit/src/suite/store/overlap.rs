//! Transactions side by side: numbers are drawn in one order and committed in another (R118).

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::{ErrorKind, EventId, Jitter};

use crate::suite::relay::{Relay, a, event, ids};
use crate::suite::{OpenTransaction, StoreHarness, skip};

const REASON: &str = "one writer at a time";

fn overlaps<H: StoreHarness>(harness: &H) -> bool {
    harness.source().capabilities().overlapping_writers
}

/// R002: what is not committed is not there.
pub async fn an_open_transaction_shows_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    if !overlaps(&harness) {
        return skip("an_open_transaction_shows_nothing", REASON);
    }
    let relay = Relay::start(&harness).await;
    let events = vec![event("1", 1)];
    let mut open = harness.begin().await.expect("begin");
    open.enqueue(events.clone()).await.expect("enqueue");
    assert_eq!(relay.read_ids(&a()).await, []);
    open.commit().await.expect("commit");
    assert_eq!(relay.read_ids(&a()).await, ids(&events));
}

/// R118: a transaction that drew the lower number and commits after the cursor moved is read.
pub async fn a_late_commit_behind_the_cursor_is_read<H: StoreHarness>() {
    let harness = H::start().await;
    if !overlaps(&harness) {
        return skip("a_late_commit_behind_the_cursor_is_read", REASON);
    }
    let relay = Relay::start(&harness).await;
    let keys = ["1", "2", "3", "4", "5", "6"];
    let early: Vec<_> = keys.iter().map(|key| event(key, 1)).collect();
    let late: Vec<_> = keys.iter().map(|key| event(key, 2)).collect();
    let mut open = harness.begin().await.expect("begin");
    open.enqueue(early.clone()).await.expect("enqueue");
    harness.commit(late.clone()).await.expect("commit");
    let mut read = relay.drain(&a()).await;
    assert_eq!(read.len(), late.len(), "only what is committed");
    if let Err(refused) = open.commit().await {
        // Where writers of one key conflict, the second begins again.
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        harness.commit(early.clone()).await.expect("nobody is in the way");
    }
    read.extend(relay.drain(&a()).await);
    let all: BTreeSet<EventId> = ids(&early).into_iter().chain(ids(&late)).collect();
    assert_eq!(read.len(), all.len(), "none twice");
    assert_eq!(BTreeSet::from_iter(read), all, "none missed");
}

/// R118: whatever the interleaving of enqueue, commit, rollback, and reading, what was committed is
/// read once, and nothing else is.
pub async fn random_overlapping_transactions_are_all_read<H: StoreHarness>() {
    let harness = H::start().await;
    if !overlaps(&harness) {
        return skip("random_overlapping_transactions_are_all_read", REASON);
    }
    let relay = Relay::start(&harness).await;
    let mut random = Jitter::seeded(0x0DD5);
    let mut draw = |below: u64| random.bits() % below;
    let mut open: BTreeMap<u64, (Box<dyn OpenTransaction>, Vec<EventId>)> = BTreeMap::new();
    let mut committed = BTreeSet::new();
    let mut read = Vec::new();
    for n in 0..300 {
        let slot = draw(6);
        // All partitions are read, each by questions of its own: of twelve steps one, or it is nearly all that the run does.
        match (draw(12), open.remove(&slot)) {
            (0..=2, Some((transaction, ids))) => {
                transaction.commit().await.expect("commit");
                committed.extend(ids);
            }
            (3..=5, Some((transaction, _))) => transaction.roll_back().await.expect("roll back"),
            (6, held) => {
                read.extend(relay.drain(&a()).await);
                open.extend(held.map(|held| (slot, held)));
            }
            (_, held) => {
                let (mut transaction, mut staged) = match held {
                    Some(held) => held,
                    None => (harness.begin().await.expect("begin"), Vec::new()),
                };
                // A key belongs to one slot: writers of one key take turns.
                let events = vec![event(&format!("{slot}-{}", draw(3)), n)];
                staged.extend(ids(&events));
                transaction.enqueue(events).await.expect("enqueue");
                open.insert(slot, (transaction, staged));
            }
        }
    }
    for (_, (transaction, ids)) in open {
        transaction.commit().await.expect("commit");
        committed.extend(ids);
    }
    read.extend(relay.drain(&a()).await);
    assert!(committed.len() > 30, "the run was too tame to prove anything");
    assert_eq!(read.len(), committed.len(), "none twice");
    assert_eq!(BTreeSet::from_iter(read), committed, "none missed, no ghost");
}
