//! Careful mode: an event that kills the process is poison too.

use std::time::Duration;

use postrider_core::Clock;
use postrider_core::waiting::Reason;
use postrider_relay::{Input, Target};

use crate::world::{World, event, id};

/// F1, INV-5: an event that kills every relay that sends it becomes a dead letter after its attempts,
/// and all the others are delivered, in order.
#[test]
fn an_event_that_kills_the_process_is_given_up() {
    let mut world = World::simple();
    let events: Vec<_> = (0..60u64).map(|n| event(n % 6, n)).collect();
    let killer = events[20].event().id;
    world.commit(events);
    world.start(Target::Forever);
    let (mut deaths, mut seen) = (0, 0);
    for _ in 0..2_000 {
        world.round();
        let batches = world.place("all").broker.batches();
        let kills = batches[seen..].iter().any(|batch| batch.contains(&killer));
        seen = batches.len();
        if kills {
            deaths += 1;
            assert!(deaths <= 10, "it still kills: {:#?}", world.store.waiting(&id("all")));
            world.kill(0);
            world.clock.advance(world.settings.lease + Duration::from_millis(1));
            world.start(Target::Forever);
        } else {
            world.pass(Duration::from_millis(500));
        }
    }
    let waiting = world.store.waiting(&id("all"));
    assert_eq!(waiting[0].row.id, killer);
    assert_eq!((waiting[0].state.as_str(), waiting[0].reason), ("dead", Reason::GaveUp));
    assert_eq!(waiting.len(), 7, "its successors wait behind it: {waiting:#?}");
    assert_eq!(world.delivered("all"), 60 - 7 + 1, "it was sent, and killed");
    // The broker took it each time, which the relay never learnt; its key stays parked.
    assert!(deaths >= 4, "{deaths}");
    world.check("all");
}

/// An outage while the relay is careful counts against no suspect.
#[test]
fn an_outage_counts_against_no_suspect() {
    let mut world = World::simple();
    world.commit((0..30).map(|n| event(n % 6, n)).collect());
    for _ in 0..3 {
        world.start(Target::Forever);
        world.settle_first_batch();
        world.kill(0);
        world.clock.advance(world.settings.lease + Duration::from_millis(1));
    }
    world.place("all").broker.set_down("order.changed", true);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(600));
    let waiting = world.store.waiting(&id("all"));
    assert!(waiting.iter().any(|row| row.reason == Reason::Suspect), "{waiting:#?}");
    assert!(waiting.iter().all(|row| row.state.as_str() != "dead"), "{waiting:#?}");
    world.place("all").broker.set_down("order.changed", false);
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 30);
    world.check("all");
}

/// F39: a careful relay that is told to stop leaves no attempt behind that was not made.
#[test]
fn a_drain_takes_back_attempts_that_were_not_made() {
    for steps in 0..40 {
        let mut world = World::simple();
        world.commit((0..30).map(|n| event(n % 6, n)).collect());
        for _ in 0..2 {
            world.start(Target::Forever);
            world.settle_first_batch();
            world.kill(0);
            world.clock.advance(world.settings.lease + Duration::from_millis(1));
        }
        world.start(Target::Forever);
        (0..steps).for_each(|_| _ = world.round());
        let tick = world.clock.tick();
        world.relays[0].machine.step(tick, Input::Drain);
        world.run_until(Duration::from_secs(30), |world| world.ending(0).is_some());
        for row in world.store.waiting(&id("all")) {
            assert_eq!(row.attempts, 0, "after {steps} steps: {row:?}");
        }
        world.start(Target::Once);
        world.run_until(Duration::from_secs(30), |world| world.ending(1).is_some());
        let waiting = world.store.waiting(&id("all"));
        assert_eq!(world.delivered("all"), 30, "{steps} {:?} {waiting:#?}", world.ending(1));
        world.check("all");
    }
}
