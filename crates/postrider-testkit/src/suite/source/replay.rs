//! Rewinding: a destination reads its history again, knows what is a replay, and what waits stays.

use postrider_core::operate::{Note, Submission, Verb};
use postrider_core::source::DefinitionChange;
use postrider_core::waiting::{Counts, Passed};
use postrider_core::{ErrorKind, Start};

use super::requests::{REASON, ask, carry};
use super::waiting::{counts, dead, park};
use crate::suite::relay::{LONG, Relay, a, destination, event, id, ids, pass};
use crate::suite::{StoreHarness, skip};

fn rewind() -> Verb {
    Verb::Rewind { destination: a(), to: Start::Beginning }
}

/// Takes the partitions again that were surrendered.
pub(super) async fn take_again(relay: &mut Relay, surrendered: &[postrider_core::Lease]) {
    relay.leases.retain(|lease| !surrendered.contains(lease));
    let acquired = relay.acquire(LONG).await;
    for lease in surrendered {
        let mut granted = acquired.granted.iter();
        let again = granted.find(|granted| granted.lease.partition == lease.partition);
        let again = again.expect("what was surrendered is free at once");
        assert!(again.lease.token > lease.token);
        assert_eq!(again.takeovers, 0, "nobody died");
    }
}

/// Everything is read again, marked as a replay; what comes after is not; and nobody who remembers
/// the cursor as it was can write.
pub async fn a_rewound_destination_is_read_again<H: StoreHarness>() {
    let harness = H::start().await;
    let mut relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..4).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    assert_eq!(relay.drain(&a()).await, ids(&events));
    let at = relay.source.load(&lease, &a()).await.expect("load");
    assert_eq!(at.replay_through, 0, "nothing was ever rewound");
    if ask(&harness, rewind()).await.is_none() {
        return skip("a_rewound_destination_is_read_again", REASON);
    }
    let done = carry(&relay, 1_000).await;
    assert!(done.surrendered.contains(&lease), "{done:?}");
    let mut part = postrider_core::waiting::SettlementPart::new(a());
    part.cursor = Some((at.cursor.clone(), at.cursor.at(at.cursor.position() + 1)));
    let refused = relay.settle(&lease, part).await.expect_err("the lease has ended");
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    take_again(&mut relay, &done.surrendered).await;
    let later = event("1", 9);
    harness.commit(vec![later.clone()]).await.expect("commit");
    let rows = relay.read(&a()).await;
    let read: Vec<_> = rows.iter().map(|(_, row)| row.row.id).collect();
    assert_eq!(read[..4], ids(&events), "in order");
    let loaded = relay.source.load(&rows[0].0, &a()).await.expect("load");
    let replays: Vec<_> =
        rows.iter().filter(|(_, row)| row.row.seq <= loaded.replay_through).collect();
    assert_eq!(replays.len(), 4, "the fifth is new");
    assert_eq!(relay.drain(&a()).await.len(), 5);
}

/// What was never sent is no replay.
pub async fn what_was_not_passed_is_no_replay<H: StoreHarness>() {
    let harness = H::start().await;
    let mut relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..4).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, second) = relay.find(events[1].event().id).await;
    let from = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows = relay.read_from(&lease, &a(), from.clone(), 1_000).await;
    let part = pass(&a(), from, &rows[..2], &second, Passed::Acked);
    relay.settle(&lease, part).await.expect("settle");
    if ask(&harness, rewind()).await.is_none() {
        return skip("what_was_not_passed_is_no_replay", REASON);
    }
    let done = carry(&relay, 1_000).await;
    take_again(&mut relay, &done.surrendered).await;
    for (lease, row) in relay.read(&a()).await {
        let loaded = relay.source.load(&lease, &a()).await.expect("load");
        let sent = ids(&events[..2]).contains(&row.row.id);
        assert_eq!(row.row.seq <= loaded.replay_through, sent, "{row:?}");
    }
    assert_eq!(relay.drain(&a()).await, ids(&events));
}

/// A dead letter stays one: it is told as ahead of the cursor, and holds its key.
pub async fn what_waits_stays_when_its_destination_is_rewound<H: StoreHarness>() {
    let harness = H::start().await;
    let mut relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 3, dead(true)).await;
    if ask(&harness, rewind()).await.is_none() {
        return skip("what_waits_stays_when_its_destination_is_rewound", REASON);
    }
    let done = carry(&relay, 1_000).await;
    take_again(&mut relay, &done.surrendered).await;
    let lease = relay.leases.iter().find(|own| own.partition == lease.partition).cloned();
    let lease = lease.expect("taken again");
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    let mut ahead = loaded.waiting_ahead.clone();
    ahead.sort_unstable();
    let seqs: Vec<_> = fetched.iter().map(|row| row.row.seq).collect();
    assert_eq!(ahead, seqs);
    assert_eq!(loaded.waiting_keys, [(fetched[0].key_hash, 3)]);
    let expected = Counts { dead: 1, parked: 2, ..Counts::default() };
    assert_eq!(counts(&relay).await, expected);
    assert_eq!(relay.read_ids(&a()).await.len(), events.len(), "they are read again, and wait");
}

/// A rewind of one destination is no matter of another, and never goes forward.
pub async fn a_rewind_concerns_one_destination<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().many_destinations {
        return skip("a_rewind_concerns_one_destination", "one destination");
    }
    let mut relay = Relay::start(&harness).await;
    let put = vec![(destination("b"), Start::Beginning)];
    let change = DefinitionChange { put, ..DefinitionChange::default() };
    relay.source.apply(&change).await.expect("apply");
    let events: Vec<_> = (0..3).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    relay.drain(&id("b")).await;
    let note = Note::new("suite", "a case of the contract").expect("invariant: a valid note");
    let submission = Submission { verb: rewind(), note };
    let Some(asked) = harness.submit(&submission) else {
        return skip("a_rewind_concerns_one_destination", REASON);
    };
    // A store may say at once that there is nothing to replay.
    if let Err(refused) = asked.await {
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    let done = carry(&relay, 1_000).await;
    take_again(&mut relay, &done.surrendered).await;
    assert_eq!(relay.read_ids(&id("b")).await, [], "its cursor stands where it stood");
    for lease in &relay.leases {
        let loaded = relay.source.load(lease, &a()).await.expect("load");
        assert_eq!(loaded.replay_through, 0, "nothing of it had been sent");
    }
    assert_eq!(relay.drain(&a()).await, ids(&events));
}
