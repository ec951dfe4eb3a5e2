//! Crowd: at the bound of what waits a destination reads nothing new, and nothing else changes (INV-6).

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::operate::{RowKey, Verb};
use postrider_core::waiting::WaitingState;
use postrider_core::{Destination, Match, OutboxSource, Start};
use postrider_relay::{Blocker, Filling, Notice, State, Target};
use postrider_testkit::fault::{Operation, SourceAction};

use crate::world::{World, event, everything, id, now};

/// So many may wait, and so many rows has a window, in these tests.
const MOST: u64 = 40;
const WINDOW: u32 = 16;

fn crowded(partitions: u16, names: &[&str]) -> World {
    let mut world = World::new(partitions, names.iter().map(|name| everything(name)).collect());
    world.settings.waiting_max = MOST;
    // What waits here is dead, whatever is refused beside it.
    world.settings.held_rows = u32::MAX;
    world.settings.window.rows_max = WINDOW;
    world.settings.window.page_rows_max = WINDOW;
    world
}

/// Commits so many events of keys of their own, which a place refuses for good.
fn commit_poison(world: &World, name: &str, keys: std::ops::Range<u64>) {
    let events: Vec<_> = keys.map(|key| event(key, 1)).collect();
    let ids = events.iter().map(|new| new.event().id).collect::<Vec<_>>();
    world.place(name).broker.refuse(ids);
    world.commit(events);
}

fn waiting(world: &World, name: &str) -> u64 {
    now(world.store.counts(&id(name))).unwrap().total()
}

fn dead(world: &World, name: &str) -> Vec<RowKey> {
    let rows = world.store.waiting(&id(name));
    let dead = rows.into_iter().filter(|row| row.state == WaitingState::Dead);
    dead.map(|row| world.row(name, row.row.seq)).collect()
}

fn is_full(world: &World, name: &str) -> bool {
    world.healths().iter().all(|health| {
        health.blockers.iter().any(
            |blocker| matches!(blocker, Blocker::WaitingFull { destination, .. } if *destination == id(name)),
        )
    })
}

/// What waits stays within its bound and the windows that were open when it was reached.
fn check_bound(world: &World, name: &str, windows: u64) {
    let (waiting, most) = (waiting(world, name), MOST + windows * u64::from(WINDOW));
    assert!(waiting <= most, "INV-6: {waiting} events of {name} wait, {most} may");
}

/// INV-6, INV-8: at the bound nothing new is read and health says why, with a code; when enough was let go, reading goes
/// on by itself, and nothing is lost.
#[test]
pub(crate) fn a_full_destination_stops_and_goes_on_by_itself() {
    let mut world = crowded(1, &["all"]);
    commit_poison(&world, "all", 0..200);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    check_bound(&world, "all", 1);
    assert!(is_full(&world, "all"), "{:?}", world.healths());
    let health = world.healths().remove(0);
    assert_eq!(health.state, State::Blocked);
    assert!(health.blockers[0].to_string().contains("PR-1015"), "{:?}", health.blockers);
    let read = health.rows_read;
    world.run_for(Duration::from_secs(120));
    // The built-in destination has none that wait, and has read all of it.
    assert_eq!(world.healths()[0].rows_read, read, "nothing new is read");
    // A few are not enough.
    world.ask(Verb::Discard(dead(&world, "all").split_off(MOST as usize - 2)));
    world.run_for(Duration::from_secs(60));
    assert!(is_full(&world, "all"), "an eighth has to go first: {}", waiting(&world, "all"));
    while waiting(&world, "all") > 0 {
        world.ask(Verb::Discard(dead(&world, "all")));
        world.run_for(Duration::from_secs(60));
        check_bound(&world, "all", 1);
    }
    assert!(!is_full(&world, "all"));
    world.check("all");
    let lost = 200 - world.store.settled(&id("all")).len();
    assert_eq!(lost, 0, "every event was passed as one that waits");
}

/// INV-5: another destination of the same events goes on, and so does `unrouted`.
#[test]
fn a_full_destination_stops_nobody_else() {
    let mut world = crowded(4, &["sick", "well"]);
    commit_poison(&world, "sick", 0..400);
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| world.delivered("well") == 400);
    world.run_for(Duration::from_secs(10));
    check_bound(&world, "sick", 4);
    assert!(is_full(&world, "sick"));
    world.commit((1_000..1_100).map(|key| event(key, 1)).collect());
    world.run_until(Duration::from_secs(5), |world| world.delivered("well") == 500);
    assert_eq!(world.delivered("sick"), 0);
}

/// INV-1, INV-3: what is redriven is delivered while the destination is full, and everything comes in order at last.
#[test]
fn what_is_redriven_makes_room_for_what_is_new() {
    let mut world = crowded(2, &["all"]);
    // One key in a row, behind its first.
    commit_poison(&world, "all", 7..8);
    world.commit((2..300).map(|n| event(7, n)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    check_bound(&world, "all", 1);
    assert!(is_full(&world, "all"));
    world.place("all").broker.relent();
    world.ask(Verb::Redrive(dead(&world, "all")));
    world.run_until(Duration::from_secs(120), |world| world.delivered("all") == 299);
    assert!(!is_full(&world, "all"));
    world.check("all");
}

/// INV-6: of two relays each counts what the other lets wait.
#[test]
fn two_relays_fill_one_bound_and_not_each_its_own() {
    let mut world = crowded(8, &["all"]);
    world.start(Target::Forever);
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| {
        world.healths().iter().all(|health| health.partitions == 4)
    });
    commit_poison(&world, "all", 0..1_000);
    world.run_for(Duration::from_secs(120));
    check_bound(&world, "all", 8);
    assert!(is_full(&world, "all"));
}

/// INV-6: a relay that starts before a full destination reads nothing of it, though it was never told yet.
#[test]
fn a_relay_that_starts_finds_the_destination_full() {
    let mut world = crowded(1, &["all"]);
    commit_poison(&world, "all", 0..400);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    let before = waiting(&world, "all");
    check_bound(&world, "all", 1);
    for _ in 0..10 {
        world.kill(0);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(60));
        assert_eq!(waiting(&world, "all"), before);
    }
}

/// INV-8: who cannot count goes on with what is known, says so, and counts when it can.
#[test]
fn a_count_that_fails_is_named_and_stops_nobody() {
    let mut world = crowded(1, &["all"]);
    world.source.script(Operation::Counts).always(Some(SourceAction::busy()));
    world.commit((0..100).map(|key| event(key, 1)).collect());
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 100);
    world.run_for(Duration::from_secs(10));
    assert!(matches!(world.healths()[0].blockers[..], [Blocker::Store { .. }, ..]));
    // What it has let wait itself it knows.
    commit_poison(&world, "all", 200..400);
    world.run_for(Duration::from_secs(60));
    check_bound(&world, "all", 1);
    world.source.script(Operation::Counts).always(None);
    world.run_for(Duration::from_secs(60));
    assert!(is_full(&world, "all"));
    assert!(!world.healths()[0].blockers.iter().any(|b| matches!(b, Blocker::Store { .. })));
}

/// INV-8: a cursor that was set back in front of all that waits reads past it, though so many wait.
#[test]
fn what_waits_ahead_of_a_cursor_is_read_past() {
    let mut world = crowded(1, &["all"]);
    commit_poison(&world, "all", 0..40);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(30));
    assert!(is_full(&world, "all"));
    let read = world.healths()[0].rows_read;
    world.ask(Verb::Rewind { destination: id("all"), to: Start::Beginning });
    world.run_for(Duration::from_secs(30));
    let again = world.healths()[0].rows_read - read;
    assert!(again >= MOST, "{again} rows were read again: {:?}", world.healths());
    assert!(is_full(&world, "all"), "and is full again behind them");
}

/// INV-8: half of the bound is said once, and its end as well.
#[test]
fn half_of_the_bound_is_said() {
    let mut world = crowded(1, &["all"]);
    commit_poison(&world, "all", 0..25);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    world.ask(Verb::Discard(dead(&world, "all")));
    world.run_for(Duration::from_secs(60));
    let said: Vec<_> = world.relays[0]
        .notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Waiting { waiting, most, filling, .. } => Some((*waiting, *most, *filling)),
            _ => None,
        })
        .collect();
    assert!(
        matches!(said[..], [(20.., MOST, Filling::Half), (0, MOST, Filling::Less)]),
        "{said:?}"
    );
}

/// A one-shot run that cannot reach its target because so many wait ends, and names that.
#[test]
fn a_one_shot_run_at_the_bound_says_what_holds_it() {
    let mut world = crowded(1, &["all"]);
    commit_poison(&world, "all", 0..200);
    world.start(Target::Once);
    world.run_for(Duration::from_secs(120));
    assert_eq!(world.ending(0), Some(&postrider_relay::Ending::Stalled));
    let health = world.healths().remove(0);
    let named = |blocker: &Blocker| matches!(blocker, Blocker::WaitingFull { .. });
    assert!(health.blockers.iter().any(named), "{health:?}");
}

/// INV-6: dead letters that hold no key, of `unrouted` too, count as well.
#[test]
fn what_holds_no_key_counts() {
    let mut only = everything("none");
    only.routes[0].matches = Match::event_type("nothing.*");
    let mut world = World::new(1, vec![only]);
    (world.settings.waiting_max, world.settings.window.rows_max) = (MOST, WINDOW);
    world.commit((0..200).map(|key| event(key, 1)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    check_bound(&world, Destination::UNROUTED, 1);
    assert!(is_full(&world, Destination::UNROUTED));
    let before = waiting(&world, Destination::UNROUTED);
    world.kill(0);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    // Nobody knew before the count: one window more.
    assert!(waiting(&world, Destination::UNROUTED) <= before + u64::from(WINDOW));
    assert!(is_full(&world, Destination::UNROUTED));
}

/// INV-6: what another relay let wait before it died is counted by the one that takes its partitions over.
#[test]
fn what_a_dead_relay_let_wait_counts() {
    let mut world = crowded(8, &["all"]);
    world.start(Target::Forever);
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| {
        world.healths().iter().all(|health| health.partitions == 4)
    });
    commit_poison(&world, "all", 0..30);
    world.run_for(Duration::from_secs(10));
    world.kill(0);
    world.run_until(Duration::from_secs(60), |world| world.healths()[0].partitions == 8);
    world.run_for(Duration::from_secs(10));
    let before = waiting(&world, "all");
    assert_eq!(before, 30);
    commit_poison(&world, "all", 100..1_000);
    world.run_for(Duration::from_secs(20));
    check_bound(&world, "all", 8);
    assert!(is_full(&world, "all"));
}

/// INV-6: what was discarded counts nowhere, also where a cursor that was set back has it ahead.
#[test]
fn what_was_discarded_ahead_of_a_cursor_makes_no_room() {
    let mut world = crowded(1, &["all"]);
    let history: Vec<_> = (0..150).map(|key| event(key, 1)).collect();
    let ids: Vec<_> = history.iter().map(|new| new.event().id).collect();
    world.commit(history);
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 150);
    commit_poison(&world, "all", 1_000..1_150);
    world.run_for(Duration::from_secs(60));
    while waiting(&world, "all") > 0 {
        world.ask(Verb::Discard(dead(&world, "all")));
        world.run_for(Duration::from_secs(60));
    }
    assert_eq!(world.store.waiting(&id("all")).len(), 150, "all of them were discarded");
    world.place("all").broker.refuse(ids);
    world.ask(Verb::Rewind { destination: id("all"), to: Start::Beginning });
    world.run_for(Duration::from_secs(60));
    check_bound(&world, "all", 1);
    assert!(is_full(&world, "all"), "{:?}", world.healths());
}
