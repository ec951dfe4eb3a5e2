//! Held events: their endpoint refuses all events of their type. They are told apart from those that are tried again,
//! and are due like them when their time has come.

use std::time::Duration;

use postrider_core::waiting::{
    Attempted, Counts, DisabledEndpoint, Placement, Reason, SettlementPart, WaitingChange,
};
use postrider_core::{EventId, Lease};

use super::waiting::{counts, dead, park, retry};
use crate::suite::StoreHarness;
use crate::suite::late::{Span, in_time};
use crate::suite::relay::{LONG, Relay, a, due, event, failed, ids, waits};

const TOPIC: &str = "https://gone.example/hook";

/// Attempts that nothing else here has.
const ATTEMPTS: u32 = 7;

const ONE_HELD: Counts = Counts { retrying: 0, parked: 0, held: 1, disabled: 0, dead: 0 };

fn refused() -> Attempted {
    Attempted { attempts: ATTEMPTS, reason: Reason::Held, detail: "401 who are you".to_owned() }
}

fn held(delay: Duration) -> Placement {
    Placement::Retry { delay, attempted: refused() }
}

async fn change(relay: &Relay, lease: &Lease, change: WaitingChange) {
    let mut part = SettlementPart::new(a());
    part.changes.push(change);
    relay.settle(lease, part).await.expect("settle");
}

/// The ids that are due, and the attempts of the first of them.
async fn due_now(relay: &Relay, lease: &Lease) -> (Vec<EventId>, Option<u32>) {
    let due = relay.source.due(&due(lease)).await.expect("due");
    let attempts = due.rows.first().map(|row| row.attempts);
    (due.rows.iter().map(|row| row.row.id).collect(), attempts)
}

/// A held event is counted as such, holds its key, and comes with what is behind it when its delay is over, not before.
pub async fn a_held_event_comes_at_its_time<H: StoreHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let relay = Relay::start(&harness).await;
        let unit = harness.unit() * times;
        let delay = unit * 6;
        let delayed = Span::begin(delay);
        let (lease, events, rows) = park(&harness, &relay, 2, held(delay)).await;
        assert_eq!(counts(&relay).await, Counts { parked: 1, ..ONE_HELD });
        let loaded = relay.source.load(&lease, &a()).await.expect("load");
        assert_eq!(loaded.waiting_keys, [(rows[0].key_hash, 2)], "it holds its key");
        let early = relay.source.due(&due(&lease)).await.expect("due");
        delayed.insist(early.rows.is_empty(), &early)?;
        let next_in = early.next_in.expect("it will be due");
        assert!(next_in <= delay, "{next_in:?}");
        harness.pass(delay + unit).await;
        let due = relay.source.due(&due(&lease)).await.expect("due");
        let read: Vec<_> = due.rows.iter().map(|row| row.row.id).collect();
        assert_eq!(read, ids(&events));
        let first = &due.rows[0];
        assert_eq!(
            (first.attempts, first.late, first.suspect, first.held),
            (ATTEMPTS, false, false, true)
        );
        assert_eq!(
            counts(&relay).await,
            Counts { parked: 1, ..ONE_HELD },
            "asking changes nothing"
        );
        Ok(())
    })
    .await;
}

/// A postponed event stays what it was, with its attempts.
pub async fn a_postponed_held_event_stays_held<H: StoreHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let relay = Relay::start(&harness).await;
        let (lease, events, rows) = park(&harness, &relay, 1, held(Duration::ZERO)).await;
        let unit = harness.unit() * times;
        let (row, delay) = (rows[0].row, unit * 6);
        assert_eq!(due_now(&relay, &lease).await, (ids(&events), Some(ATTEMPTS)));
        let delayed = Span::begin(delay);
        change(&relay, &lease, WaitingChange::Postpone { row, delay }).await;
        assert_eq!(counts(&relay).await, ONE_HELD);
        let early = relay.due(&lease).await;
        delayed.insist(early.is_empty(), &("not before its delay", early))?;
        harness.pass(delay + unit).await;
        assert_eq!(due_now(&relay, &lease).await, (ids(&events), Some(ATTEMPTS)));
        assert_eq!(counts(&relay).await, ONE_HELD);
        Ok(())
    })
    .await;
}

/// The reason of the last attempt says whether an event is held.
pub async fn the_last_attempt_says_what_is_held<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, rows) = park(&harness, &relay, 2, retry(Duration::ZERO)).await;
    let again =
        |attempted| WaitingChange::Retry { row: rows[0].row, delay: Duration::ZERO, attempted };
    let retried = Counts { retrying: 1, parked: 1, ..Counts::default() };
    for _ in 0..2 {
        change(&relay, &lease, again(refused())).await;
        assert_eq!(counts(&relay).await, Counts { parked: 1, ..ONE_HELD });
        assert_eq!(due_now(&relay, &lease).await, (ids(&events), Some(ATTEMPTS)));
        change(&relay, &lease, again(failed(2))).await;
        assert_eq!(counts(&relay).await, retried);
        assert_eq!(due_now(&relay, &lease).await, (ids(&events), Some(2)));
    }
}

/// INV-3: what follows of the key waits for a held event, though it enters later, and goes on when that was delivered.
pub async fn a_held_event_holds_what_follows<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events = [event("1", 0), event("1", 1), event("1", 2)];
    harness.commit(events.to_vec()).await.expect("commit");
    let (lease, first) = relay.find(events[0].event().id).await;
    let (_, second) = relay.find(events[1].event().id).await;
    let (_, third) = relay.find(events[2].event().id).await;
    let behind = Placement::Behind(Reason::Behind);
    let entering = [(&first, held(LONG)), (&second, behind), (&third, held(Duration::ZERO))];
    for (row, placement) in entering {
        let mut part = SettlementPart::new(a());
        part.waiting.push(waits(row, placement));
        relay.settle(&lease, part).await.expect("settle");
    }
    assert_eq!(relay.due(&lease).await, [], "nothing overtakes");
    assert_eq!(counts(&relay).await, Counts { parked: 2, ..ONE_HELD });
    change(&relay, &lease, WaitingChange::Delivered(first.row)).await;
    let retried = Counts { retrying: 1, parked: 1, ..Counts::default() };
    assert_eq!(counts(&relay).await, retried, "the next is promoted, to be tried at once");
    assert_eq!(relay.due(&lease).await, ids(&events[1..]));
}

/// INV-3: a held event is parked behind an earlier one of its key that enters, and comes out again with that.
pub async fn an_event_that_enters_before_a_held_one_parks_it<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let events = [event("1", 0), event("1", 1), event("1", 2)];
    harness.commit(events.to_vec()).await.expect("commit");
    let (lease, first) = relay.find(events[0].event().id).await;
    let (_, second) = relay.find(events[1].event().id).await;
    let (_, third) = relay.find(events[2].event().id).await;
    let enter = |row, placement| {
        let mut part = SettlementPart::new(a());
        part.waiting.push(waits(row, placement));
        part
    };
    relay.settle(&lease, enter(&third, held(Duration::ZERO))).await.expect("settle");
    assert_eq!(relay.due(&lease).await, ids(&events[2..]));
    relay.settle(&lease, enter(&second, held(Duration::ZERO))).await.expect("settle");
    assert_eq!(relay.due(&lease).await, ids(&events[1..]), "one run");
    assert_eq!(counts(&relay).await, Counts { parked: 1, ..ONE_HELD });
    relay.settle(&lease, enter(&first, dead(true))).await.expect("settle");
    assert_eq!(relay.due(&lease).await, [], "nothing overtakes a dead letter");
    let parked = Counts { dead: 1, parked: 2, ..Counts::default() };
    assert_eq!(counts(&relay).await, parked);
}

/// Whatever becomes of a retried event becomes of a held one: erased, given up, set aside for its endpoint.
pub async fn a_held_event_leaves_like_another<H: StoreHarness>() {
    let harness = H::start().await;
    let relay = Relay::start(&harness).await;
    let (lease, events, rows) = park(&harness, &relay, 4, held(Duration::ZERO)).await;
    let hold =
        |n: usize| WaitingChange::Retry { row: rows[n].row, delay: LONG, attempted: refused() };
    change(&relay, &lease, WaitingChange::Erased(rows[0].row)).await;
    assert_eq!(relay.due(&lease).await, ids(&events[1..]));
    change(&relay, &lease, hold(1)).await;
    assert_eq!(relay.due(&lease).await, []);
    assert_eq!(counts(&relay).await, Counts { parked: 2, ..ONE_HELD });
    let row = rows[1].row;
    let gives_up = WaitingChange::Dead { row, attempted: failed(10), holds_key: false };
    change(&relay, &lease, gives_up).await;
    assert_eq!(relay.due(&lease).await, ids(&events[2..]));
    change(&relay, &lease, hold(2)).await;
    let mut part = SettlementPart::new(a());
    part.disabled.push(DisabledEndpoint { topic: TOPIC.into(), detail: "410 Gone".to_owned() });
    let attempted = Attempted { attempts: 0, reason: Reason::Disabled, detail: String::new() };
    let row = rows[2].row;
    part.changes.push(WaitingChange::Disabled { row, endpoint: TOPIC.into(), attempted });
    relay.settle(&lease, part).await.expect("settle");
    assert_eq!(relay.due(&lease).await, []);
    let expected = Counts { dead: 1, disabled: 1, parked: 1, ..Counts::default() };
    assert_eq!(counts(&relay).await, expected);
}
