//! Endpoints that say that they are gone: they take nothing, and nobody else notices.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::{BrokerCapabilities, NewEvent, OutboxSource};
use postrider_relay::{Blocker, State, Target};
use postrider_testkit::fault::{BrokerAction, Gate, Operation, SourceAction};

use crate::world::{World, event, everything, id, now, number};

/// The nth event of a key, of a type, and so to a topic of its own.
fn of(event_type: &str, key: u64, n: u64) -> NewEvent {
    NewEvent::new("order", format!("{key}"), event_type).json(&n).unwrap()
}

fn enable(world: &World, topic: &str) {
    world.ask(Verb::Enable { destination: id("all"), topic: topic.to_owned() });
}

fn disabled_rows(world: &World) -> u64 {
    now(world.store.counts(&id("all"))).unwrap().disabled
}

/// What waits that is no dead letter.
fn total(world: &World) -> u64 {
    now(world.store.counts(&id("all"))).unwrap().total()
}

/// INV-5, F18, R069, R094: of a thousand endpoints of one destination one is dead for hours, one is
/// slow, and one is gone: each event of the others is delivered in the moment it is committed, and
/// the cursor is not held.
#[test]
fn of_a_thousand_endpoints_each_delays_only_itself() {
    let mut world = World::new(1, vec![everything("all")]);
    world.places.clear();
    let mut capabilities = BrokerCapabilities::least();
    (capabilities.batches_in_flight_max, capabilities.endpoint_batches_max) = (64, 2);
    world.add_place_with(everything("all"), capabilities);
    let broker = std::sync::Arc::clone(&world.place("all").broker);
    broker.set_down("e1", true);
    broker.set_gone("e2", true);
    world.start(Target::Forever);
    let (rounds, mut latest) = (8, Duration::ZERO);
    for round in 0..rounds {
        let gate = Gate::new();
        broker.hold("e3", Some(gate.clone()));
        // Each endpoint has its own keys, and `e3` answers a little before the deadline.
        let events = (0..1_000u64).map(|n| of(&format!("e{n}"), n, round));
        world.commit(events.collect());
        let others = 997 * (round as usize + 1) + round as usize;
        let spent = world.run_until(Duration::from_secs(2), |w| w.delivered("all") >= others);
        latest = latest.max(spent);
        world.run_for(Duration::from_secs(4));
        gate.open();
        world.run_for(Duration::from_secs(1_800));
        assert_eq!(world.delivered("all"), others + 1, "the slow one too, in its time");
    }
    assert!(latest <= Duration::from_millis(600), "{latest:?}: a poll, and nothing else");
    let settled = world.store.settled(&id("all")).len();
    assert_eq!(settled, 8_000, "the cursor has passed everything: the dead and the gone wait");
    assert_eq!(now(world.store.counts(&id("all"))).unwrap().dead, 0);
    let committed = world.store.committed();
    let gone = committed
        .iter()
        .filter(|row| row.event.as_ref().is_some_and(|event| &*event.event_type == "e2"));
    let gone: Vec<_> = gone.map(|row| row.row.id).collect();
    let asked = broker.batches().iter().filter(|batch| gone.contains(&batch[0])).count();
    assert_eq!(asked, 1, "who is gone is asked once");
    let health = world.healths().remove(0);
    let named =
        |blocker: &Blocker| matches!(blocker, Blocker::Disabled { topic, .. } if topic == "e2");
    assert!(health.blockers.iter().any(named), "{health:?}");
    world.check("all");
}

/// INV-8: the cursor moves also if every endpoint is disabled, and a store in which nothing else waits
/// is not blocked: somebody decided so.
#[test]
fn a_destination_with_no_endpoint_left_does_not_hold_its_cursor() {
    let mut world = World::simple();
    world.place("all").broker.set_gone("order.changed", true);
    world.start(Target::Forever);
    for n in 0..30 {
        world.commit((0..10).map(|key| event(key, n)).collect());
        world.run_for(Duration::from_secs(1));
    }
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.store.settled(&id("all")).len(), 300);
    assert_eq!(world.place("all").broker.batches().len(), 1, "no probes");
    let counts = now(world.store.counts(&id("all"))).unwrap();
    assert_eq!((counts.disabled, counts.parked, counts.total()), (10, 290, 300));
    let health = world.healths().remove(0);
    assert_eq!(health.state, State::Empty, "{health:?}");
    let named = health.blockers.iter().any(|b| b.to_string().contains("PR-1303"));
    assert!(named, "{health:?}");
    assert_eq!((health.failures, health.endpoint_failures), (0, 0), "nothing counts");
}

/// INV-3: an endpoint that an operator enables gets what waited for it, in order, while more comes.
#[test]
fn enabling_an_endpoint_drains_in_order() {
    let mut world = World::new(4, vec![everything("all")]);
    world.place("all").broker.set_gone("gone", true);
    world.start(Target::Forever);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(10));
    let mut n = 0;
    let mut more = |world: &mut World, seconds: u64| {
        for _ in 0..seconds {
            // Keys whose events go to both endpoints in turn: what follows a gone one waits.
            let kind = |key: u64| if (key + n).is_multiple_of(3) { "gone" } else { "live" };
            world.commit((0..12).map(|key| of(kind(key), key, n)).collect());
            n += 1;
            world.run_for(Duration::from_secs(1));
        }
        n as usize * 12
    };
    let total_committed = more(&mut world, 10);
    assert!(world.delivered("all") < total_committed / 2);
    world.place("all").broker.set_gone("gone", false);
    enable(&world, "gone");
    let total_committed = more(&mut world, 20);
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.delivered("all"), total_committed, "{:#?}", world.healths());
    assert_eq!((world.duplicates("all"), total(&world)), (0, 0));
    world.check("all");
    assert!(world.healths().iter().all(|health| health.waiting_keys == 0));
}

/// INV-1, INV-3: a relay that dies at any step between the answer and the record loses nothing, and
/// after the endpoint is enabled everything comes in order.
#[test]
fn a_relay_that_dies_while_it_disables_loses_nothing() {
    for steps in 0..25 {
        let mut world = World::simple();
        world.place("all").broker.set_gone("gone", true);
        world.commit((0..30).map(|n| of("gone", n % 3, n)).collect());
        world.start(Target::Forever);
        (0..steps).for_each(|_| _ = world.round());
        world.kill(0);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(60));
        assert_eq!(disabled_rows(&world), 3, "{steps} steps");
        world.place("all").broker.set_gone("gone", false);
        enable(&world, "gone");
        world.run_for(Duration::from_secs(10));
        assert_eq!((world.delivered("all"), total(&world)), (30, 0), "{steps} steps");
        world.check("all");
    }
}

/// What waits to be tried again, when its endpoint turns out to be gone, waits for that; no attempt
/// counts.
#[test]
fn what_waited_for_a_dead_endpoint_waits_for_a_gone_one() {
    let mut world = World::simple();
    world.place("all").broker.set_down("e", true);
    world.start(Target::Forever);
    for n in 0..30u64 {
        world.commit(vec![of("e", n, 0), of("live", 1_000, n)]);
        world.run_for(Duration::from_secs(2));
    }
    world.place("all").broker.set_down("e", false);
    world.place("all").broker.set_gone("e", true);
    world.run_for(Duration::from_secs(400));
    let waiting = world.store.waiting(&id("all"));
    assert_eq!((disabled_rows(&world), waiting.len()), (30, 30));
    assert!(waiting.iter().all(|row| row.attempts == 0), "{waiting:#?}");
    world.place("all").broker.set_gone("e", false);
    enable(&world, "e");
    world.run_until(Duration::from_secs(5), |world| world.delivered("all") == 60);
    world.check("all");
}

/// INV-8: the store hears that an endpoint is gone after it was asked to let events of another partition wait for that.
/// These wait all the same, and do not come back for ever.
#[test]
fn what_was_left_to_a_gone_endpoint_before_the_store_knew_of_it_waits_for_it() {
    let mut world = World::new(2, vec![everything("all")]);
    let events: Vec<_> = (0..20).map(|key| of("e", key, 0)).collect();
    world.place("all").broker.refuse(events.iter().map(|event| event.event().id));
    world.commit(events);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(20));
    let dead = world.store.waiting(&id("all"));
    assert_eq!(dead.len(), 20);
    world.place("all").broker.relent();
    // The first partition is the one that tells, and saves something else at that moment.
    let first = |n: u64| NewEvent::new("order", format!("k{n}"), "live").json(&0u64).unwrap();
    let in_first = |event: &NewEvent| event.event().key_hash().0.is_multiple_of(2);
    let gate = Gate::new();
    world.source.script(Operation::Settle).then([SourceAction::Hold(gate.clone())]);
    world.commit((0..).map(first).find(in_first).into_iter().collect());
    world.run_for(Duration::from_millis(2_500));
    world.place("all").broker.set_gone("e", true);
    world.ask(Verb::Redrive(dead.iter().map(|row| world.row("all", row.row.seq)).collect()));
    world.run_for(Duration::from_secs(10));
    assert!(disabled_rows(&world) < 20, "the store does not know it yet");
    gate.open();
    world.run_for(Duration::from_secs(60));
    assert_eq!((disabled_rows(&world), total(&world)), (20, 20));
    let settlements = world.healths()[0].settlements;
    world.run_for(Duration::from_secs(60));
    assert_eq!(world.healths()[0].settlements, settlements, "nothing comes back");
    world.place("all").broker.set_gone("e", false);
    enable(&world, "e");
    world.run_until(Duration::from_secs(5), |world| world.delivered("all") == 21);
    world.check("all");
}

/// INV-6: endpoints that are not used are forgotten, and that one is disabled is not.
#[test]
fn a_sweep_does_not_forget_that_an_endpoint_is_disabled() {
    let mut world = World::simple();
    world.place("all").broker.set_gone("gone", true);
    world.start(Target::Forever);
    world.commit(vec![of("gone", 7, 0)]);
    world.run_for(Duration::from_secs(2));
    for n in 0..4u64 {
        let types = (0..1_000).map(|t| of(&format!("t{n}.{t}"), 100 + t, n));
        world.commit(types.collect());
        world.run_for(Duration::from_secs(5));
    }
    let batches = world.place("all").broker.batches().len();
    world.commit((8..10).map(|key| of("gone", key, 0)).collect());
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.place("all").broker.batches().len(), batches, "it is not tried again");
    assert_eq!((disabled_rows(&world), total(&world)), (3, 3));
}

/// An endpoint that is enabled and still gone is disabled again, and another relay hears of it.
#[test]
fn an_endpoint_that_is_still_gone_is_disabled_again() {
    let mut world = World::simple();
    world.place("all").broker.set_gone("order.changed", true);
    world.commit((0..4).map(|n| event(1, n)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(3));
    for round in 1..4 {
        enable(&world, "order.changed");
        world.run_for(Duration::from_secs(3));
        assert_eq!(world.place("all").broker.batches().len(), 1 + round, "tried once each time");
        assert_eq!((disabled_rows(&world), total(&world)), (1, 4));
    }
    world.kill(0);
    world.clock.advance(world.settings.lease);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.place("all").broker.batches().len(), 4, "the next relay knows");
    world.place("all").broker.set_gone("order.changed", false);
    enable(&world, "order.changed");
    world.run_for(Duration::from_secs(3));
    let received = world.place("all").memory.received("order.changed");
    assert_eq!(received.iter().map(|e| number(e)).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

/// Some events of a batch were acknowledged before the endpoint said that it is gone.
#[test]
fn what_was_acknowledged_before_the_end_is_delivered() {
    let mut world = World::simple();
    world.commit((0..6).map(|key| event(key, 0)).collect());
    let ids: Vec<_> = world.store.committed().iter().map(|row| row.row.id).collect();
    let fault = postrider_core::Fault::new(postrider_core::ErrorKind::Unroutable, "410 Gone");
    let gone = postrider_core::Outcome::Gone(fault);
    world.place("all").broker.answer(ids[4..].iter().copied(), &gone);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(3));
    assert_eq!((world.delivered("all"), disabled_rows(&world)), (4, 2));
    world.place("all").broker.relent();
    world.place("all").broker.script.then([BrokerAction::Pass]);
    enable(&world, "order.changed");
    world.run_for(Duration::from_secs(3));
    assert_eq!((world.delivered("all"), world.duplicates("all")), (6, 0));
}
