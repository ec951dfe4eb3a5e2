//! Failures: who is to blame, what counts, what comes again.

use std::time::Duration;

use postrider_core::{BrokerCapabilities, ErrorKind, Fault, OutboxSource, Outcome};
use postrider_relay::Target;
use postrider_testkit::fault::{BrokerAction, Gate, Operation, SourceAction};

use crate::world::{World, event, everything, id, now};

fn unavailable() -> Outcome {
    Outcome::Retry { fault: Fault::new(ErrorKind::Unavailable, "503"), after: None }
}

/// R005, F9: an answer that is lost counts as not published, and the same id comes again.
#[test]
fn a_lost_answer_means_another_delivery_of_the_same_id() {
    let mut world = World::simple();
    world.commit((0..10).map(|key| event(key, 0)).collect());
    let broker = &world.place("all").broker;
    broker.script.then([BrokerAction::FailAfter(ErrorKind::Timeout)]);
    world.start(Target::Once);
    world.run_until(Duration::from_secs(30), |world| world.ending(0).is_some());
    let received = world.place("all").memory.received("order.changed");
    assert!(received.len() > 10, "the first batch was stored and sent again");
    assert_eq!(world.delivered("all"), 10);
}

/// R120: only what failed of a batch is sent again.
#[test]
fn only_the_failed_entries_of_a_batch_are_sent_again() {
    let mut world = World::simple();
    let events: Vec<_> = (0..10).map(|key| event(key, 0)).collect();
    let failing = events[3].event().id;
    world.place("all").broker.answer([failing], &unavailable());
    world.commit(events);
    world.start(Target::Forever);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.delivered("all"), 9);
    world.place("all").broker.relent();
    world.run_for(Duration::from_secs(10));
    assert_eq!((world.delivered("all"), world.duplicates("all")), (10, 0));
}

/// INV-8: a server that is gone for a moment takes all batches along that are under way. That is one failure, whose pause is
/// the first one, and not eight in a row.
#[test]
fn what_was_under_way_together_fails_together() {
    let mut capabilities = BrokerCapabilities::least();
    (capabilities.durable, capabilities.batch_rows_max) = (true, 5);
    (capabilities.batches_in_flight_max, capabilities.endpoint_batches_max) = (8, 8);
    let mut world = World::simple();
    world.places.clear();
    world.add_place_with(everything("all"), capabilities);
    let broker = &world.place("all").broker;
    broker.script.then((0..8).map(|_| BrokerAction::RetryNamed { after: None }));
    world.commit((0..40).map(|key| event(key, 0)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.place("all").broker.script.left(), 0, "all of them failed");
    assert_eq!(world.delivered("all"), 40);
}

/// F5, INV-8: what comes after an outage of ten minutes is sent as soon as its broker wishes, however long it was away; and
/// where it wishes nothing, the pauses are the relay's.
#[test]
fn a_broker_is_probed_as_often_as_it_wishes() {
    let longest = |pause_max: Duration| {
        let mut capabilities = BrokerCapabilities::least();
        (capabilities.durable, capabilities.pause_max) = (true, pause_max);
        let mut world = World::simple();
        world.places.clear();
        world.add_place_with(everything("all"), capabilities);
        world.start(Target::Forever);
        let mut longest = Duration::ZERO;
        for n in 0..5 {
            world.place("all").broker.set_down("order.changed", true);
            world.commit((0..10).map(|key| event(key, n)).collect());
            world.run_for(Duration::from_secs(600));
            world.place("all").broker.set_down("order.changed", false);
            let before = world.clock.elapsed();
            let wanted = 10 * (n as usize + 1);
            world.run_until(Duration::from_secs(60), |world| world.delivered("all") == wanted);
            longest = longest.max(world.clock.elapsed() - before);
        }
        longest
    };
    let seldom = longest(Duration::MAX);
    assert!(seldom > Duration::from_secs(10), "the outage is long enough to tell: {seldom:?}");
    let often = longest(Duration::from_secs(3));
    assert!(often <= Duration::from_secs(4), "{often:?}");
}

/// R019, R093: failures count, and enough of them make a dead letter with its reason.
#[test]
fn a_poison_event_is_dead_after_its_attempts_and_the_others_flow() {
    let mut world = World::simple();
    let poison = event(99, 0);
    world.place("all").broker.answer([poison.event().id], &unavailable());
    world.commit(vec![poison, event(99, 1)]);
    world.start(Target::Forever);
    for n in 0..200 {
        world.commit(vec![event(n % 7, n)]);
        world.run_for(Duration::from_millis(200));
    }
    assert_eq!(world.delivered("all"), 200);
    let waiting = world.store.waiting(&id("all"));
    assert_eq!(waiting.len(), 2);
    assert_eq!((waiting[0].state.as_str(), waiting[0].attempts), ("dead", 3));
    assert!(waiting[0].detail.contains("503"));
    assert_eq!(waiting[1].state.as_str(), "parked");
    world.check("all");
}

/// INV-1, INV-5: a part of an endpoint that is away (a partition without a leader) counts against no event, however
/// long; the others flow meanwhile, and what waited comes in its order.
#[test]
pub(crate) fn a_part_of_an_endpoint_that_is_away_kills_nothing() {
    let mut world = World::simple();
    let first = event(99, 0);
    let away = Outcome::Hindered(Fault::new(ErrorKind::Timeout, "no leader"));
    world.place("all").broker.answer([first.event().id], &away);
    world.commit(vec![first, event(99, 1)]);
    world.start(Target::Forever);
    for n in 0..3_600 {
        world.commit(vec![event(n % 7, n)]);
        world.run_for(Duration::from_secs(1));
    }
    assert_eq!(world.delivered("all"), 3_600);
    let waiting = world.store.waiting(&id("all"));
    let stands = |at: usize| (waiting[at].state.as_str(), waiting[at].attempts);
    assert_eq!([stands(0), stands(1)], [("retrying", 0), ("parked", 0)]);
    assert!(waiting[0].detail.contains("no leader"));
    let tried = world.healths().remove(0).batches - 3_600;
    assert!((60..=300).contains(&tried), "neither given up nor without a pause: {tried}");
    world.place("all").broker.relent();
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 3_602);
    world.check("all");
}

/// F18, R094: one poison among ten thousand delays nobody.
#[test]
fn one_poison_in_ten_thousand_leaves_the_rest_alone() {
    let mut world = World::simple();
    let events: Vec<_> = (0..10_000).map(|key| event(key, 0)).collect();
    world.place("all").broker.refuse([events[5_000].event().id]);
    world.commit(events);
    world.start(Target::Forever);
    let spent = world.run_until(Duration::from_secs(5), |world| world.delivered("all") == 9_999);
    assert!(spent < Duration::from_secs(1), "{spent:?}");
    assert_eq!(now(world.store.counts(&id("all"))).unwrap().dead, 1);
}

/// F5: an outage, however long, counts against no event and kills nothing.
#[test]
pub(crate) fn an_outage_of_hours_kills_nothing() {
    let mut world = World::simple();
    world.commit((0..500).map(|n| event(n % 20, n)).collect());
    let ids: Vec<_> = world.store.committed().iter().map(|row| row.row.id).collect();
    for named in [false, true] {
        let broker = &world.place("all").broker;
        match named {
            false => broker.set_down("order.changed", true),
            true => broker.answer(ids.clone(), &unavailable()),
        }
        let relay = world.start(Target::Forever);
        world.run_for(Duration::from_secs(3_600));
        let counts = now(world.store.counts(&id("all"))).unwrap();
        assert_eq!((counts.dead, world.delivered("all")), (0, 0), "{counts:?}");
        world.kill(relay);
    }
    world.place("all").broker.set_down("order.changed", false);
    world.place("all").broker.relent();
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(120), |world| world.delivered("all") == 500);
    world.check("all");
}

/// An acknowledgement after the deadline still settles, if the next try has not begun.
#[test]
fn a_late_acknowledgement_settles_still() {
    let mut world = World::simple();
    let gate = Gate::new();
    let broker = std::sync::Arc::clone(&world.place("all").broker);
    broker.script.then([BrokerAction::HoldAnswer(gate.clone())]);
    // What comes after the first batch fails, so that its events are not tried again meanwhile.
    broker.script.always(Some(BrokerAction::FailBefore(ErrorKind::Unavailable)));
    world.commit((0..5).map(|key| event(key, 0)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(7));
    assert_eq!(world.healths()[0].delivered, 0);
    gate.open();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.healths()[0].delivered, 5, "{:?}", world.healths());
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.store.settled(&id("all")).len(), 5);
    assert_eq!(world.duplicates("all"), 0);
}

/// INV-1: an acknowledgement that comes when its event was delivered by the next try settles nothing
/// of what follows that event.
#[test]
pub(crate) fn a_late_acknowledgement_settles_nothing_else() {
    let mut world = World::simple();
    let gate = Gate::new();
    let broker = std::sync::Arc::clone(&world.place("all").broker);
    broker.script.then([BrokerAction::HoldAnswer(gate.clone())]);
    world.commit(vec![event(1, 0)]);
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(10), |world| world.healths()[0].delivered == 1);
    broker.script.always(Some(BrokerAction::FailBefore(ErrorKind::Unavailable)));
    world.commit(vec![event(1, 1)]);
    world.run_for(Duration::from_millis(500));
    gate.open();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.healths()[0].delivered, 1);
    broker.script.always(None);
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 2);
    world.check("all");
}

/// R095: a batch that dies of one event is halved until that event stands alone.
#[test]
fn a_batch_that_fails_as_a_whole_is_halved() {
    let mut world = World::simple();
    world.commit((0..64).map(|key| event(key, 0)).collect());
    world.place("all").broker.set_down("order.changed", true);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(30));
    let sizes: Vec<_> = world.place("all").broker.batches().iter().map(Vec::len).collect();
    assert_eq!(sizes[0], 64);
    assert!(sizes[1..].iter().all(|size| *size == 1), "probes are one event: {sizes:?}");
    let probed: std::collections::BTreeSet<_> =
        world.place("all").broker.batches()[1..].iter().map(|batch| batch[0]).collect();
    assert!(probed.len() > 3, "probes go round the keys");
}

/// R033: a settlement whose answer is lost is sent again, and changes nothing twice.
#[test]
fn a_settlement_whose_answer_was_lost_is_sent_again() {
    let mut world = World::simple();
    world.commit((0..300).map(|key| event(key, 0)).collect());
    world.source.script(Operation::Settle).then([
        SourceAction::FailAfter(ErrorKind::Timeout),
        SourceAction::FailBefore(ErrorKind::Unavailable),
        SourceAction::busy(),
    ]);
    world.start(Target::Once);
    world.run_until(Duration::from_secs(30), |world| world.ending(0).is_some());
    assert_eq!(world.store.settled(&id("all")).len(), 300);
    assert_eq!(world.duplicates("all"), 0);
}

/// F7, F23: while the store refuses to write, nothing is lost and the relay says what holds it.
#[test]
fn a_store_that_cannot_be_written_to_is_named_and_recovers() {
    let mut world = World::simple();
    world.commit((0..100).map(|key| event(key, 0)).collect());
    let full = SourceAction::FailBefore(ErrorKind::DiskFull);
    world.source.script(Operation::Settle).always(Some(full));
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(8));
    let health = world.healths().remove(0);
    let named = health.blockers.iter().any(|blocker| blocker.to_string().contains("PR-1004"));
    assert!(named, "{health:?}");
    assert!(world.store.settled(&id("all")).is_empty());
    world.source.script(Operation::Settle).always(None);
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.store.settled(&id("all")).len(), 100);
    assert_eq!(world.duplicates("all"), 0);
}

#[test]
fn a_rewound_store_stops_the_relay_and_is_named() {
    let mut world = World::simple();
    world.commit((0..10).map(|key| event(key, 0)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(3));
    world.store.rewind();
    world.commit(vec![event(1, 1)]);
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.delivered("all"), 10);
    let health = world.healths().remove(0);
    assert_eq!(health.state, postrider_relay::State::Blocked);
    assert!(health.blockers.iter().any(|b| b.to_string().contains("PR-1006")), "{health:?}");
}

/// An idle or blocked relay sleeps: it does not ask to be woken again and again, and asks the store
/// little.
#[test]
fn an_idle_or_blocked_relay_sleeps() {
    for down in [false, true] {
        let mut world = World::simple();
        world.commit((0..500).map(|n| event(n % 20, n)).collect());
        world.place("all").broker.set_down("order.changed", down);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(60));
        let (wakes, fetches) = (world.wakes, world.healths()[0].fetches);
        world.run_for(Duration::from_secs(60));
        assert!(world.wakes - wakes < 300, "{} wakes in a minute", world.wakes - wakes);
        assert!(world.healths()[0].fetches - fetches <= 120, "{:?}", world.healths());
    }
}
