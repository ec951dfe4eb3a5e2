//! Held: what a type that is held costs, and what stands beside it.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::waiting::WaitingState;
use postrider_core::{BrokerCapabilities, Clock, Destination, NewEvent, OutboxSource, Route, Tick};
use postrider_relay::{Notice, Target};
use postrider_testkit::fault::{BrokerAction, Gate, Operation, SourceAction};

use crate::holding::{ids, of_type};
use crate::world::{World, id, now};

fn destination(topic: &str) -> Destination {
    Destination::new(id("all"), "memory", vec![Route::all(topic.parse().unwrap())])
}

fn world() -> World {
    World::new(1, vec![destination("orders")])
}

/// A relay that holds a type, of which so many keys were refused.
fn holding(world: &mut World, keys: u64) -> Vec<NewEvent> {
    let bad: Vec<NewEvent> = (0..keys).map(|key| of_type("bad", key, key)).collect();
    world.place("all").broker.refuse(ids(&bad));
    world.start(Target::Forever);
    world.commit(bad.clone());
    world.run_for(Duration::from_millis(50));
    bad
}

fn dead(world: &World) -> u64 {
    now(world.store.counts(&id("all"))).unwrap().dead
}

/// Runs while each answer about what is due comes late.
fn run_slowly(world: &mut World, steps: u32, mut over: impl FnMut(&World) -> bool) -> bool {
    let mut gate = Gate::new();
    let due = |world: &World, gate: &Gate| {
        let action = SourceAction::HoldAnswer(gate.clone());
        world.source.script(Operation::Due).always(Some(action));
    };
    for _ in 0..steps {
        due(world, &gate);
        world.run_for(Duration::from_secs(2));
        let next = Gate::new();
        due(world, &next);
        gate.open();
        gate = next;
        if over(world) {
            return true;
        }
    }
    false
}

/// INV-5, INV-6: probes come apart as far as they should, however long their answers take.
#[test]
fn probes_come_apart_though_answers_are_slow() {
    let mut world = world();
    holding(&mut world, 300);
    let gates: Vec<Gate> = (0..2_000).map(|_| Gate::new()).collect();
    let script = gates.iter().cloned().map(BrokerAction::HoldAnswer);
    world.place("all").broker.script.then(script);
    let (mut came, mut opened): (Vec<Tick>, usize) = (Vec::new(), 0);
    for _ in 0..3_000 {
        world.run_for(Duration::from_millis(20));
        let tick = world.clock.tick();
        while gates[came.len()].arrived.count() > 0 {
            came.push(tick);
        }
        while opened < came.len() && tick >= came[opened] + Duration::from_secs(1) {
            gates[opened].open();
            opened += 1;
        }
    }
    assert!((5..=40).contains(&came.len()), "of a minute: {}", came.len());
}

/// INV-5: a probe that finds no room in a batch is a probe yet.
#[test]
fn a_probe_without_room_is_the_next() {
    let mut world = world();
    world.places.clear();
    let mut capabilities = BrokerCapabilities::least();
    capabilities.batch_bytes_max = 4_000;
    world.add_place_with(destination("orders"), capabilities);
    // One more than are dead letters.
    holding(&mut world, 82);
    world.run_for(Duration::from_secs(600));
    let probes = world.place("all").broker.batches().len();
    let probed = |world: &World| world.place("all").broker.batches().len() > probes;
    world.run_until(Duration::from_secs(60), probed);
    world.place("all").broker.relent();
    let large = "x".repeat(3_500);
    let good = NewEvent::new("order", "good", "good").json(&large).unwrap();
    let bad = NewEvent::new("order", "bad", "bad").json(&"x".repeat(1_000)).unwrap();
    world.run_for(Duration::from_secs(31));
    world.commit(vec![good, bad]);
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.delivered("all"), 2);
}

/// INV-5, INV-8: what is held does not take the place of the probe of its endpoint.
#[test]
fn what_is_held_is_no_probe_of_an_endpoint_that_is_down() {
    let mut world = World::new(1, vec![destination("{aggregate_type}")]);
    holding(&mut world, 500);
    world.run_for(Duration::from_secs(1_300));
    let other = |n: u64| NewEvent::new("other", format!("{n}"), "other").json(&n).unwrap();
    world.place("all").broker.set_down("order", true);
    world.commit(vec![other(0), of_type("good", 0, 0)]);
    for n in 1..200 {
        world.commit(vec![other(n)]);
        world.run_for(Duration::from_secs(10));
    }
    assert_eq!(world.delivered("all"), 200, "the control");
    world.place("all").broker.set_down("order", false);
    let came = run_slowly(&mut world, 300, |world| world.delivered("all") > 200);
    assert!(came, "not within ten minutes");
}

/// INV-8: a one-shot run ends, however much is held and due again.
#[test]
fn a_run_ends_though_much_is_held() {
    let mut world = world();
    world.settings.due_rows_max = 16;
    let bad: Vec<NewEvent> = (0..3_000).map(|key| of_type("bad", key, key)).collect();
    world.place("all").broker.refuse(ids(&bad));
    world.commit(bad);
    world.start(Target::Once);
    assert!(run_slowly(&mut world, 300, |world| world.ending(0).is_some()), "within ten minutes");
}

/// INV-1: an owner that suspects what waits buries nothing of what is held.
#[test]
fn a_careful_owner_buries_nothing_of_what_is_held() {
    let mut world = world();
    holding(&mut world, 300);
    world.run_for(Duration::from_secs(120));
    let before = dead(&world);
    for _ in 0..4 {
        world.kill(0);
        world.clock.advance(world.settings.lease + Duration::from_millis(1));
        world.start(Target::Forever);
        world.run_for(Duration::from_millis(500));
    }
    world.run_for(Duration::from_secs(600));
    assert_eq!(dead(&world), before);
}

/// INV-5: a type of which much was refused is taken again as soon as one of it is well.
#[test]
fn one_that_is_well_does_not_wait_for_all_that_are_not() {
    let mut world = world();
    holding(&mut world, 300);
    world.run_for(Duration::from_secs(1_200));
    let took = |world: &World| world.delivered("all");
    let mut spent = 0;
    for n in 0..360 {
        world.commit(vec![of_type("bad", 1_000 + n, n)]);
        world.run_for(Duration::from_secs(10));
        spent += 10;
        if took(&world) > 0 {
            break;
        }
    }
    assert!(spent <= 90, "{spent} s");
}

/// INV-6: what is held costs the store as little as what waits for an endpoint.
#[test]
fn what_is_held_costs_little() {
    let mut world = world();
    holding(&mut world, 1200);
    world.run_for(Duration::from_secs(1_300));
    world.relays[0].notices.clear();
    world.run_for(Duration::from_secs(600));
    let rows = world.store.waiting(&id("all"));
    let held = rows.iter().filter(|row| row.state == WaitingState::Held).count() as u64;
    let written = |notice: &Notice| match notice {
        Notice::Settled { waiting, .. } => *waiting,
        _ => 0,
    };
    let written: u64 = world.relays[0].notices.iter().map(written).sum();
    assert!(written <= held * 3, "{written} of {held} in ten minutes");
}
