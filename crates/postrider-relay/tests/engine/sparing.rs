//! Sparing: a store asks for fewer saves of its cursors, and gets them, and nothing else becomes rarer or later.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::{Clock, Fault, NewEvent, Outcome};
use postrider_relay::{Ending, Input, SAVES_APART_MAX, Settings, State, Target};
use postrider_testkit::fault::Gate;

use crate::world::{World, event};

const SECOND: Duration = Duration::from_secs(1);

/// A world whose store asks for so much time between saves, and a relay that has heard it and has saved once.
fn world(apart: Duration) -> World {
    let mut world = World::simple();
    world.store.ask_saves_apart(apart);
    heard(&mut world);
    world
}

fn heard(world: &mut World) {
    world.start(Target::Forever);
    world.run_for(2 * world.settings.heartbeat);
    world.commit(vec![event(0, 0)]);
    world.run_for(2 * SECOND);
    assert_eq!(unsaved(world), 0, "the first save under a lease comes as ever");
}

fn unsaved(world: &World) -> u64 {
    world.healths()[0].window_rows
}

/// Settlements while an event comes each half of a second, for a minute.
fn settlements_of_a_minute(world: &mut World) -> u64 {
    let before = world.healths()[0].settlements;
    for n in 1..=120 {
        world.commit(vec![event(n % 7, n)]);
        world.run_for(SECOND / 2);
    }
    world.healths()[0].settlements - before
}

/// INV-6: saves are spread as the store asks, and come each second again when it does not.
#[test]
fn a_store_that_asks_for_fewer_saves_gets_fewer() {
    let mut world = world(Duration::from_secs(10));
    let spread = settlements_of_a_minute(&mut world);
    assert!((5..=7).contains(&spread), "{spread} saves");
    assert_eq!(world.delivered("all"), 121, "what is delivered is not late");
    world.store.ask_saves_apart(Duration::ZERO);
    world.run_for(world.settings.heartbeat);
    let usual = settlements_of_a_minute(&mut world);
    assert!((40..=121).contains(&usual), "{usual} saves");
}

/// INV-6: whatever a store asks for, half a minute is the longest; and health does not call it a standstill.
#[test]
fn half_a_minute_is_the_longest() {
    let mut world = world(3_600 * SECOND);
    world.commit(vec![event(1, 1)]);
    world.run_for(SAVES_APART_MAX - SECOND);
    assert_eq!(world.delivered("all"), 2);
    assert!(unsaved(&world) > 0, "it was saved already");
    assert_eq!(world.healths()[0].state, State::Empty);
    world.run_for(2 * SECOND);
    assert_eq!(unsaved(&world), 0);
}

/// INV-6, INV-8: a save comes at half of a window, so that a backlog goes on at once, and a crash delivers no more than a
/// window again.
#[test]
fn a_save_comes_at_half_of_a_window() {
    let mut world = World::simple();
    world.settings.window.rows_max = 80;
    world.settings.window.page_rows_max = 10;
    world.store.ask_saves_apart(3_600 * SECOND);
    heard(&mut world);
    let before = world.healths()[0].settlements;
    world.commit((1..=400).map(|n| event(n, n)).collect());
    let took = world.run_until(60 * SECOND, |world| world.delivered("all") == 401);
    assert!(took < 2 * SECOND, "it waited {took:?} for saves");
    let saves = world.healths()[0].settlements - before;
    assert!(saves <= 14, "{saves} saves of 400 rows, though 40 are half of a window");
    let published = world.place("all").memory.published().len();
    world.kill(0);
    world.start(Target::Forever);
    world.run_for(60 * SECOND);
    let again = world.place("all").memory.published().len() - published;
    assert!((1..=80).contains(&again), "{again} events came again");
}

/// INV-6: half of a window is as much as a crash may deliver again where nothing else comes.
#[test]
fn half_of_a_window_is_not_left_for_later() {
    let mut world = World::simple();
    world.settings.window.rows_max = 80;
    world.settings.window.page_rows_max = 10;
    world.store.ask_saves_apart(3_600 * SECOND);
    heard(&mut world);
    world.commit((1..=39).map(|n| event(n, n)).collect());
    world.run_for(2 * SECOND);
    assert_eq!(unsaved(&world), 2 * 39, "of the destination and the built-in one");
    world.commit((40..=45).map(|n| event(n, n)).collect());
    world.run_for(2 * SECOND);
    assert!(unsaved(&world) <= 2 * 6, "{} rows are not saved", unsaved(&world));
}

/// INV-8: a window of which less than half is settled, and that has no room, saves as ever.
#[test]
fn a_full_window_does_not_wait_for_its_half() {
    let mut world = World::simple();
    world.settings.window.rows_max = 80;
    world.settings.window.page_rows_max = 10;
    world.store.ask_saves_apart(3_600 * SECOND);
    heard(&mut world);
    let (first, rest) = (Gate::new(), Gate::new());
    let broker = &world.place("all").broker;
    broker.hold("first", Some(first.clone()));
    broker.hold("rest", Some(rest.clone()));
    let of = |topic: &'static str| move |n: u64| NewEvent::new("order", n.to_string(), topic);
    world.commit((1..=35).map(of("first")).collect());
    world.commit((36..=75).map(of("rest")).collect());
    world.run_for(2 * SECOND);
    let before = world.healths().remove(0);
    first.open();
    world.run_until(SECOND, |world| world.delivered("all") == 36);
    world.run_for(2 * SECOND);
    let after = world.healths().remove(0);
    assert!(after.settlements > before.settlements, "{after:?}");
    assert!(after.window_rows < before.window_rows, "{after:?}");
    rest.open();
}

/// What enters or changes in `waiting` is written at once.
#[test]
fn what_waits_is_written_as_ever() {
    let mut world = world(3_600 * SECOND);
    let poison = event(1, 1);
    let fault = Fault::new(postrider_core::ErrorKind::Rejected, "no good");
    let ids = [poison.event().id];
    world.place("all").broker.answer(ids, &Outcome::Rejected(fault));
    world.commit(vec![poison]);
    let took = world.run_until(60 * SECOND, |world| world.healths()[0].dead == 1);
    assert!(took <= SECOND, "{took:?}");
}

/// INV-6: whoever ends saves at once, and nothing comes again.
#[test]
fn whoever_ends_saves_at_once() {
    let mut world = world(3_600 * SECOND);
    world.commit((1..=20).map(|n| event(n, n)).collect());
    world.run_for(2 * SECOND);
    assert!(unsaved(&world) > 0, "it was saved already");
    let tick = world.clock.tick();
    world.relays[0].machine.step(tick, Input::Drain);
    world.run_for(SECOND);
    assert_eq!(world.ending(0), Some(&Ending::Drained));
    world.start(Target::Once);
    world.run_for(20 * SECOND);
    assert_eq!(world.ending(1), Some(&Ending::Done));
    assert_eq!(world.place("all").memory.published().len(), 21);
}

/// A longer time of one's own stands.
#[test]
fn a_longer_time_of_the_settings_stands() {
    let settings = Settings { save_after: 60 * SECOND, ..Settings::default() };
    assert_eq!(settings.save_interval(10 * SECOND), 60 * SECOND);
}
