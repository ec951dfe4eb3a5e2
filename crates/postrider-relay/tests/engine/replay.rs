//! Rewinding a destination: its history comes again, marked, in order, and what waits keeps waiting.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::Start;
use postrider_core::operate::Verb;
use postrider_relay::Target;

use crate::world::{World, event, everything, id, number};

fn rewind(world: &World) {
    world.ask(Verb::Rewind { destination: id("all"), to: Start::Beginning });
}

/// The numbers of each key's replays, as the broker got them.
fn replays(world: &World, from: usize) -> BTreeMap<String, Vec<u64>> {
    let mut by_key: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for published in &world.place("all").memory.published()[from..] {
        if published.is_acked() && published.marks.replay {
            by_key.entry(published.event.key()).or_default().push(number(&published.event));
        }
    }
    by_key
}

/// Everything comes again, marked as a replay and in each key's order; what is new is not marked.
#[test]
fn a_rewound_destination_sends_its_history_again() {
    let mut world = World::new(2, vec![everything("all"), everything("other")]);
    world.start(Target::Forever);
    world.commit((0..200).map(|n| event(n % 5, n)).collect());
    world.run_for(Duration::from_secs(3));
    let before = world.place("all").memory.published().len();
    rewind(&world);
    world.run_for(Duration::from_millis(1_500));
    world.commit((200..220).map(|n| event(n % 5, n)).collect());
    world.run_for(Duration::from_secs(5));
    let replays = replays(&world, before);
    assert_eq!(replays.len(), 5);
    for (key, numbers) in &replays {
        assert!(numbers.is_sorted() && numbers.len() == 40, "{key}: {numbers:?}");
    }
    let again = &world.place("all").memory.published()[before..];
    let new: Vec<_> = again.iter().filter(|p| !p.marks.replay).collect();
    assert_eq!(new.len(), 20, "what is new says nothing");
    assert!(new.iter().all(|p| number(&p.event) >= 200));
    assert_eq!((world.delivered("other"), world.duplicates("other")), (220, 0));
    assert_eq!(world.store.settled(&id("all")).len(), 220, "the record begins anew there");
    assert!(world.healths()[0].leases_lost == 0, "{:?}", world.healths());
    world.check("all");
}

/// INV-3: what waits ahead of the cursor keeps its place: a dead letter stays one, and what is parked
/// behind it does not come before it; redriven afterwards, all of it comes in order.
#[test]
fn what_waits_keeps_its_place_in_a_replay() {
    for steps in [0, 3, 6, 9, 14, 20, 30, 45, 60] {
        let mut world = World::simple();
        let events: Vec<_> = (0..30).map(|n| event(n % 3, n)).collect();
        let poison = events[10].event().id;
        world.place("all").broker.refuse([poison]);
        world.commit(events);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(3));
        assert_eq!(world.delivered("all"), 23);
        rewind(&world);
        for _ in 0..steps {
            if !world.round() {
                world.pass(Duration::from_millis(300));
            }
        }
        world.kill(0);
        world.clock.advance(world.settings.lease);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(5));
        assert_eq!(world.delivered("all"), 23, "{steps} steps: the dead letter and its key wait");
        assert!(world.duplicates("all") >= 23, "{steps} steps: the rest came again");
        world.place("all").broker.relent();
        let waiting = world.store.waiting(&id("all"));
        let dead = waiting.iter().find(|row| row.row.id == poison).unwrap();
        assert_eq!((dead.state.as_str(), waiting.len()), ("dead", 7), "{steps} steps");
        world.ask(Verb::Redrive(vec![world.row("all", dead.row.seq)]));
        world.run_for(Duration::from_secs(5));
        assert_eq!(world.delivered("all"), 30, "{steps} steps");
        let mut first = Vec::new();
        for published in world.place("all").memory.published() {
            let n = number(&published.event);
            if published.is_acked() && n % 3 == 1 && !first.contains(&n) {
                first.push(n);
            }
        }
        assert!(first.is_sorted(), "{steps} steps: {first:?}");
    }
}

/// A rewind while events flow, under two relays that are killed: nothing is lost, and the replay is
/// complete.
#[test]
fn a_replay_is_complete_whoever_dies() {
    for steps in 0..20 {
        let mut world = World::new(2, vec![everything("all")]);
        world.start(Target::Forever);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(10));
        world.commit((0..60).map(|n| event(n % 6, n)).collect());
        world.run_for(Duration::from_secs(3));
        let before = world.place("all").memory.published().len();
        rewind(&world);
        world.commit((60..72).map(|n| event(n % 6, n)).collect());
        for _ in 0..steps * 2 {
            if !world.round() {
                world.pass(Duration::from_millis(200));
            }
        }
        world.kill(steps % 2);
        world.run_for(Duration::from_secs(30));
        assert_eq!(world.delivered("all"), 72, "{steps}");
        // What was committed after the request may have been sent before it was carried out, too.
        let again: Vec<u64> = replays(&world, before).into_values().flatten().collect();
        assert!((0..60).all(|n| again.contains(&n)), "{steps}: {again:?}");
        world.check("all");
    }
}
