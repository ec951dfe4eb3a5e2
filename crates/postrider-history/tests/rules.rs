//! The rules of the checker: what it accepts, what it refuses, and that it cannot be fooled by the
//! order of other keys.

use postrider_core::{EventId, Invariant};
use postrider_history::{Delay, History, Progress, Record, Standing, check};
use proptest::prelude::*;

fn id(n: u128) -> EventId {
    EventId::from_u128(n)
}

fn broken(history: &History) -> Vec<Invariant> {
    check(history).broken()
}

/// A run in which everything happened and nothing was broken.
fn good() -> History {
    let mut history = History::new();
    history.commit_for(id(1), "order/1", &["kafka", "webhook"]);
    history.commit_for(id(2), "order/1", &["kafka"]);
    history.commit_for(id(3), "order/1", &[]);
    history.commit(id(4), "order/2");
    history.roll_back(id(5));
    for event in [1, 2, 2, 4] {
        history.ack("kafka", id(event));
        history.deliver("kafka", id(event));
        history.published("kafka", id(event));
    }
    history.wait("webhook", id(1), Standing::Dead, true);
    history.effect("/shop", id(1), "billing");
    history.effect("/shop", id(1), "shipping");
    history.effect("/warehouse", id(1), "billing");
    history.gauge("window_bytes", 16, 16);
    history.progress(progress(7, false, Some("breaker of kafka")));
    history.delay(delay(9_000, true));
    history.delay(delay(10, false));
    history
}

fn progress(backlog: u64, moved: bool, blocker: Option<&str>) -> Progress {
    Progress {
        destination: "kafka".to_owned(),
        backlog,
        moved,
        broker_healthy: true,
        blocker: blocker.map(str::to_owned),
    }
}

fn delay(delay_ms: u64, afflicted: bool) -> Delay {
    Delay { destination: "kafka".to_owned(), id: id(4), delay_ms, bound_ms: 1_000, afflicted }
}

#[test]
fn a_good_run_breaks_nothing_and_is_judged_on_everything() {
    let verdict = check(&good());
    assert!(verdict.holds(), "{verdict}");
    for invariant in Invariant::ALL {
        assert!(verdict.judged(invariant) > 0, "{invariant} was not judged");
    }
    let ledger = good().ledger();
    assert_eq!((ledger.committed, ledger.delivered), (4, 3));
    assert_eq!((ledger.duplicates_absorbed, ledger.effects), (1, 3));
    assert_eq!((ledger.lost, ledger.ghosts, ledger.order_violations), (0, 0, 0));
    assert_eq!(ledger.dead_lettered, 1);
    assert!(ledger.is_clean());
}

#[test]
fn each_broken_promise_is_found_with_its_own_invariant() {
    let mut lost = good();
    lost.commit_for(id(6), "order/3", &["kafka", "webhook"]);
    lost.deliver("kafka", id(6));
    let mut ghost = good();
    ghost.deliver("kafka", id(5));
    let mut order = good();
    order.commit(id(6), "order/2");
    order.commit(id(7), "order/2");
    order.deliver("kafka", id(7));
    order.deliver("kafka", id(6));
    let mut effect = good();
    effect.effect("/shop", id(1), "billing");
    let mut isolation = good();
    isolation.delay(delay(1_001, false));
    let mut unbounded = good();
    unbounded.gauge("window_bytes", 17, 16);
    let mut untrue = good();
    untrue.published("webhook", id(1));
    let mut stalled = good();
    stalled.progress(progress(1, false, None));
    let broken_runs = [lost, ghost, order, effect, isolation, unbounded, untrue, stalled];
    for (history, invariant) in broken_runs.iter().zip(Invariant::ALL) {
        assert_eq!(broken(history), [invariant], "{}", check(history));
    }
}

#[test]
fn a_claim_before_its_acknowledgement_is_untrue() {
    let mut history = History::new();
    history.commit(id(1), "order/1");
    history.published("kafka", id(1));
    history.ack("kafka", id(1));
    history.deliver("kafka", id(1));
    assert_eq!(broken(&history), [Invariant::Truth]);
}

#[test]
fn a_late_delivery_is_the_only_exception_to_order() {
    for late in [true, false] {
        let mut history = History::new();
        history.commit(id(1), "order/1");
        history.commit(id(2), "order/1");
        history.deliver("kafka", id(2));
        history.deliver_as("kafka", id(1), late);
        assert_eq!(check(&history).holds(), late);
    }
}

#[test]
fn nothing_passes_a_dead_letter_that_holds_its_key() {
    for holds_key in [true, false] {
        let mut history = History::new();
        history.commit(id(1), "order/1");
        history.commit(id(2), "order/1");
        history.commit(id(3), "order/2");
        history.wait("kafka", id(1), Standing::Dead, holds_key);
        history.deliver("kafka", id(2));
        history.deliver("kafka", id(3));
        let expected: &[Invariant] = if holds_key { &[Invariant::KeyOrder] } else { &[] };
        assert_eq!(broken(&history), expected);
        assert_eq!(history.ledger().order_violations, u64::from(holds_key));
    }
}

#[test]
fn a_copy_may_come_in_any_order() {
    let mut history = History::new();
    history.commit(id(1), "order/1");
    history.commit(id(2), "order/1");
    for event in [1, 2, 1, 2, 1] {
        history.deliver("kafka", id(event));
    }
    assert!(check(&history).holds());
    assert_eq!(history.ledger().duplicates_absorbed, 3);
}

#[test]
fn an_unserialised_writer_has_no_order() {
    let mut history = History::new();
    history.commit(id(1), "order/1");
    history.commit_as(id(2), "order/1", |commit| commit.unserialised = true);
    history.deliver("kafka", id(2));
    history.deliver("kafka", id(1));
    assert!(check(&history).holds());
}

#[test]
fn an_empty_history_proves_nothing_and_says_so() {
    let verdict = check(&History::new());
    assert!(verdict.holds());
    assert!(Invariant::ALL.iter().all(|i| verdict.judged(*i) == 0));
}

#[test]
fn a_history_survives_being_written_down() {
    let history = good();
    let text = history.to_json_lines().unwrap();
    assert_eq!(text.lines().count(), history.records().len());
    assert!(text.starts_with(r#"{"kind":"commit""#), "{text}");
    assert_eq!(History::from_json_lines(&text).unwrap(), history);
    let broken = format!("{text}\nnot a record\n");
    let error = History::from_json_lines(&broken).unwrap_err().to_string();
    assert!(error.contains(&format!("line {}", history.records().len() + 2)), "{error}");
    let ledger = serde_json::to_string(&history.ledger()).unwrap();
    let fields = r#"{"committed":4,"delivered":3,"duplicates_absorbed":1,"effects":3,"lost":0,"ghosts":0,"order_violations":0,"dead_lettered":1}"#;
    assert_eq!(ledger, fields);
}

/// So many events over so many keys, committed in turn.
fn committed(keys: usize, events: usize) -> History {
    let mut history = History::new();
    for n in 0..events {
        history.commit(id(n as u128 + 1), &format!("order/{}", n % keys));
    }
    history
}

/// An interleaving of the keys that keeps each key's own order, drawn from the choices.
fn interleave(keys: usize, events: usize, choices: &[usize]) -> Vec<EventId> {
    let mut queues: Vec<Vec<EventId>> = vec![Vec::new(); keys];
    for n in (0..events).rev() {
        queues[n % keys].push(id(n as u128 + 1));
    }
    let mut order = Vec::new();
    for choice in choices.iter().cycle() {
        let open: Vec<usize> = (0..keys).filter(|key| !queues[*key].is_empty()).collect();
        if open.is_empty() {
            break;
        }
        order.extend(queues[open[choice % open.len()]].pop());
    }
    order
}

proptest! {
    /// R068: order is per key; whatever happens between keys breaks nothing.
    #[test]
    fn shuffling_different_keys_breaks_nothing(
        keys in 1usize..6,
        events in 1usize..40,
        choices in prop::collection::vec(0usize..60, 1..40),
    ) {
        let mut history = committed(keys, events);
        for id in interleave(keys, events, &choices) {
            history.deliver("kafka", id);
        }
        let verdict = check(&history);
        prop_assert!(verdict.holds(), "{}", verdict);
        prop_assert_eq!(history.ledger().delivered, events as u64);
    }

    /// R068: two events of one key that change places are always found, wherever they are.
    #[test]
    fn swapping_two_of_a_key_is_always_found(
        keys in 1usize..6,
        events in 12usize..40,
        choices in prop::collection::vec(0usize..60, 1..40),
        key in 0usize..6,
        pair in (0usize..10, 0usize..10),
    ) {
        let mut order = interleave(keys, events, &choices);
        let own: Vec<usize> = (0..order.len())
            .filter(|at| (order[*at].as_u128() as usize - 1) % keys == key % keys)
            .collect();
        let (a, b) = (pair.0 % own.len(), pair.1 % own.len());
        prop_assume!(a != b);
        order.swap(own[a], own[b]);
        let mut history = committed(keys, events);
        for id in order {
            history.deliver("kafka", id);
        }
        prop_assert_eq!(check(&history).broken(), vec![Invariant::KeyOrder]);
    }

    /// The verdict depends on the orders given, not on the order in which facts were recorded.
    #[test]
    fn the_order_of_recording_does_not_matter(seed in 0usize..1000) {
        let history = good();
        let mut records: Vec<Record> = history.records().to_vec();
        let length = records.len();
        for at in 0..length {
            records.swap(at, (at * 7 + seed) % length);
        }
        let mut shuffled = History::new();
        shuffled.extend(records);
        prop_assert_eq!(check(&shuffled), check(&history));
        prop_assert_eq!(shuffled.ledger(), history.ledger());
    }
}
