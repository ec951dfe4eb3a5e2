//! Reading from one place of a destination to a later one: all that lies between them, and nothing else.

use postrider_core::source::{FetchRequest, Page};
use postrider_core::waiting::{Passed, SettlementPart};
use postrider_core::{Cursor, EventId, Lease};

use super::ranges::NONE_KEPT;
use crate::suite::relay::{Relay, a, event, fetch, ids};
use crate::suite::{StoreHarness, skip};

const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// More pages than any way has here: each brings a row, or is the end of a stretch that a store reads at once.
const PAGES_MAX: usize = 100;

async fn page(
    relay: &Relay,
    lease: &Lease,
    after: &Cursor,
    until: Option<&Cursor>,
    rows_max: u32,
) -> Page {
    let request = fetch(lease, &a(), after.clone(), rows_max, BYTES_MAX);
    let request = FetchRequest { until: until.cloned(), ..request };
    let page = relay.source.fetch(&request).await.expect("fetch");
    assert!(page.rows.len() <= rows_max as usize, "a page keeps its limit");
    page
}

/// Reads from one place until another, in pages of so many rows, for as long as there is said to be more. Returns what was
/// read, and where the last page ended.
pub(super) async fn between(
    relay: &Relay,
    lease: &Lease,
    from: &Cursor,
    until: &Cursor,
    rows_max: u32,
) -> (Vec<EventId>, Cursor) {
    let (mut read, mut at) = (Vec::new(), from.clone());
    for _ in 0..PAGES_MAX {
        let page = page(relay, lease, &at, Some(until), rows_max).await;
        read.extend(page.rows.iter().map(|row| row.row.id));
        at = page.end;
        if !page.more {
            return (read, at);
        }
    }
    panic!("after {PAGES_MAX} pages there is still more");
}

/// Each place at which a destination's cursor stood, with how many events it had passed there.
struct Places {
    lease: Lease,
    read: Vec<EventId>,
    places: Vec<(usize, Cursor)>,
}

impl Places {
    /// Reads and settles all that there is, a page at a time.
    async fn go_on(&mut self, relay: &Relay) {
        loop {
            let from = self.places[self.places.len() - 1].1.clone();
            let page = page(relay, &self.lease, &from, None, 2).await;
            for row in &page.rows {
                self.read.push(row.row.id);
                self.places.push((self.read.len(), row.cursor.clone()));
            }
            if page.end == from {
                return;
            }
            if self.places[self.places.len() - 1].1 != page.end {
                self.places.push((self.read.len(), page.end.clone()));
            }
            let mut part = SettlementPart::new(a());
            part.passed = page.rows.iter().map(|row| (row.row, Passed::Acked)).collect();
            part.cursor = Some((from, page.end));
            relay.settle(&self.lease, part).await.expect("settle");
        }
    }
}

/// A destination that has read in several steps, also past a transaction that committed late, with more behind it that it
/// has not read. With the event that came late, if any.
async fn places<H: StoreHarness>(harness: &H, relay: &Relay) -> (Places, Option<EventId>) {
    let mut number = 0;
    let mut next = || {
        number += 1;
        event("1", number)
    };
    let first = next();
    harness.commit(vec![first.clone()]).await.expect("commit");
    let (lease, _) = relay.find(first.event().id).await;
    let start = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let mut places = Places { lease, read: Vec::new(), places: vec![(0, start)] };
    let mut late = None;
    if relay.source.capabilities().overlapping_writers {
        let event = next();
        let mut open = harness.begin().await.expect("begin");
        open.enqueue(vec![event.clone()]).await.expect("enqueue");
        late = Some((open, event.event().id));
    }
    let late_id = late.as_ref().map(|(_, id)| *id);
    for step in 0..3 {
        if step == 2
            && let Some((open, _)) = late.take()
        {
            open.commit().await.expect("commit");
        }
        harness.commit(vec![next(), next()]).await.expect("commit");
        places.go_on(relay).await;
    }
    harness.commit(vec![next(), next()]).await.expect("commit");
    (places, late_id)
}

/// INV-1: from each place at which a destination stood to each later one, in pages of any size, the store reads what the
/// destination passed between them, once, and says with the page that reaches the later place that there is no more.
pub async fn what_lies_between_two_places_is_read<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().ranges {
        return skip("what_lies_between_two_places_is_read", NONE_KEPT);
    }
    let relay = Relay::start(&harness).await;
    let (places, late) = places(&harness, &relay).await;
    assert!(places.read.len() >= 7 && places.places.len() > places.read.len() / 2);
    let sorted = |ids: &[EventId]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    // In which order one comes whose writer took no turns with the others of its key, nobody promises.
    let in_turn = |ids: &[EventId]| -> Vec<EventId> {
        ids.iter().filter(|id| Some(**id) != late).copied().collect()
    };
    for (n, (before, from)) in places.places.iter().enumerate() {
        for (through, until) in &places.places[n..] {
            let expected = &places.read[*before..*through];
            for rows_max in [1, 2, 1_000] {
                let (read, _) = between(&relay, &places.lease, from, until, rows_max).await;
                let what = format!("{from:?} until {until:?} by {rows_max}");
                assert_eq!(sorted(&read), sorted(expected), "{what}");
                assert_eq!(in_turn(&read), in_turn(expected), "{what}: in order");
            }
        }
    }
}

/// INV-1: the last page ends at the place it was to reach, neither before nor beyond it: nothing is left out or read twice
/// by who reads on from there.
pub async fn a_page_ends_where_it_was_to_end<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().ranges {
        return skip("a_page_ends_where_it_was_to_end", NONE_KEPT);
    }
    let relay = Relay::start(&harness).await;
    let (places, _) = places(&harness, &relay).await;
    let (lease, (_, start)) = (&places.lease, &places.places[0]);
    for (n, (through, until)) in places.places.iter().enumerate() {
        let (_, end) = between(&relay, lease, start, until, 3).await;
        for (passed, later) in &places.places[n..] {
            let (mut rest, _) = between(&relay, lease, &end, later, 3).await;
            let mut expected = places.read[*through..*passed].to_vec();
            rest.sort_unstable();
            expected.sort_unstable();
            assert_eq!(rest, expected, "from the end at {until:?} to {later:?}");
        }
    }
    let rest = relay.read_ids(&a()).await;
    assert_eq!(rest.len(), 2, "nothing of it moves the destination's cursor");
    assert!(!rest.iter().any(|id| places.read.contains(id)));
}

/// R038: what is to be read ends at a range's end also where a page could hold more, and one row at least comes of each page
/// that has any, however large.
pub async fn a_page_until_a_place_has_at_least_one_row<H: StoreHarness>() {
    let harness = H::start().await;
    if !harness.source().capabilities().ranges {
        return skip("a_page_until_a_place_has_at_least_one_row", NONE_KEPT);
    }
    let relay = Relay::start(&harness).await;
    let big = |n| event("1", n).bytes(vec![7u8; 10_000], "application/octet-stream");
    let events: Vec<_> = (0..4).map(big).collect();
    harness.commit(events.clone()).await.expect("commit");
    let (lease, _) = relay.find(events[0].event().id).await;
    let from = relay.source.load(&lease, &a()).await.expect("load").cursor;
    let rows = relay.read_from(&lease, &a(), from.clone(), 1_000).await;
    let (mut read, mut at) = (Vec::new(), from);
    for _ in 0..3 {
        let request = fetch(&lease, &a(), at, 1_000, 1);
        let request = FetchRequest { until: Some(rows[2].cursor.clone()), ..request };
        let page = relay.source.fetch(&request).await.expect("fetch");
        assert_eq!(page.rows.len(), 1, "one, and no more than fits");
        read.push(page.rows[0].row.id);
        at = page.end;
    }
    assert_eq!(read, ids(&events[..3]));
    let (rest, _) = between(&relay, &lease, &at, &rows[2].cursor, 1).await;
    assert_eq!(rest, []);
}
