//! Ranges: a key of which much waits costs the store little, and what was left out comes in order (INV-1, INV-3, INV-6).

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::range::RANGES_MAX;
use postrider_core::source::DefinitionChange;
use postrider_core::waiting::Reason;
use postrider_core::{
    Destination, ErrorKind, Fault, Match, NewEvent, OutboxSource, Outcome, RetryPolicy, Route,
    Start,
};
use postrider_relay::{Ending, Notice, Target};
use postrider_testkit::fault::Gate;
use postrider_testkit::memory::Kind;

use crate::world::{World, event, id, now};

/// The kinds that keep ranges.
const KINDS: [Kind; 3] = [Kind::ChangeLog, Kind::Snapshot, Kind::Number];

/// A destination that is patient with an event that fails.
pub(crate) fn patient(types: &[&str]) -> Destination {
    let retry = RetryPolicy { attempts_max: 1_000, ..RetryPolicy::default() };
    let route = |name: &&str| {
        let route = Route::all("{event_type}".parse().unwrap()).retry(retry);
        route.only(Match::event_type(name))
    };
    Destination::new(id("all"), "memory", types.iter().map(route).collect())
}

/// What waits of a key when it gets a range: twenty, and what was in its lane, which is a quarter of the window.
const STUCK: usize = 30;

/// A range for each key of which twenty events wait, in pages of ten.
pub(crate) fn narrow(kind: Kind, types: &[&str]) -> World {
    let mut world = World::of(kind, 1, vec![patient(types)]);
    world.settings.window.rows_max = 40;
    world.settings.window.page_rows_max = 10;
    world.settings.due_rows_max = 8;
    world.settings.range_after = 20;
    world
}

/// The nth event of a key, of a type.
pub(crate) fn of(event_type: &str, key: u64, n: u64) -> NewEvent {
    NewEvent::new("order", format!("{key}"), event_type).json(&n).unwrap()
}

/// Commits so many events of a key, of which the first fails until the broker relents.
pub(crate) fn commit_stuck(world: &World, key: u64, count: u64) {
    let events: Vec<_> = (0..count).map(|n| event(key, n)).collect();
    let fault = Fault::new(ErrorKind::Unavailable, "503");
    let fails = Outcome::Retry { fault, after: Some(Duration::from_secs(2)) };
    world.place("all").broker.answer([events[0].event().id], &fails);
    world.commit(events);
}

/// The same with one that is refused for good, and becomes a dead letter.
fn commit_refused(world: &World, key: u64, count: u64) {
    let events: Vec<_> = (0..count).map(|n| event(key, n)).collect();
    world.place("all").broker.refuse([events[0].event().id]);
    world.commit(events);
}

pub(crate) fn waiting(world: &World) -> usize {
    world.store.waiting(&id("all")).len()
}

pub(crate) fn ranges(world: &World) -> usize {
    world.store.ranges(&id("all")).len()
}

/// INV-1, INV-3, INV-6: of a key of which much waits nothing more is copied; when its head is taken the rest comes, in
/// order, each once, a piece at a time; others flow meanwhile.
#[test]
fn a_key_of_which_much_waits_gets_a_range_that_is_refilled_and_ends() {
    for kind in KINDS {
        let mut world = narrow(kind, &["order.changed"]);
        commit_stuck(&world, 1, 300);
        world.commit((2..12).flat_map(|key| (0..3).map(move |n| event(key, n))).collect());
        world.start(Target::Forever);
        world.run_until(Duration::from_secs(5), |world| world.delivered("all") == 30);
        assert_eq!((waiting(&world), ranges(&world)), (STUCK, 1), "{kind:?}");
        assert_eq!(world.ranged("all").len(), 270, "{kind:?}");
        let opened = |notice: &&Notice| matches!(notice, Notice::RangeOpened { waiting: 20, .. });
        assert_eq!(world.relays[0].notices.iter().filter(opened).count(), 1, "{kind:?}");
        // What comes later is left out too.
        world.commit((300..320).map(|n| event(1, n)).collect());
        world.run_for(Duration::from_secs(5));
        assert_eq!((waiting(&world), world.ranged("all").len()), (STUCK, 290), "{kind:?}");

        world.place("all").broker.relent();
        let mut most = 0;
        world.run_until(Duration::from_secs(600), |world| {
            most = most.max(waiting(world));
            world.delivered("all") == 350 && ranges(world) == 0
        });
        assert!(most <= STUCK, "{kind:?}: {most}");
        assert_eq!((waiting(&world), world.duplicates("all")), (0, 0), "{kind:?}");
        world.check("all");
    }
}

/// INV-1, INV-3: whoever takes over from a relay that died, at whatever step of a range's life, sends the rest in order.
#[test]
fn a_crash_at_any_step_of_a_range_loses_nothing() {
    for kind in [Kind::ChangeLog, Kind::Snapshot] {
        let mut stages = BTreeSet::new();
        for steps in 0..150 {
            let mut world = narrow(kind, &["order.changed"]);
            commit_stuck(&world, 1, 80);
            world.start(Target::Forever);
            for step in 0..steps {
                if step == 20 {
                    world.place("all").broker.relent();
                }
                if !world.round() {
                    world.pass(Duration::from_secs(3));
                }
            }
            let moved = world.store.ranges(&id("all")).first().map(|range| range.cursor.position());
            stages.insert((moved, world.delivered("all") > 0));
            world.kill(0);
            world.place("all").broker.relent();
            world.commit((2..12).map(|key| event(key, 0)).collect());
            world.clock.advance(world.settings.lease);
            world.start(Target::Forever);
            let most = Duration::from_secs(600);
            world.run_until(most, |world| world.delivered("all") == 90 && waiting(world) == 0);
            world.run_for(Duration::from_secs(5));
            assert_eq!(ranges(&world), 0, "{kind:?}, {steps} steps");
            world.check("all");
        }
        let moves = stages.iter().filter_map(|(moved, _)| *moved).collect::<BTreeSet<_>>().len();
        assert!(stages.contains(&(None, false)), "{kind:?}: before it is open: {stages:?}");
        assert!(moves >= 4, "{kind:?}: it is open, and moved: {stages:?}");
        assert!(stages.contains(&(None, true)), "{kind:?}: it has ended: {stages:?}");
    }
}

/// INV-1: the store is told of a range in the write that passes the range's first row, and not before: whoever read the
/// rows before it again, by other pages, would find them neither before the range nor behind it.
#[test]
fn a_range_is_not_told_of_before_the_cursor_passes_it() {
    for kind in KINDS {
        let mut world = narrow(kind, &["order.changed", "slow"]);
        let gate = Gate::new();
        world.place("all").broker.hold("slow", Some(gate.clone()));
        world.commit(vec![of("slow", 9, 0)]);
        commit_stuck(&world, 1, 36);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(1));
        assert_eq!((waiting(&world), ranges(&world)), (STUCK, 0), "{kind:?}");
        world.kill(0);
        // What is read again is read with more behind it.
        world.commit((2..12).flat_map(|key| (0..20).map(move |n| event(key, n))).collect());
        world.place("all").broker.hold("slow", None);
        gate.open();
        world.place("all").broker.relent();
        world.clock.advance(world.settings.lease);
        world.start(Target::Forever);
        let most = Duration::from_secs(600);
        world.run_until(most, |world| world.delivered("all") == 237 && waiting(world) == 0);
        world.check("all");
    }
}

/// INV-1: what a range stands for is judged by the definition that is there when it is copied. What no route takes any more
/// is a dead letter, and what none took from the beginning is not.
#[test]
fn a_definition_that_changes_while_there_is_a_range_loses_nothing() {
    for changed in [false, true] {
        let both = patient(&["order.changed", "other"]);
        let one = patient(&["order.changed"]);
        let mut world = narrow(Kind::ChangeLog, &["order.changed"]);
        if changed {
            let change = DefinitionChange {
                expected: None,
                put: vec![(both.clone(), Start::Now)],
                remove: vec![],
            };
            now(world.store.apply(&change)).unwrap();
        }
        commit_stuck(&world, 1, 40);
        world.commit((0..10).map(|n| of("other", 1, n)).collect());
        world.commit((40..60).map(|n| event(1, n)).collect());
        world.start_with(vec![if changed { both } else { one.clone() }], Target::Forever);
        world.run_for(Duration::from_secs(5));
        assert_eq!((waiting(&world), ranges(&world)), (STUCK, 1));
        if changed {
            world.kill(0);
            let change = DefinitionChange {
                expected: None,
                put: vec![(one.clone(), Start::Now)],
                remove: vec![],
            };
            now(world.store.apply(&change)).unwrap();
            world.clock.advance(world.settings.lease);
            world.start_with(vec![one], Target::Forever);
        }
        world.place("all").broker.relent();
        world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 60);
        world.run_for(Duration::from_secs(5));
        let left = world.store.waiting(&id("all"));
        assert_eq!((left.len(), ranges(&world)), (if changed { 10 } else { 0 }, 0), "{left:?}");
        assert!(left.iter().all(|row| row.reason == Reason::NoRoute), "{left:?}");
        world.check("all");
    }
}

/// INV-8: a one-shot run is not done before it has read and sent what ranges stand for.
#[test]
fn a_one_shot_run_ends_when_the_ranges_are_empty() {
    for kind in KINDS {
        let mut world = narrow(kind, &["order.changed"]);
        // So few that nothing of the key waits when its range is read on.
        world.settings.range_after = 3;
        commit_stuck(&world, 1, 200);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(5));
        assert_eq!(ranges(&world), 1, "{kind:?}");
        world.kill(0);
        world.place("all").broker.relent();
        world.clock.advance(world.settings.lease);
        let relay = world.start(Target::Once);
        world.run_until(Duration::from_secs(600), |world| world.ending(relay).is_some());
        assert_eq!(world.ending(relay), Some(&Ending::Done), "{kind:?}");
        assert_eq!((world.delivered("all"), waiting(&world)), (200, 0), "{kind:?}");
        assert_eq!(ranges(&world), 0, "{kind:?}");
        world.check("all");
    }
}

/// INV-6: a destination has 64 ranges in a partition. Of more keys all is copied, and nothing of any is lost.
#[test]
fn beyond_so_many_ranges_keys_are_copied() {
    let mut world = narrow(Kind::ChangeLog, &["order.changed"]);
    let keys = RANGES_MAX + 6;
    for key in 0..keys {
        commit_refused(&world, key as u64, 36);
    }
    world.start(Target::Forever);
    let read = |world: &World| waiting(world) + world.store.ranged(&id("all")).len() == keys * 36;
    world.run_until(Duration::from_secs(60), read);
    assert_eq!(ranges(&world), RANGES_MAX);
    assert!(waiting(&world) <= RANGES_MAX * STUCK + 6 * 36, "{}", waiting(&world));
    world.place("all").broker.relent();
    let dead =
        world.store.waiting(&id("all")).into_iter().filter(|row| row.reason == Reason::Rejected);
    world.ask(Verb::Redrive(dead.map(|row| world.row("all", row.row.seq)).collect()));
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == keys * 36);
    world.run_for(Duration::from_secs(5));
    assert_eq!((waiting(&world), ranges(&world), world.duplicates("all")), (0, 0, 0));
    world.check("all");
}

/// INV-8: an operator discards the dead letter that a key waits for: what its range stands for comes in its place.
#[test]
fn what_a_range_stands_for_follows_what_is_discarded() {
    let mut world = narrow(Kind::ChangeLog, &["order.changed"]);
    commit_refused(&world, 1, 100);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    assert_eq!(ranges(&world), 1);
    let rows = world.store.waiting(&id("all"));
    world.ask(Verb::Discard(rows.iter().map(|row| world.row("all", row.row.seq)).collect()));
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 99);
    world.run_for(Duration::from_secs(5));
    assert_eq!(ranges(&world), 0);
    world.check("all");
}
