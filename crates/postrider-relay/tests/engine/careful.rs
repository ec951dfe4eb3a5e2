//! Careful mode: an event that kills the process is poison too.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::waiting::Reason;
use postrider_core::{Clock, EventId, NewEvent};
use postrider_relay::{Input, State, Target};
use postrider_testkit::fault::{BrokerAction, Gate, Operation, SourceAction};

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
    let deaths = die_of(&mut world, killer);
    let waiting = world.store.waiting(&id("all"));
    assert_eq!(waiting[0].row.id, killer);
    assert_eq!((waiting[0].state.as_str(), waiting[0].reason), ("dead", Reason::GaveUp));
    assert_eq!(waiting.len(), 7, "its successors wait behind it: {waiting:#?}");
    assert_eq!(world.delivered("all"), 60 - 7 + 1, "it was sent, and killed");
    // The broker took it each time, which the relay never learnt; its key stays parked.
    assert!(deaths >= 4, "{deaths}");
    world.check("all");
}

/// Lets an event kill every relay that sends it, for some minutes. Says how many it killed: no more than ten.
fn die_of(world: &mut World, killer: EventId) -> u32 {
    let (mut deaths, mut seen) = (0, world.place("all").broker.batches().len());
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
    deaths
}

/// F1, INV-5, INV-8: an event that was let out from behind a dead one kills out of `waiting`, and is given up; so it is
/// each time that somebody redrives it.
#[test]
fn an_event_that_kills_the_process_out_of_waiting_is_given_up() {
    let mut world = World::simple();
    let events: Vec<_> = (0..60u64).map(|n| event(n % 6, n)).collect();
    let (head, killer) = (events[14].event().id, events[20].event().id);
    world.place("all").broker.refuse([head]);
    world.commit(events);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    let waiting = world.store.waiting(&id("all"));
    assert_eq!((waiting[0].row.id, waiting[1].row.id, waiting.len()), (head, killer, 8));
    world.ask(Verb::Discard(vec![world.row("all", waiting[0].row.seq)]));
    for _ in 0..3 {
        let deaths = die_of(&mut world, killer);
        assert!(deaths >= 3, "{deaths}: as often as its route says");
        let waiting = world.store.waiting(&id("all"));
        let row = waiting.iter().find(|row| row.row.id == killer).unwrap();
        assert_eq!((row.state.as_str(), row.reason), ("dead", Reason::GaveUp), "{row:#?}");
        world.ask(Verb::Redrive(vec![world.row("all", row.row.seq)]));
    }
    world.check("all");
}

/// INV-8: who suspects what waits does not try it one at a time for ever: the rest of it comes as ever.
#[test]
fn a_careful_relay_is_wary_of_a_part_of_what_waits() {
    let mut world = World::simple();
    world.settings.window.rows_max = 64;
    let events: Vec<_> = (0..400).map(|key| event(key, 0)).collect();
    world.place("all").broker.refuse(events.iter().map(|event| event.event().id));
    world.start(Target::Forever);
    world.commit(events);
    world.run_for(Duration::from_secs(5));
    let dead = world.store.waiting(&id("all"));
    assert_eq!(dead.len(), 400);
    world.place("all").broker.relent();
    world.ask(Verb::Redrive(dead.iter().map(|row| world.row("all", row.row.seq)).collect()));
    for _ in 0..3 {
        world.settle_first_batch();
        world.kill(0);
        world.clock.advance(world.settings.lease + Duration::from_millis(1));
        world.start(Target::Forever);
    }
    let before = world.place("all").broker.batches().len();
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 400);
    let batches = world.place("all").broker.batches();
    let alone = batches[before..].iter().take_while(|batch| batch.len() == 1).count();
    assert!((4..=16).contains(&alone), "an eighth of a window: {alone}");
    world.check("all");
}

/// INV-5: suspects whose endpoint pauses take the place of none of the others, however many they are.
#[test]
fn suspects_of_an_endpoint_that_pauses_do_not_hold_the_others() {
    let mut world = World::simple();
    world.settings.due_rows_max = 8;
    let of = |key: u64, topic: &str| NewEvent::new("order", key.to_string(), topic).json(&0);
    let a = (0..20).map(|key| of(key, "a").unwrap());
    let events: Vec<_> = a.chain((20..25).map(|key| of(key, "b").unwrap())).collect();
    world.commit(events);
    for _ in 0..2 {
        world.start(Target::Forever);
        world.settle_first_batch();
        world.kill(0);
        world.clock.advance(world.settings.lease + Duration::from_millis(1));
    }
    let after = Some(Duration::from_secs(300));
    world.place("all").broker.script.then([BrokerAction::RetryNamed { after }]);
    world.start(Target::Forever);
    let received = |world: &World| world.place("all").memory.received("b").len();
    let before = received(&world);
    world.run_until(Duration::from_secs(5), |world| received(world) == before + 5);
    let waiting = world.store.waiting(&id("all"));
    assert_eq!(waiting.len(), 20, "{waiting:#?}");
    assert!(waiting.iter().all(|row| row.attempts == 0), "{waiting:#?}");
    world.run_until(Duration::from_secs(600), |world| world.store.waiting(&id("all")).is_empty());
    assert_eq!(world.delivered("all"), 25);
    world.check("all");
}

/// INV-8: while the attempt of a suspect is being saved, and all others wait for it, there is something to deliver.
#[test]
fn a_relay_that_has_a_suspect_on_trial_is_not_at_rest() {
    let mut world = World::simple();
    world.commit((0..30).map(|n| event(n % 6, n)).collect());
    for _ in 0..2 {
        world.start(Target::Forever);
        world.settle_first_batch();
        world.kill(0);
        world.clock.advance(world.settings.lease + Duration::from_millis(1));
    }
    let settle = world.source.script(Operation::Settle);
    settle.then([SourceAction::Pass]);
    settle.always(Some(SourceAction::Hold(Gate::new())));
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.store.waiting(&id("all")).len(), 30);
    assert_ne!(world.healths()[0].state, State::Empty);
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
