//! Holding: an endpoint that refuses every event of one type holds that type, and nothing else.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::waiting::{Reason, WaitingState};
use postrider_core::{
    Destination, ErrorKind, EventId, Fault, NewEvent, OutboxSource, Outcome, Route,
};
use postrider_relay::{Notice, State, Target};

use crate::world::{World, id, now};

/// One endpoint for all types.
fn world() -> World {
    let route = Route::all("orders".parse().unwrap());
    World::new(1, vec![Destination::new(id("all"), "memory", vec![route])])
}

pub(crate) fn of_type(kind: &str, key: u64, n: u64) -> NewEvent {
    NewEvent::new("order", format!("{kind}{key}"), kind).json(&n).unwrap()
}

pub(crate) fn ids(events: &[NewEvent]) -> Vec<EventId> {
    events.iter().map(|event| event.event().id).collect()
}

/// How many wait dead, held, and behind others.
fn waiting(world: &World) -> (u64, u64, u64) {
    let counts = now(world.store.counts(&id("all"))).unwrap();
    (counts.dead, counts.held, counts.parked)
}

fn changes(world: &World) -> Vec<&'static str> {
    changes_of(world, 82)
}

/// What the relay said, that was refused so many times before.
fn changes_of(world: &World, times: u32) -> Vec<&'static str> {
    let told = world.relays[0].notices.iter().filter_map(|notice| match notice {
        Notice::TypeHeld { event_type, detail, refused, .. } => {
            assert_eq!(*refused, times);
            assert!(event_type == "bad" && detail.contains("refused by the script"), "{notice:?}");
            Some("held")
        }
        Notice::TypeTaken { event_type, .. } => {
            assert_eq!(event_type, "bad");
            Some("taken")
        }
        _ => None,
    });
    told.collect()
}

/// INV-1, INV-5: what refuses a whole type buries a hundredth of a window of it, and no more; the rest waits as held, one is tried
/// now and then, other types flow, and all of it arrives in its keys' order when the type is taken again.
#[test]
pub(crate) fn a_type_that_is_refused_waits_and_others_flow() {
    let mut world = world();
    let bad: Vec<NewEvent> = (0..600).map(|n| of_type("bad", n % 300, n)).collect();
    let good: Vec<NewEvent> = (0..600).map(|n| of_type("good", n % 300, n)).collect();
    // Behind what is held of its own key.
    let behind = NewEvent::new("order", "bad299", "good").json(&600).unwrap();
    world.place("all").broker.refuse(ids(&bad));
    world.start(Target::Forever);
    world.commit(bad);
    world.commit(good);
    world.commit(vec![behind]);
    world.run_until(Duration::from_secs(30), |world| world.delivered("all") == 600);
    world.run_for(Duration::from_secs(600));
    let (dead, held, parked) = waiting(&world);
    assert!(
        (81..=150).contains(&dead),
        "the last of them is held, and others were on their way: {dead}"
    );
    assert_eq!((dead + held + parked, world.delivered("all")), (601, 600));
    assert_eq!(dead + held, 300, "the first of each key, and what follows behind it");
    let batches = world.place("all").broker.batches().len();
    world.run_for(Duration::from_secs(300));
    let probes = world.place("all").broker.batches().len() - batches;
    assert!((5..=12).contains(&probes), "one every thirty seconds: {probes}");
    let rows = world.store.waiting(&id("all"));
    for row in rows.iter().filter(|row| row.state == WaitingState::Held) {
        assert_eq!((row.reason, row.attempts), (Reason::Held, 0), "{row:?}");
    }
    let health = world.healths().remove(0);
    let named: Vec<String> = health.blockers.iter().map(ToString::to_string).collect();
    assert!(named.len() == 1 && named[0].contains("refuses every bad"), "{named:?}");
    assert_eq!((health.state, changes(&world)), (State::Blocked, vec!["held"]));

    world.place("all").broker.relent();
    let freed = 601 + 600 - usize::try_from(2 * dead).unwrap();
    let arrives = |world: &World| world.delivered("all") == freed;
    world.run_until(Duration::from_secs(400), arrives);
    assert_eq!(waiting(&world), (dead, 0, dead), "what gave up before that holds its keys");
    world.check("all");
    world.run_for(Duration::from_secs(20));
    let health = world.healths().remove(0);
    assert!(health.blockers.is_empty(), "{health:?}");
    assert_eq!(changes(&world), ["held", "taken"]);
}

/// Another owner knows what was held: it buries nothing more of it. Where the type is taken again meanwhile, what is refused of it
/// is to blame itself.
#[test]
fn another_owner_holds_at_the_first_refusal() {
    let mut world = world();
    let bad: Vec<NewEvent> = (0..300).map(|n| of_type("bad", n, n)).collect();
    world.place("all").broker.refuse(ids(&bad));
    world.start(Target::Forever);
    world.commit(bad.clone());
    world.run_for(Duration::from_secs(60));
    let before = waiting(&world);
    assert!(before.1 > 0 && before.0 > 80, "{before:?}");
    world.kill(0);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(300));
    assert_eq!(waiting(&world), before);
    assert_eq!(changes_of(&world, 1), ["held"]);

    world.place("all").broker.relent();
    world.place("all").broker.refuse(ids(&bad[290..]));
    world.run_for(Duration::from_secs(400));
    assert_eq!(
        (waiting(&world), changes_of(&world, 1)),
        ((before.0 + 10, 0, 0), vec!["held", "taken"])
    );
    world.check("all");
}

/// What comes out from behind another event of its key waits as held as well.
#[test]
fn what_is_promoted_is_held_as_well() {
    let mut world = world();
    let first = of_type("good", 0, 0);
    let slow = Outcome::Retry { fault: Fault::new(ErrorKind::Unavailable, "503"), after: None };
    world.place("all").broker.answer([first.event().id], &slow);
    let follows = NewEvent::new("order", "good0", "bad").json(&1).unwrap();
    let bad: Vec<NewEvent> = (0..200).map(|n| of_type("bad", n, n)).collect();
    let refuse = |world: &World| {
        world.place("all").broker.refuse(ids(&bad));
        world.place("all").broker.refuse([follows.event().id]);
    };
    refuse(&world);
    world.start(Target::Forever);
    world.commit(bad.clone());
    // So long that hardly one a minute is tried.
    world.run_for(Duration::from_secs(600));
    world.commit(vec![of_type("good", 1, 0), first, follows.clone()]);
    world.run_for(Duration::from_millis(600));
    let state = |world: &World| {
        let rows = world.store.waiting(&id("all"));
        let row = rows.iter().find(|row| row.row.id == follows.event().id);
        row.map(|row| (row.state, row.reason))
    };
    assert_eq!(state(&world), Some((WaitingState::Parked, Reason::Behind)), "the control");
    world.place("all").broker.relent();
    refuse(&world);
    let promoted = |world: &World| state(world) != Some((WaitingState::Parked, Reason::Behind));
    world.run_until(Duration::from_secs(60), promoted);
    world.run_for(Duration::from_secs(1));
    assert_eq!(state(&world), Some((WaitingState::Held, Reason::Held)));
}

/// The control: of a type of which some are taken those that are refused are to blame, however many; and so are many of few keys.
#[test]
fn what_is_refused_beside_others_of_its_type_is_dead() {
    for (keys, taken) in [(600, 50), (20, 1_000)] {
        let mut world = world();
        let all: Vec<NewEvent> = (0..600).map(|n| of_type("bad", n % keys, n)).collect();
        let refused: Vec<NewEvent> = all
            .iter()
            .enumerate()
            .filter(|(n, _)| (n + 1) % taken != 0)
            .map(|(_, event)| event.clone())
            .collect();
        world.place("all").broker.refuse(ids(&refused));
        world.start(Target::Forever);
        world.commit(all);
        world.run_for(Duration::from_secs(60));
        let (dead, held, parked) = waiting(&world);
        assert_eq!((held, changes(&world).len()), (0, 0));
        assert_eq!(dead + parked, refused.len() as u64);
    }
}

/// INV-8: a one-shot run does not wait for what is held.
#[test]
fn a_run_ends_though_something_is_held() {
    let mut world = world();
    let bad: Vec<NewEvent> = (0..300).map(|n| of_type("bad", n, n)).collect();
    world.place("all").broker.refuse(ids(&bad));
    world.commit(bad);
    world.start(Target::Once);
    world.run_until(Duration::from_secs(120), |world| world.ending(0).is_some());
    let (dead, held, _) = waiting(&world);
    assert!(dead < 300 && dead + held == 300, "{dead} {held}");
}
