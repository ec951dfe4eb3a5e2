//! Entering `waiting`: a key's events wait in order, and nothing else waits with them.

use std::time::Duration;

use postrider_core::source::{DueRequest, FetchedRow};
use postrider_core::waiting::{Counts, Passed, Placement, Reason, SettlementPart};
use postrider_core::{Lease, NewEvent};

use crate::suite::late::{Span, in_time};
use crate::suite::relay::{LONG, Relay, a, due, event, failed, ids, pass, waits};
use crate::suite::{StoreHarness, skip};

/// Commits so many events of key `order/1`, and settles them all as waiting: the first as placed,
/// the others behind it.
pub(super) async fn park<H: StoreHarness>(
    harness: &H,
    relay: &Relay,
    count: u32,
    first: Placement,
) -> (Lease, Vec<NewEvent>, Vec<FetchedRow>) {
    let events: Vec<_> = (0..count).map(|n| event("1", n).json(&n).expect("JSON")).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    let from = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows = relay.read_from(&lease, &a(), from.clone(), 1_000).await;
    let last = rows.last().expect("just committed").clone();
    let mut part = pass(&a(), from, &rows, &last, Passed::Waiting);
    let mut placement = Some(first);
    for row in &rows {
        let placement = placement.take().unwrap_or(Placement::Behind(Reason::Behind));
        part.waiting.push(waits(row, placement));
    }
    relay.settle(&lease, part).await.expect("settle");
    (lease, events, rows)
}

pub(super) fn retry(delay: Duration) -> Placement {
    Placement::Retry { delay, attempted: failed(1) }
}

pub(super) fn dead(holds_key: bool) -> Placement {
    Placement::Dead { attempted: failed(10), holds_key }
}

pub(super) async fn counts(relay: &Relay) -> Counts {
    relay.source.counts(&a()).await.expect("counts")
}

/// R093: when an event fails, its successors wait behind it, and come as one run in order; the
/// cursor has passed them all.
pub async fn events_of_a_failed_key_wait_in_order<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, rows) = park(&harness, &relay, 3, retry(Duration::ZERO)).await;
    let expected = Counts { retrying: 1, parked: 2, ..Counts::default() };
    assert_eq!(counts(&relay).await, expected);
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    assert_eq!(loaded.waiting_keys, [(rows[0].key_hash, 3)]);
    assert_eq!(loaded.waiting_ahead, [] as [u64; 0]);
    assert_eq!(relay.read_ids(&a()).await, [], "the cursor has passed");
    let due = relay.source.due(&due(&lease)).await.expect("due");
    let read: Vec<_> = due.rows.iter().map(|row| row.row.id).collect();
    assert_eq!(read, ids(&events));
    for (row, sent) in due.rows.iter().zip(&events) {
        assert_eq!(row.event.payload, sent.event().payload, "the event is kept whole");
        assert_eq!(row.key_hash, sent.event().key_hash());
        assert!(!row.late);
    }
}

/// An event that enters before others of its key which are due already parks them: whatever entered
/// early, nothing overtakes.
pub async fn an_event_that_enters_before_others_parks_them<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events: Vec<_> = (0..3).map(|n| event("1", n)).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    let from = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows = relay.read_from(&lease, &a(), from, 1_000).await;
    let enter = |index: usize, placement| {
        let mut part = SettlementPart::new(a());
        part.waiting.push(waits(&rows[index], placement));
        part
    };
    let behind = Placement::Behind(Reason::Behind);
    relay.settle(&lease, enter(1, behind.clone())).await.expect("settle");
    relay.settle(&lease, enter(2, behind)).await.expect("settle");
    assert_eq!(relay.due(&lease).await, ids(&events[1..]), "nothing is before them yet");
    relay.settle(&lease, enter(0, dead(true))).await.expect("settle");
    assert_eq!(relay.due(&lease).await, []);
    let expected = Counts { dead: 1, parked: 2, ..Counts::default() };
    assert_eq!(counts(&relay).await, expected);
}

/// R093: a retry comes when its delay is over, by the store's clock, and not before.
pub async fn a_retry_is_due_after_its_delay<H: StoreHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let relay = Relay::start(&harness).await;
        let unit = harness.unit() * times;
        let delay = unit * 6;
        let delayed = Span::begin(delay);
        let (lease, events, _) = park(&harness, &relay, 2, retry(delay)).await;
        let early = relay.source.due(&due(&lease)).await.expect("due");
        delayed.insist(early.rows.is_empty(), &early)?;
        let next_in = early.next_in.expect("one will be due");
        assert!(next_in <= delay, "{next_in:?}");
        harness.pass(delay + unit).await;
        assert_eq!(relay.due(&lease).await, ids(&events));
        Ok(())
    })
    .await;
}

/// R122: after a dead letter that holds its key nothing of the key is due, however long one waits;
/// another key is not concerned.
pub async fn a_dead_letter_parks_its_key<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, ..) = park(&harness, &relay, 3, dead(true)).await;
    let expected = Counts { dead: 1, parked: 2, ..Counts::default() };
    assert_eq!(counts(&relay).await, expected);
    harness.pass(harness.unit() * 2).await;
    let due = relay.source.due(&due(&lease)).await.expect("due");
    assert_eq!((due.rows.len(), due.next_in), (0, None));
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    assert_eq!(loaded.waiting_keys.len(), 1, "the key is held");
    assert_eq!(loaded.waiting_keys[0].1, 3);
    let other = event("2", 1);
    harness.commit(vec![other.clone()]).await.expect("commit");
    assert_eq!(relay.drain(&a()).await, ids(&[other]));
}

/// R122: with the policy `skip` the successors flow.
pub async fn a_dead_letter_that_lets_its_key_pass_parks_nobody<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, _) = park(&harness, &relay, 3, dead(false)).await;
    assert_eq!(relay.due(&lease).await, ids(&events[1..]));
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    assert_eq!(loaded.waiting_keys.len(), 1);
    assert_eq!(loaded.waiting_keys[0].1, 2, "the dead letter does not count");
}

/// Whatever state an event waits in, meeting it again changes nothing.
pub async fn an_event_that_waits_is_not_replaced<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, _, rows) = park(&harness, &relay, 2, dead(true)).await;
    let before = counts(&relay).await;
    let mut part = SettlementPart::new(a());
    part.waiting.push(waits(&rows[0], retry(Duration::ZERO)));
    part.waiting.push(waits(&rows[1], dead(false)));
    relay.settle(&lease, part).await.expect("settle");
    assert_eq!(counts(&relay).await, before);
    assert_eq!(relay.due(&lease).await, []);
}

/// After a crash the owner must know which events it fetches again wait already.
pub async fn what_waits_before_the_cursor_passed_is_told<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events = [event("1", 1), event("1", 2)];
    harness.commit(events.to_vec()).await.expect("commit");
    let (lease, first) = relay.find(events[0].event().id).await;
    let mut part = SettlementPart::new(a());
    part.waiting.push(waits(&first, retry(LONG)));
    relay.settle(&lease, part).await.expect("settle");
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    assert_eq!(loaded.waiting_ahead, [first.row.seq]);
    assert_eq!(loaded.waiting_keys, [(first.key_hash, 1)]);
    assert_eq!(relay.read_ids(&a()).await.len(), 2, "the cursor has passed nothing");
    relay.drain(&a()).await;
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    assert_eq!(loaded.waiting_ahead, [] as [u64; 0], "the cursor has passed it");
    assert_eq!(loaded.waiting_keys.len(), 1, "and it waits");
}

/// R019: attempts are rows, so a restart does not forget.
pub async fn waiting_events_survive_a_takeover<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (_, events, _) = park(&harness, &relay, 3, retry(Duration::ZERO)).await;
    relay.source.release(&relay.leases).await.expect("release");
    let mut next = Relay::idle(&harness).await;
    next.acquire(LONG).await;
    let mut read = Vec::new();
    for lease in &next.leases {
        let due = next.source.due(&due(lease)).await.expect("due");
        read.extend(due.rows);
    }
    let read_ids: Vec<_> = read.iter().map(|row| row.row.id).collect();
    assert_eq!(read_ids, ids(&events));
    assert_eq!(read[0].attempts, 1);
}

/// R071: an event of a key is under way at most once.
pub async fn keys_under_way_are_not_due<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, rows) = park(&harness, &relay, 2, retry(Duration::ZERO)).await;
    let request = DueRequest { except: vec![rows[0].key_hash], ..due(&lease) };
    let due = relay.source.due(&request).await.expect("due");
    assert_eq!(due.rows, []);
    assert_eq!(relay.due(&lease).await, ids(&events), "asking changes nothing");
}

/// INV-6: what is due comes within limits, at least one event, from the front of its run.
pub async fn what_is_due_keeps_its_limits<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, _) = park(&harness, &relay, 5, retry(Duration::ZERO)).await;
    for (rows_max, bytes_max, most) in [(2, u64::MAX / 4, 2), (100, 1, 1)] {
        let request = DueRequest { rows_max, bytes_max, ..due(&lease) };
        let due = relay.source.due(&request).await.expect("due");
        let read: Vec<_> = due.rows.iter().map(|row| row.row.id).collect();
        assert!(!read.is_empty() && read.len() <= most, "{read:?}");
        assert_eq!(read, ids(&events[..read.len()]));
    }
}

/// A row that cannot be read becomes a dead letter all the same, and holds its key if told so.
pub async fn a_malformed_row_can_be_a_dead_letter<H: StoreHarness>() {
    let harness = H::start().await;
    let Some(inserted) = harness.insert_malformed() else {
        return skip("a_malformed_row_can_be_a_dead_letter", "nobody can insert a malformed row");
    };
    inserted.await.expect("insert");
    let relay = Relay::start(&harness).await;
    let (lease, row) = relay.read(&a()).await.remove(0);
    assert!(row.event.is_err());
    let from = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows = [row.clone()];
    let mut part = pass(&a(), from, &rows, &row, Passed::Waiting);
    part.waiting.push(waits(&row, dead(true)));
    relay.settle(&lease, part).await.expect("settle");
    assert_eq!(counts(&relay).await.dead, 1);
    assert_eq!(relay.read_ids(&a()).await, []);
    assert_eq!(relay.due(&lease).await, []);
    let loaded = relay.source.load(&lease, &a()).await.expect("load");
    assert_eq!(loaded.waiting_keys.len(), 1);
}
