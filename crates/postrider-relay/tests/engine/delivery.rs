//! Delivery: order, batches, ends of drains, scheduled events.

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::{Clock, DeadKeyPolicy, Destination, Match, Route};
use postrider_relay::{Ending, Input, Target};

use crate::world::{World, event, everything, id, number};

/// R010, R068: events of one key arrive in the order in which they were committed.
#[test]
fn a_backlog_arrives_in_key_order() {
    let mut world = World::simple();
    for n in 0..100 {
        world.commit((0..50).map(|key| event(key, n)).collect());
    }
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(30), |world| world.delivered("all") == 5_000);
    world.check("all");
    assert_eq!(world.duplicates("all"), 0);
}

/// R029, R034: a backlog is read in pages, without a pause between them.
#[test]
fn a_backlog_is_read_in_pages_without_sleeping() {
    let mut world = World::simple();
    world.commit((0..1_000).map(|key| event(key, 0)).collect());
    world.start(Target::Once);
    let spent = world.run_until(Duration::from_secs(9), |world| world.ending(0).is_some());
    assert_eq!(spent, Duration::ZERO);
    assert!(world.healths()[0].fetches <= 10, "{:?}", world.healths());
}

/// INV-8: without wake-ups, what is committed to any partition is soon found while something is committed to
/// another one.
#[test]
fn who_finds_something_looks_everywhere_soon() {
    let mut world = World::new(16, vec![everything("all")]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(20));
    world.commit(vec![event(0, 0)]);
    world.run_until(Duration::from_secs(1), |world| world.delivered("all") == 1);
    for n in 1..40 {
        world.run_for(Duration::from_millis(100));
        world.commit(vec![event(n, n)]);
        let two = world.settings.poll_min * 2;
        world.run_until(two, |world| world.delivered("all") == n as usize + 1);
    }
}

/// R038: a one-shot run delivers what was committed when it started, and ends.
#[test]
fn a_one_shot_run_ends_when_it_has_delivered_what_was_there() {
    let mut world = World::simple();
    world.commit((0..2_500).map(|key| event(key, 0)).collect());
    world.start(Target::Once);
    world.run_until(Duration::from_secs(9), |world| world.ending(0).is_some());
    assert_eq!(world.ending(0), Some(&Ending::Done));
    assert_eq!(world.delivered("all"), 2_500);
    assert_eq!(world.store.settled(&id("all")).len(), 2_500);
    // Nobody need wait for its lease.
    world.start(Target::Once);
    let spent = world.run_until(Duration::from_secs(9), |world| world.ending(1).is_some());
    assert_eq!((world.ending(1), spent), (Some(&Ending::Done), Duration::ZERO));
    assert_eq!(world.duplicates("all"), 0);
}

#[test]
fn a_one_shot_run_on_an_empty_outbox_ends_at_once() {
    let mut world = World::simple();
    world.start(Target::Once);
    let spent = world.run_until(Duration::from_secs(9), |world| world.ending(0).is_some());
    assert_eq!((world.ending(0), spent), (Some(&Ending::Done), Duration::ZERO));
}

#[test]
fn a_one_shot_run_gives_up_when_nothing_moves() {
    let mut world = World::simple();
    world.commit(vec![event(1, 0)]);
    world.place("all").broker.set_down("order.changed", true);
    world.start(Target::Once);
    let spent = world.run_until(Duration::from_secs(120), |world| world.ending(0).is_some());
    assert_eq!(world.ending(0), Some(&Ending::Stalled));
    assert!(spent >= world.settings.stall, "{spent:?}");
}

#[test]
fn a_one_shot_run_names_who_holds_the_lease() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    world.start(Target::Once);
    world.run_until(Duration::from_secs(120), |world| world.ending(1).is_some());
    assert!(matches!(world.ending(1), Some(Ending::HeldBy(_))), "{:?}", world.ending(1));
}

/// F39: a drained relay has saved what it delivered and let its leases go.
#[test]
pub(crate) fn a_drained_relay_leaves_no_duplicates_behind() {
    let mut world = World::simple();
    world.commit((0..3_000).map(|key| event(key % 70, key)).collect());
    world.start(Target::Forever);
    for _ in 0..6 {
        world.round();
    }
    let tick = world.clock.tick();
    world.relays[0].machine.step(tick, Input::Drain);
    world.run_until(Duration::from_secs(1), |world| world.ending(0).is_some());
    assert_eq!(world.ending(0), Some(&Ending::Drained));
    let before = world.delivered("all");
    assert!(before > 0 && before < 3_000, "{before}");
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(9), |world| world.delivered("all") == 3_000);
    assert_eq!(world.duplicates("all"), 0);
    world.check("all");
}

#[test]
fn what_no_route_takes_is_a_dead_letter_and_what_a_route_drops_is_not() {
    let only = |pattern| Route::all("t".parse().unwrap()).only(Match::event_type(pattern));
    let routes = vec![only("order.placed"), only("order.noise").dropping()];
    let mut world = World::new(1, vec![Destination::new(id("some"), "memory", routes)]);
    let of = |kind| postrider_core::NewEvent::new("order", "1", kind);
    world.commit(vec![of("order.placed"), of("order.noise"), of("order.lost"), of("order.placed")]);
    world.start(Target::Once);
    world.run_until(Duration::from_secs(9), |world| world.ending(0).is_some());
    assert_eq!(world.place("some").memory.received("t").len(), 2);
    let waiting = world.store.waiting(&id("unrouted"));
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].reason, postrider_core::waiting::Reason::NoRoute);
    assert!(world.store.waiting(&id("some")).is_empty());
}

/// R126: a row that cannot be read is parked, never dropped, and its key waits behind it.
#[test]
fn a_malformed_row_is_a_dead_letter_and_the_rest_flows() {
    let mut world = World::simple();
    world.commit(vec![event(1, 0)]);
    world.store.insert_malformed();
    world.commit(vec![event(2, 0)]);
    world.start(Target::Once);
    world.run_until(Duration::from_secs(9), |world| world.ending(0).is_some());
    assert_eq!(world.delivered("all"), 2);
    let waiting = world.store.waiting(&id("all"));
    assert_eq!((waiting.len(), waiting[0].holds_key), (1, true));
}

#[test]
fn scheduled_events_enter_when_they_are_due() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    let due = world.clock.now().plus(Duration::from_secs(3_600));
    world.commit(vec![event(1, 7).deliver_after(due)]);
    world.run_for(Duration::from_secs(3_590));
    assert_eq!(world.delivered("all"), 0);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.delivered("all"), 1);
}

/// R038: scheduled events that are due when a one-shot run starts are a part of what it delivers.
#[test]
fn a_one_shot_run_delivers_what_was_scheduled_and_is_due() {
    let mut world = World::simple();
    let due = world.clock.now().plus(Duration::from_secs(60));
    let events = (0..2_500).map(|n| event(n, 0).deliver_after(due)).collect();
    world.commit(events);
    world.commit(vec![event(9_000, 0)]);
    world.clock.advance(Duration::from_secs(61));
    world.start(Target::Once);
    world.run_until(Duration::from_secs(9), |world| world.ending(0).is_some());
    assert_eq!((world.ending(0), world.delivered("all")), (Some(&Ending::Done), 2_501));
}

/// INV-6: whatever the backlog, the relay holds no more than its windows.
#[test]
fn the_window_bounds_what_is_read_ahead() {
    let mut world = World::simple();
    world.settings.window.rows_max = 800;
    world.settings.window.page_rows_max = 100;
    for _ in 0..10 {
        world.commit((0..1_000).map(|key| event(key, 0)).collect());
    }
    world.place("all").broker.set_down("order.changed", true);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    let health = world.healths().remove(0);
    assert_eq!(health.window_rows, 800, "{health:?}");
    world.place("all").broker.set_down("order.changed", false);
    world.run_until(Duration::from_secs(120), |world| world.delivered("all") == 10_000);
    world.check("all");
}

/// INV-6 and F37: a hot key waits in the store instead of filling the window.
#[test]
fn a_hot_key_does_not_hold_the_others() {
    let mut world = World::simple();
    world.settings.window.rows_max = 400;
    world.settings.window.page_rows_max = 100;
    world.commit((0..2_000).map(|n| event(0, n)).collect());
    world.commit((1..50).map(|key| event(key, 0)).collect());
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 2_049);
    world.check("all");
    let published = world.place("all").memory.published();
    let others = published.iter().rposition(|p| p.event.aggregate_id.as_ref() != "0").unwrap();
    assert!(others < 2_000, "the other keys came last, at {others}");
}

/// R122: the three policies of a key with a dead letter.
#[test]
pub(crate) fn dead_letters_park_skip_or_halt_their_key() {
    for (policy, arrive, dead) in [
        (DeadKeyPolicy::Park, vec![1], 1),
        (DeadKeyPolicy::Skip, vec![1, 3, 4], 1),
        (DeadKeyPolicy::Halt, vec![1], 0),
    ] {
        let mut destination = everything("all");
        destination.routes[0].dead_key = policy;
        let mut world = World::new(1, vec![destination]);
        let events: Vec<_> = (1..5).map(|n| event(7, n)).collect();
        world.place("all").broker.refuse([events[1].event().id]);
        world.commit(events);
        world.commit(vec![event(8, 1)]);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(3_600));
        let of_key = |key: &str| -> Vec<u64> {
            let received = world.place("all").memory.received("order.changed");
            received.iter().filter(|e| &*e.aggregate_id == key).map(|e| number(e)).collect()
        };
        assert_eq!(of_key("7"), arrive, "{policy:?}");
        assert_eq!(of_key("8"), vec![1]);
        let counts =
            crate::world::now(postrider_core::OutboxSource::counts(&world.store, &id("all")));
        let counts = counts.unwrap();
        assert_eq!(counts.dead, dead, "{policy:?}: {counts:?}");
        let waiting = if policy == DeadKeyPolicy::Skip { 0 } else { 2 };
        assert_eq!(counts.parked, waiting, "{policy:?}: {counts:?}");
        // The cursor has passed them all: INV-8.
        assert_eq!(world.store.settled(&id("all")).len(), 5, "{policy:?}");
    }
}

/// INV-3: what is committed after a dead letter that holds its key waits for it, and comes after it.
#[test]
pub(crate) fn what_follows_a_dead_letter_comes_after_it() {
    let mut world = World::simple();
    let poison = event(1, 0);
    world.place("all").broker.refuse([poison.event().id]);
    world.commit(vec![poison]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(2));
    world.commit(vec![event(1, 1), event(2, 0)]);
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.delivered("all"), 1, "the other key flows");
    world.place("all").broker.relent();
    world.ask(Verb::Redrive(vec![world.row("all", 1)]));
    world.run_until(Duration::from_secs(10), |world| world.delivered("all") == 3);
    world.check("all");
}
