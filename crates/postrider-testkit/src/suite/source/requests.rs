//! Requests: what an operator asks for is carried out by the owner, once, and a key's order holds.

use std::time::Duration;

use postrider_core::Lease;
use postrider_core::operate::{Note, RequestId, RequestState, RowKey, Submission, Verb};
use postrider_core::source::{CarriedOut, CarryOutRequest, FetchedRow};
use postrider_core::waiting::{Counts, SettlementPart, WaitingChange};

use super::waiting::{counts, dead, park, retry};
use crate::suite::relay::{LONG, Relay, a, due, event, failed, ids, waits};
use crate::suite::{StoreHarness, skip};

pub(super) const REASON: &str = "the store takes no requests";

/// Asks for something; `None` if the store takes no requests.
pub(super) async fn ask<H: StoreHarness>(harness: &H, verb: Verb) -> Option<RequestId> {
    let note = Note::new("suite", "a case of the contract").expect("invariant: a valid note");
    let submission = Submission { verb, note };
    Some(harness.submit(&submission)?.await.expect("the request is written down"))
}

pub(super) fn rows(rows: &[&FetchedRow]) -> Vec<RowKey> {
    rows.iter().map(|row| RowKey { destination: a(), seq: row.row.seq }).collect()
}

/// Carries out at most so many rows with everything a relay owns.
pub(super) async fn carry(relay: &Relay, rows_max: u32) -> CarriedOut {
    let request = CarryOutRequest { leases: relay.leases.clone(), rows_max };
    relay.source.carry_out(&request).await.expect("carry out")
}

async fn state<H: StoreHarness>(harness: &H, id: RequestId) -> RequestState {
    harness.request(id).await.expect("the request is known")
}

async fn keys(relay: &Relay, lease: &Lease) -> Vec<u32> {
    let loaded = relay.source.load(lease, &a()).await.expect("load");
    loaded.waiting_keys.into_iter().map(|(_, count)| count).collect()
}

/// R096: a dead letter that holds its key comes out in its place, with what is parked behind it, and
/// its attempts start anew. Nothing happens before the owner carries it out.
pub async fn a_redriven_dead_letter_comes_out_in_its_place<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 3, dead(true)).await;
    let Some(request) = ask(&harness, Verb::Redrive(rows(&[&fetched[0]]))).await else {
        return skip("a_redriven_dead_letter_comes_out_in_its_place", REASON);
    };
    assert_eq!(relay.due(&lease).await, [], "asked for, and not carried out");
    assert!(!state(&harness, request).await.finished);
    let done = carry(&relay, 100).await;
    assert_eq!((done.rows, done.more), (1, false));
    assert_eq!(done.touched, [(lease.partition, a())]);
    assert_eq!(done.freed, [], "it holds its key as before");
    let due = relay.source.due(&due(&lease)).await.expect("due");
    let read: Vec<_> = due.rows.iter().map(|row| row.row.id).collect();
    assert_eq!(read, ids(&events));
    assert_eq!((due.rows[0].attempts, due.rows[0].late), (0, false));
    let state = state(&harness, request).await;
    assert_eq!((state.total, state.done, state.skipped, state.finished), (1, 1, 0, true));
    assert_eq!(state.verb, "redrive");
    assert_eq!(keys(&relay, &lease).await, [3]);
}

/// R096: a dead letter whose key went on is out of its place: it is marked so, and holds nothing up.
pub async fn a_redriven_dead_letter_that_let_its_key_pass_is_late<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 3, dead(false)).await;
    if ask(&harness, Verb::Redrive(rows(&[&fetched[0]]))).await.is_none() {
        return skip("a_redriven_dead_letter_that_let_its_key_pass_is_late", REASON);
    }
    let done = carry(&relay, 100).await;
    assert_eq!(done.freed, [], "it held nothing");
    let due = relay.source.due(&due(&lease)).await.expect("due");
    let late: Vec<_> = due.rows.iter().filter(|row| row.late).map(|row| row.row.id).collect();
    let rest: Vec<_> = due.rows.iter().filter(|row| !row.late).map(|row| row.row.id).collect();
    assert_eq!((late, rest), (ids(&events[..1]), ids(&events[1..])));
    assert_eq!(keys(&relay, &lease).await, [2], "it does not hold its key");
}

/// A row that changed since it was counted is left alone, and said to be.
pub async fn what_is_not_dead_any_more_is_not_redriven<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 3, retry(Duration::ZERO)).await;
    let before = counts(&relay).await;
    let verb = Verb::Redrive(rows(&[&fetched[0], &fetched[1]]));
    let Some(request) = ask(&harness, verb).await else {
        return skip("what_is_not_dead_any_more_is_not_redriven", REASON);
    };
    let discard = ask(&harness, Verb::Discard(rows(&[&fetched[0]]))).await.expect("as before");
    let done = carry(&relay, 100).await;
    assert_eq!((done.rows, done.freed.len()), (3, 0));
    for (id, skipped) in [(request, 2), (discard, 1)] {
        let state = state(&harness, id).await;
        assert_eq!((state.done, state.skipped, state.finished), (0, skipped, true));
    }
    assert_eq!(counts(&relay).await, before);
    assert_eq!(relay.due(&lease).await, ids(&events), "what may be under way is not touched");
}

/// R093: the next of the key comes out when a dead letter is let go, and the owner hears that the
/// key is held by one event less.
pub async fn a_discarded_head_lets_its_key_go_on<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 3, dead(true)).await;
    if ask(&harness, Verb::Discard(rows(&[&fetched[0]]))).await.is_none() {
        return skip("a_discarded_head_lets_its_key_go_on", REASON);
    }
    let done = carry(&relay, 100).await;
    assert_eq!(done.freed, [(lease.partition, a(), fetched[0].key_hash)]);
    assert_eq!(done.touched, [(lease.partition, a())]);
    assert_eq!(relay.due(&lease).await, ids(&events[1..]));
    let expected = Counts { retrying: 1, parked: 1, ..Counts::default() };
    assert_eq!(counts(&relay).await, expected);
    assert_eq!(keys(&relay, &lease).await, [2]);
}

/// R093: a dead letter in the middle of a key is let go, and what is before it still holds the key.
pub async fn a_discard_in_the_middle_keeps_the_rest_parked<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, fetched) = park(&harness, &relay, 1, dead(true)).await;
    let more = [event("1", 10), event("1", 11)];
    harness.commit(more.to_vec()).await.expect("commit");
    let (_, second) = relay.find(more[0].event().id).await;
    let (_, third) = relay.find(more[1].event().id).await;
    let mut part = SettlementPart::new(a());
    part.waiting.push(waits(&second, dead(true)));
    part.waiting.push(waits(&third, retry(Duration::ZERO)));
    relay.settle(&lease, part).await.expect("settle");
    if ask(&harness, Verb::Discard(rows(&[&second]))).await.is_none() {
        return skip("a_discard_in_the_middle_keeps_the_rest_parked", REASON);
    }
    let done = carry(&relay, 100).await;
    assert_eq!(done.freed, [(lease.partition, a(), second.key_hash)]);
    assert_eq!(relay.due(&lease).await, [], "{:?} still holds the key", events[0].event().id);
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    assert!(loaded.waiting_ahead.contains(&second.row.seq), "or a crash would bring it back");
    ask(&harness, Verb::Discard(rows(&[&fetched[0]]))).await.expect("as before");
    carry(&relay, 100).await;
    assert_eq!(relay.due(&lease).await, ids(&more[1..]));
    assert_eq!(keys(&relay, &lease).await, [1]);
}

/// R098: an event that was settled is sent once more, late, and holds nobody up. One that waits, or
/// that the cursor has not passed, comes by itself.
pub async fn a_requeued_event_is_sent_again_late<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let sent = event("1", 1);
    harness.commit(vec![sent.clone()]).await.expect("commit");
    let (lease, row) = relay.find(sent.event().id).await;
    relay.drain(&a()).await;
    let (_, _, waiting) = park(&harness, &relay, 1, dead(true)).await;
    let ahead = event("1", 2);
    harness.commit(vec![ahead.clone()]).await.expect("commit");
    let (_, ahead) = relay.find(ahead.event().id).await;
    let verb = Verb::Requeue(rows(&[&row, &waiting[0], &ahead]));
    let Some(request) = ask(&harness, verb).await else {
        return skip("a_requeued_event_is_sent_again_late", REASON);
    };
    let done = carry(&relay, 100).await;
    assert_eq!((done.rows, done.freed.len()), (3, 0));
    let state = state(&harness, request).await;
    assert_eq!((state.done, state.skipped), (1, 2));
    let due = relay.source.due(&due(&lease)).await.expect("due");
    let read: Vec<_> = due.rows.iter().map(|row| (row.row, row.late, row.attempts)).collect();
    assert_eq!(read, [(row.row, true, 0)]);
    assert_eq!(due.rows[0].event.event_type, sent.event().event_type);
    assert_eq!(keys(&relay, &lease).await, [1], "the dead letter alone holds the key");
    let mut part = SettlementPart::new(a());
    part.changes.push(WaitingChange::Delivered(row.row));
    relay.settle(&lease, part).await.expect("settle");
    assert_eq!(counts(&relay).await, Counts { dead: 1, ..Counts::default() });
}

/// A request is carried out once, whoever asks again.
pub async fn a_request_is_carried_out_once<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, _, fetched) = park(&harness, &relay, 2, dead(true)).await;
    let Some(request) = ask(&harness, Verb::Redrive(rows(&[&fetched[0], &fetched[0]]))).await
    else {
        return skip("a_request_is_carried_out_once", REASON);
    };
    assert_eq!(carry(&relay, 100).await.rows, 1, "a row that is named twice is one");
    let gives_up =
        WaitingChange::Dead { row: fetched[0].row, attempted: failed(10), holds_key: true };
    let mut part = SettlementPart::new(a());
    part.changes.push(gives_up);
    relay.settle(&lease, part).await.expect("settle");
    let again = carry(&relay, 100).await;
    assert_eq!((again.rows, again.touched.len(), again.more), (0, 0, false));
    assert_eq!(relay.due(&lease).await, [], "dead again, and not redriven again");
    assert_eq!(state(&harness, request).await.done, 1);
}

/// R114: who lost its lease changes nothing, and what was asked for is left to the new owner.
pub async fn a_late_owner_carries_out_nothing<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (_, events, fetched) = park(&harness, &relay, 2, dead(true)).await;
    let Some(request) = ask(&harness, Verb::Redrive(rows(&[&fetched[0]]))).await else {
        return skip("a_late_owner_carries_out_nothing", REASON);
    };
    relay.source.release(&relay.leases).await.expect("release");
    let mut next = Relay::idle(&harness).await;
    next.acquire(LONG).await;
    let late = carry(&relay, 100).await;
    assert_eq!((late.rows, late.touched.len(), late.more), (0, 0, false));
    assert_eq!(state(&harness, request).await.done, 0);
    assert_eq!(counts(&next).await.dead, 1);
    assert_eq!(carry(&next, 100).await.rows, 1);
    let mut read = Vec::new();
    for lease in &next.leases {
        read.extend(next.due(lease).await);
    }
    assert_eq!(read, ids(&events));
}

/// INV-6: a large request is carried out in pieces, in order, and says that there is more.
pub async fn carrying_out_keeps_its_limit<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, _, fetched) = park(&harness, &relay, 1, dead(true)).await;
    let mut all = vec![fetched[0].clone()];
    let events: Vec<_> = (1..5).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    for event in &events {
        let (_, row) = relay.find(event.event().id).await;
        let mut part = SettlementPart::new(a());
        part.waiting.push(waits(&row, dead(true)));
        relay.settle(&lease, part).await.expect("settle");
        all.push(row);
    }
    let all: Vec<_> = all.iter().collect();
    let Some(request) = ask(&harness, Verb::Discard(rows(&all))).await else {
        return skip("carrying_out_keeps_its_limit", REASON);
    };
    for (expected, more, left) in [(2, true, 3), (2, true, 1), (1, false, 0)] {
        let done = carry(&relay, 2).await;
        assert_eq!((done.rows, done.freed.len()), (expected, expected as usize));
        assert_eq!(done.more, more, "with {left} left");
        assert_eq!(counts(&relay).await.dead, left);
    }
    assert!(state(&harness, request).await.finished);
}

/// What was asked first is done first.
pub async fn requests_are_carried_out_in_order<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, _, fetched) = park(&harness, &relay, 2, dead(true)).await;
    let Some(first) = ask(&harness, Verb::Discard(rows(&[&fetched[0]]))).await else {
        return skip("requests_are_carried_out_in_order", REASON);
    };
    let second = ask(&harness, Verb::Redrive(rows(&[&fetched[0]]))).await.expect("as before");
    assert_eq!(carry(&relay, 100).await.rows, 2);
    assert_eq!(state(&harness, first).await.done, 1);
    assert_eq!(state(&harness, second).await.skipped, 1, "it was gone by then");
    assert_eq!(relay.due(&lease).await, [fetched[1].row.id]);
}
