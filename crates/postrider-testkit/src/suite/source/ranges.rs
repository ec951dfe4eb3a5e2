//! Ranges: what of a key was passed and not copied is told to each owner, is read again up to the destination's cursor,
//! and stays in the store until then.

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::range::{Range, RangeChange};
use postrider_core::source::{DefinitionChange, FetchedRow};
use postrider_core::waiting::{Counts, Passed, Placement, Reason, SettlementPart, WaitingChange};
use postrider_core::{Cursor, Destination, DestinationId, ErrorKind, Lease, NewEvent, Start};

use super::ranges_read::between;
use super::replay::take_again;
use super::requests::{REASON, ask, carry, rows};
use super::retiring::{pass_all, retirable, retire};
use super::waiting::{counts, retry};
use crate::suite::relay::{LONG, Relay, a, destination, event, id, ids, pass, waits};
use crate::suite::{StoreHarness, skip};

/// Why a case of ranges does not apply.
pub(super) const NONE_KEPT: &str = "the store keeps no ranges";

/// A key whose first event waits, and whose others a range stands for.
struct Ranged {
    lease: Lease,
    rows: Vec<FetchedRow>,
    range: Range,
    /// What passed them all, and began the range.
    part: SettlementPart,
}

impl Ranged {
    /// The destination's saved cursor.
    fn saved(&self) -> Cursor {
        self.rows[self.rows.len() - 1].cursor.clone()
    }

    fn moves(&self, from: usize, to: usize) -> RangeChange {
        let [from, to] = [from, to].map(|n| self.rows[n].cursor.clone());
        RangeChange::Move { key_hash: self.range.key_hash, from, to }
    }

    fn closes(&self, from: usize) -> RangeChange {
        RangeChange::Close { key_hash: self.range.key_hash, from: self.rows[from].cursor.clone() }
    }

    /// What a range tells that stands behind the row.
    fn at(&self, row: usize) -> Vec<Range> {
        vec![Range { cursor: self.rows[row].cursor.clone(), ..self.range.clone() }]
    }
}

/// Passes the events, which are committed and of one key: the first waits, to be tried when it is told, and a range stands
/// for what follows.
async fn open(relay: &Relay, events: &[NewEvent], delay: Duration) -> Ranged {
    let (lease, first) = relay.find(events[0].event().id).await;
    let from = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows = relay.read_from(&lease, &a(), from.clone(), 1_000).await;
    assert_eq!(rows.len(), events.len(), "nothing else is in the partition");
    let range = Range {
        key_hash: first.key_hash,
        key: events[0].event().key().into(),
        cursor: rows[0].cursor.clone(),
        version: 7,
    };
    let mut part = pass(&a(), from, &rows, &rows[rows.len() - 1], Passed::Waiting);
    part.waiting.push(waits(&rows[0], retry(delay)));
    part.ranges.push(RangeChange::Open(range.clone()));
    relay.settle(&lease, part.clone()).await.expect("settle");
    Ranged { lease, rows, range, part }
}

/// Commits so many events of a key, and opens a range behind the first.
async fn commit_and_open<H: StoreHarness>(
    harness: &H,
    relay: &Relay,
    count: u32,
) -> (Vec<NewEvent>, Ranged) {
    let events: Vec<_> = (0..count).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let ranged = open(relay, &events, Duration::ZERO).await;
    (events, ranged)
}

/// The ranges that an owner is told of.
async fn told(relay: &Relay, lease: &Lease, destination: &DestinationId) -> Vec<Range> {
    let loaded = relay.source.load(lease, destination).await.expect("load");
    loaded.ranges.expect("it keeps ranges")
}

/// Settles changes of ranges alone.
async fn change(relay: &Relay, lease: &Lease, ranges: Vec<RangeChange>) {
    let part = SettlementPart { ranges, ..SettlementPart::new(a()) };
    relay.settle(lease, part).await.expect("settle");
}

/// INV-1: whoever owns the partition is told of a range, and where it stands, until it ends. A store that keeps none says
/// so.
pub async fn a_range_is_told_until_it_ends<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    if !relay.source.capabilities().ranges {
        let loaded = relay.source.load(&relay.leases[0], &a()).await.expect("load");
        assert_eq!(loaded.ranges, None, "an owner has to know");
        return skip("a_range_is_told_until_it_ends", NONE_KEPT);
    }
    let (_, ranged) = commit_and_open(&harness, &relay, 4).await;
    assert_eq!(told(&relay, &ranged.lease, &a()).await, ranged.at(0));
    let unrouted = id(Destination::UNROUTED);
    assert_eq!(told(&relay, &ranged.lease, &unrouted).await, [], "it is one destination's");
    for lease in relay.leases.iter().filter(|lease| lease.partition != ranged.lease.partition) {
        assert_eq!(told(&relay, lease, &a()).await, [], "and one partition's");
    }
    change(&relay, &ranged.lease, vec![ranged.moves(0, 1)]).await;
    assert_eq!(told(&relay, &ranged.lease, &a()).await, ranged.at(1));

    relay.source.release(&relay.leases).await.expect("release");
    let mut next = Relay::idle(&harness).await;
    next.acquire(LONG).await;
    let own = next.leases.iter().find(|own| own.partition == ranged.lease.partition);
    let own = own.expect("it took all");
    assert_eq!(told(&next, own, &a()).await, ranged.at(1), "the next owner is told");
    change(&next, own, vec![ranged.moves(1, 2), ranged.closes(2)]).await;
    assert_eq!(told(&next, own, &a()).await, [], "in order, in one settlement");
}

/// R005: what is about a range that stands elsewhere changes nothing, and so does a settlement that is sent again.
pub async fn a_range_that_stands_elsewhere_is_left<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().ranges {
        return skip("a_range_that_stands_elsewhere_is_left", NONE_KEPT);
    }
    let relay = Relay::start(&harness).await;
    let (_, ranged) = commit_and_open(&harness, &relay, 4).await;
    let lease = &ranged.lease;
    relay.settle(lease, ranged.part.clone()).await.expect("the same again");
    assert_eq!(told(&relay, lease, &a()).await, ranged.at(0));
    let other = Range { cursor: ranged.rows[2].cursor.clone(), version: 9, ..ranged.range.clone() };
    change(&relay, lease, vec![RangeChange::Open(other)]).await;
    assert_eq!(told(&relay, lease, &a()).await, ranged.at(0), "the key has one");
    for elsewhere in [ranged.moves(1, 2), ranged.closes(1)] {
        change(&relay, lease, vec![elsewhere]).await;
        assert_eq!(told(&relay, lease, &a()).await, ranged.at(0), "it does not stand there");
    }
    for _ in 0..2 {
        change(&relay, lease, vec![ranged.moves(0, 2)]).await;
        assert_eq!(told(&relay, lease, &a()).await, ranged.at(2));
    }
    // The same write again, which passes nothing and begins nothing.
    relay.settle(lease, ranged.part.clone()).await.expect("the same again");
    assert_eq!(told(&relay, lease, &a()).await, ranged.at(2));
    for _ in 0..2 {
        change(&relay, lease, vec![ranged.closes(2)]).await;
        assert_eq!(told(&relay, lease, &a()).await, []);
    }
    change(&relay, lease, vec![ranged.moves(2, 3)]).await;
    assert_eq!(told(&relay, lease, &a()).await, [], "what has ended does not move");
}

/// R114: a stale owner opens, moves, and closes nothing.
pub async fn a_late_owner_changes_no_range<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().ranges {
        return skip("a_late_owner_changes_no_range", NONE_KEPT);
    }
    let relay = Relay::start(&harness).await;
    let (_, ranged) = commit_and_open(&harness, &relay, 3).await;
    relay.source.release(&relay.leases).await.expect("release");
    let mut next = Relay::idle(&harness).await;
    next.acquire(LONG).await;
    let own = next.leases.iter().find(|own| own.partition == ranged.lease.partition);
    let own = own.expect("it took all");
    let mut other = ranged.range.clone();
    other.key_hash = event("2", 0).event().key_hash();
    for change in [RangeChange::Open(other), ranged.moves(0, 1), ranged.closes(0)] {
        let part = SettlementPart { ranges: vec![change], ..SettlementPart::new(a()) };
        let refused = relay.settle(&ranged.lease, part).await.expect_err("a stale token");
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
        assert_eq!(told(&next, own, &a()).await, ranged.at(0));
    }
}

/// INV-3: events that are copied behind the cursor, in a settlement that does not move it, come out in their order, behind
/// those of their key that waited before.
pub async fn what_is_copied_behind_the_cursor_is_due_in_its_order<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().ranges {
        return skip("what_is_copied_behind_the_cursor_is_due_in_its_order", NONE_KEPT);
    }
    let relay = Relay::start(&harness).await;
    let (events, ranged) = commit_and_open(&harness, &relay, 5).await;
    let lease = &ranged.lease;
    let copy = |range, copied: &[FetchedRow]| {
        let mut part = SettlementPart { ranges: vec![range], ..SettlementPart::new(a()) };
        let behind = |row| waits(row, Placement::Behind(Reason::Behind));
        part.waiting = copied.iter().map(behind).collect();
        part
    };
    let part = copy(ranged.moves(0, 2), &ranged.rows[1..3]);
    for _ in 0..2 {
        relay.settle(lease, part.clone()).await.expect("settle");
        let expected = Counts { retrying: 1, parked: 2, ..Counts::default() };
        assert_eq!(counts(&relay).await, expected);
        assert_eq!(relay.due(lease).await, ids(&events[..3]));
    }
    let loaded = relay.source.load(lease, &a()).await.expect("load");
    assert_eq!(loaded.waiting_keys, [(ranged.range.key_hash, 3)]);
    assert_eq!(loaded.waiting_ahead, [] as [u64; 0], "the cursor has passed them");
    assert_eq!(loaded.cursor, ranged.saved());
    assert_eq!(loaded.ranges, Some(ranged.at(2)));

    let mut part = SettlementPart::new(a());
    let delivered = ranged.rows[..3].iter().map(|row| WaitingChange::Delivered(row.row));
    part.changes = delivered.collect();
    relay.settle(lease, part).await.expect("settle");
    assert_eq!(relay.due(lease).await, [], "the rest is not copied yet");
    let part = copy(ranged.closes(2), &ranged.rows[3..]);
    relay.settle(lease, part).await.expect("settle");
    assert_eq!(relay.due(lease).await, ids(&events[3..]));
    assert_eq!(told(&relay, lease, &a()).await, []);
}

/// R117: an event that a range stands for stays, though every destination's cursor has passed it, and it waits nowhere.
pub async fn what_a_range_stands_for_is_not_retired<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().ranges {
        return skip("what_a_range_stands_for_is_not_retired", NONE_KEPT);
    }
    let relay = Relay::start(&harness).await;
    let (events, ranged) = commit_and_open(&harness, &relay, 4).await;
    let lease = &ranged.lease;
    let done = |row: usize| WaitingChange::Delivered(ranged.rows[row].row);
    let request = retire(lease, harness.unit());
    for moved in 0..3 {
        // What waited is delivered, and the next is copied as the last time round.
        let mut part = SettlementPart::new(a());
        part.changes.push(done(moved));
        relay.settle(lease, part).await.expect("settle");
        pass_all(&harness, &relay).await;
        let kept = ids(&events[moved + 1..]);
        let gone = retirable(&relay, &request).await;
        assert!(!gone.iter().any(|id| kept.contains(id)), "{gone:?} of {kept:?}");
        relay.source.retire(&request).await.expect("retire");
        let from = &ranged.rows[moved].cursor;
        let (left, _) = between(&relay, lease, from, &ranged.saved(), 1_000).await;
        assert_eq!(left, kept, "it is there to be copied");
        let last = moved == 2;
        let range = if last { ranged.closes(moved) } else { ranged.moves(moved, moved + 1) };
        let mut part = SettlementPart { ranges: vec![range], ..SettlementPart::new(a()) };
        part.waiting.push(waits(&ranged.rows[moved + 1], Placement::Behind(Reason::Behind)));
        relay.settle(lease, part).await.expect("settle");
    }
    let mut part = SettlementPart::new(a());
    part.changes.push(done(3));
    relay.settle(lease, part).await.expect("settle");
    let gone = retirable(&relay, &request).await;
    if gone.is_empty() {
        return skip("what_a_range_stands_for_is_not_retired", "the store retires nothing");
    }
    assert_eq!(gone.last(), ids(&events).last(), "the range has ended");
}

/// R098: an event that a range stands for comes by itself, and is not sent out of its order before.
pub async fn what_a_range_stands_for_is_not_requeued<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().ranges {
        return skip("what_a_range_stands_for_is_not_requeued", NONE_KEPT);
    }
    let relay = Relay::start(&harness).await;
    let (_, ranged) = commit_and_open(&harness, &relay, 3).await;
    change(&relay, &ranged.lease, vec![ranged.moves(0, 1)]).await;
    let verb = Verb::Requeue(rows(&[&ranged.rows[1], &ranged.rows[2]]));
    let Some(request) = ask(&harness, verb).await else {
        return skip("what_a_range_stands_for_is_not_requeued", REASON);
    };
    assert_eq!(carry(&relay, 100).await.rows, 2);
    let state = harness.request(request).await.expect("the request is known");
    assert_eq!((state.done, state.skipped), (1, 1), "the range has passed the first");
    assert_eq!(counts(&relay).await, Counts { retrying: 2, ..Counts::default() });
}

/// INV-1: what a range stood for is read again, also if the target of the rewind lies behind it, and no range is left that
/// would be read once more.
pub async fn a_rewind_goes_back_before_its_ranges<H: StoreHarness>() {
    let harness = H::start().await;
    let mut relay = Relay::start(&harness).await;
    if !relay.source.capabilities().ranges {
        return skip("a_rewind_goes_back_before_its_ranges", NONE_KEPT);
    }
    let events: Vec<_> = (0..3).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    harness.pass(harness.unit()).await;
    let to = harness.now().await;
    harness.pass(harness.unit()).await;
    let later: Vec<_> = (3..5).map(|n| event("1", n)).collect();
    harness.commit(later.clone()).await.expect("commit");
    let events = [events, later].concat();
    let ranged = open(&relay, &events, LONG).await;
    let verb = Verb::Rewind { destination: a(), to: Start::At(to) };
    if ask(&harness, verb).await.is_none() {
        return skip("a_rewind_goes_back_before_its_ranges", REASON);
    }
    let done = carry(&relay, 1_000).await;
    assert!(done.surrendered.contains(&ranged.lease), "{done:?}");
    take_again(&mut relay, &done.surrendered).await;
    let own = relay.leases.iter().find(|own| own.partition == ranged.lease.partition);
    assert_eq!(told(&relay, own.expect("taken again"), &a()).await, []);
    let read = relay.drain(&a()).await;
    assert!(read.ends_with(&ids(&events[1..])), "{read:?} of {:?}", ids(&events));
}

/// Only removing frees what a destination's ranges held.
pub async fn a_removed_destination_takes_its_ranges_along<H: StoreHarness>() {
    let harness = H::start().await;
    let mut relay = Relay::start(&harness).await;
    let capabilities = relay.source.capabilities();
    if !capabilities.ranges || !capabilities.many_destinations {
        return skip("a_removed_destination_takes_its_ranges_along", NONE_KEPT);
    }
    let (events, ranged) = commit_and_open(&harness, &relay, 3).await;
    let remove = DefinitionChange { remove: vec![a()], ..DefinitionChange::default() };
    relay.source.apply(&remove).await.expect("apply");
    change(&relay, &ranged.lease, vec![ranged.moves(0, 1)]).await;
    let again = DefinitionChange {
        put: vec![(destination("a"), Start::Now)],
        ..DefinitionChange::default()
    };
    relay.source.apply(&again).await.expect("apply");
    relay.source.release(&relay.leases).await.expect("release");
    relay.leases.clear();
    relay.acquire(LONG).await;
    let own = relay.leases.iter().find(|own| own.partition == ranged.lease.partition);
    let own = own.expect("it took all");
    assert_eq!(told(&relay, own, &a()).await, [], "a new destination of the old name");
    pass_all(&harness, &relay).await;
    let gone = retirable(&relay, &retire(own, harness.unit())).await;
    if gone.is_empty() {
        return skip("a_removed_destination_takes_its_ranges_along", "the store retires nothing");
    }
    assert_eq!(gone, ids(&events));
}
