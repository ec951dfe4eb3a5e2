//! Bounds: what must stay small however much there is (INV-6).

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::{Destination, ErrorKind, Fault, Match, NewEvent, Outcome, RetryPolicy, Route};
use postrider_relay::Target;
use postrider_testkit::fault::{Gate, Operation, SourceAction};

use crate::world::{World, event, everything, id};

/// INV-6: the first pages of all partitions together keep the bound of the whole relay.
#[test]
fn the_first_pages_of_many_partitions_keep_the_bound_of_the_relay() {
    let mut world = World::new(32, vec![everything("all")]);
    let window = &mut world.settings.window;
    window.total_bytes_max = 1 << 20;
    window.bytes_max = 1 << 20;
    window.page_bytes_max = 256 << 10;
    let large = |n: u64| NewEvent::new("order", n.to_string(), "t").bytes(vec![1; 8 << 10], "a/b");
    world.commit((0..3_200).map(large).collect());
    world.place("all").broker.set_down("t", true);
    world.start(Target::Forever);
    // Each of the flows, `unrouted` included, is sure of one page, which may be one event too long.
    let sure = (1 << 20) + 64 * ((256 << 10) / 8 + (9 << 10));
    for _ in 0..100 {
        world.run_for(Duration::from_millis(100));
        let health = world.healths().remove(0);
        assert!(health.window_bytes <= (1 << 20) + sure, "{health:?}");
    }
    world.place("all").broker.set_down("t", false);
    world.run_until(Duration::from_secs(120), |world| world.delivered("all") == 3_200);
}

/// INV-5, INV-6: a destination that takes nothing holds a third of what it leaves, a quarter of the relay's memory.
#[test]
fn a_dead_destination_leaves_room_to_the_others() {
    let mut world = World::new(8, vec![everything("well"), everything("dead")]);
    let window = &mut world.settings.window;
    window.total_bytes_max = 4 << 20;
    window.page_bytes_max = 128 << 10;
    let large = |n: u64| NewEvent::new("order", n.to_string(), "t").bytes(vec![1; 8 << 10], "a/b");
    world.commit((0..4_000).map(large).collect());
    world.place("dead").broker.set_down("t", true);
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| world.delivered("well") == 4_000);
    world.run_for(Duration::from_secs(1));
    // What one reads beyond its part, it read before the other had read the same.
    let held = world.healths().remove(0).window_bytes;
    let page = 8 * ((16 << 10) + (9 << 10));
    assert!(((3 << 20) / 4..(1 << 20) + page).contains(&held), "{held} bytes");
}

/// INV-5, INV-6: however many take nothing, each has a quarter of the memory at most; who is well finds room, and so does
/// each of them when it comes back, while the others are still away.
#[test]
fn however_many_are_dead_there_is_room() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let everyone = names.into_iter().chain(["well"]).map(everything).collect();
    let mut world = World::new(8, everyone);
    let window = &mut world.settings.window;
    (window.total_bytes_max, window.memory_bytes_max) = (4 << 20, 2 << 20);
    window.page_bytes_max = 32 << 10;
    let medium = |n: u64| NewEvent::new("order", n.to_string(), "t").bytes(vec![1; 1 << 10], "a/b");
    world.commit((0..8_000).map(medium).collect());
    names.iter().for_each(|name| world.place(name).broker.set_down("t", true));
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(120), |world| world.delivered("well") == 8_000);
    world.run_for(Duration::from_secs(1));
    let held = world.healths().remove(0).memory_bytes;
    // What they have read together is there once, and counts for each of them.
    let bound = 6 * ((2 << 20) / 4 + 8 * ((4 << 10) + (2 << 10)));
    assert!(held <= bound, "{held} of {bound} bytes");
    for name in names {
        world.place(name).broker.set_down("t", false);
        world.run_until(Duration::from_secs(600), |world| world.delivered(name) == 8_000);
    }
}

/// INV-6: what is acknowledged takes no more memory than its row, also while it cannot be saved.
#[test]
fn what_is_acknowledged_makes_room_before_it_is_saved() {
    let mut world = World::new(1, vec![everything("all")]);
    let window = &mut world.settings.window;
    window.memory_bytes_max = 1 << 20;
    window.page_bytes_max = 128 << 10;
    world.commit((0..400).map(large).collect());
    world.source.script(Operation::Settle).always(Some(SourceAction::busy()));
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 400);
    world.run_for(Duration::from_secs(1));
    let health = world.healths().remove(0);
    assert_eq!(health.window_rows, 2 * 400, "of the destination and the built-in one");
    assert_eq!(health.memory_bytes, 2 * 400 * 32);
    world.source.script(Operation::Settle).always(None);
    world.run_until(Duration::from_secs(60), |world| world.healths()[0].window_rows == 0);
}

/// INV-6: what enters `waiting` is needed until that is written, and counts until then.
#[test]
fn what_enters_waiting_counts_until_it_is_written() {
    let mut world = World::new(1, vec![everything("all")]);
    let events: Vec<_> = (0..40).map(large).collect();
    let ids: Vec<_> = events.iter().map(|new| new.event().id).collect();
    world.commit(events);
    let fault = Fault::new(ErrorKind::Rejected, "no good");
    world.place("all").broker.answer(ids, &Outcome::Rejected(fault));
    world.source.script(Operation::Settle).always(Some(SourceAction::busy()));
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    let health = world.healths().remove(0);
    assert!(health.memory_bytes >= 40 * (8 << 10), "{health:?}");
    world.source.script(Operation::Settle).always(None);
    world.run_until(Duration::from_secs(60), |world| world.healths()[0].dead == 40);
    world.run_until(Duration::from_secs(60), |world| world.healths()[0].memory_bytes == 0);
}

/// INV-5, INV-6: a key that is held up fills the memory and no more; and other partitions are delivered at once,
/// though nothing is left of the bound.
#[test]
fn a_full_memory_stops_the_partition_alone_that_fills_it() {
    let mut world = World::new(8, vec![everything("all")]);
    let window = &mut world.settings.window;
    window.memory_bytes_max = 1 << 20;
    window.page_bytes_max = 128 << 10;
    let slow = |n: u64| NewEvent::new("slow", "1", "slow").bytes(vec![n as u8; 8 << 10], "a/b");
    world.place("all").broker.hold("slow", Some(Gate::new()));
    world.commit((0..400).map(slow).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(2));
    for round in 1..=20 {
        world.commit((0..80).map(|n| event(n, round)).collect());
        // Longer than the slowest poll.
        world.run_for(Duration::from_millis(600));
        let health = world.healths().remove(0);
        // The partition's page may be one event too long, and each other one is sure of a page beside it.
        assert!(health.memory_bytes <= (1 << 20) + (128 << 10) + (9 << 10), "{health:?}");
        let (delivered, committed) = (world.delivered("all") as u64, 80 * round);
        assert!(delivered * 8 > committed * 5, "{delivered} of {committed}: {health:?}");
    }
    let held = world.healths().remove(0).memory_bytes;
    assert!(held > (1 << 20) - (128 << 10), "the bound was not reached: {held}");
}

fn large(n: u64) -> NewEvent {
    NewEvent::new("order", n.to_string(), "t").bytes(vec![1; 8 << 10], "a/b")
}

/// Settings under which a window is full after a few hundred events.
fn narrow(world: &mut World) {
    let window = &mut world.settings.window;
    (window.rows_max, window.page_rows_max) = (200, 50);
}

/// What comes to one broker is answered so long after it came, until something holds.
fn answer_every(world: &mut World, place: &str, span: Duration, holds: impl Fn(&World) -> bool) {
    for _ in 0..2_000 {
        if holds(world) {
            world.place(place).broker.hold("order.changed", None);
            return;
        }
        let gate = Gate::new();
        world.place(place).broker.hold("order.changed", Some(gate.clone()));
        world.run_for(span);
        gate.open();
    }
    panic!("{:#?}", world.healths());
}

/// INV-6: who waits for a broker is not left behind by the built-in destination: each row is read once.
#[test]
fn a_backlog_is_read_once_whatever_is_slow_or_dead() {
    let mut world = World::new(2, vec![everything("slow"), everything("dead")]);
    narrow(&mut world);
    world.commit((0..4_000).map(|n| event(n % 100, n)).collect());
    world.place("dead").broker.set_down("order.changed", true);
    world.start(Target::Forever);
    let all = |world: &World| world.delivered("slow") == 4_000;
    answer_every(&mut world, "slow", Duration::from_millis(20), all);
    let read = world.healths().remove(0).rows_read;
    assert!((4_000..4_200).contains(&read), "{read} rows for 4,000 events");
}

/// INV-5: a broker that answers nothing does not hide the events that have no route.
#[test]
fn events_without_a_route_are_found_while_a_broker_is_silent() {
    let only = Route::all("orders".parse().unwrap()).only(Match::event_type("order.*"));
    let mut world = World::new(1, vec![Destination::new(id("all"), "memory", vec![only])]);
    narrow(&mut world);
    world.place("all").broker.hold("orders", Some(Gate::new()));
    world.commit((0..300).map(|n| event(n % 50, n)).collect());
    world.commit(vec![NewEvent::new("lost", "1", "nobody.wants").json(&1).unwrap()]);
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(5), |world| world.healths()[0].dead == 1);
    assert_eq!(world.delivered("all"), 0);
}

/// INV-1: the built-in destination begins late, and meets a slow one where that stands: it goes on alone, to where the
/// fast one is. What stays behind would judge by later routes what others have passed.
#[test]
fn the_built_in_destination_does_not_stay_with_a_slow_one_that_it_meets() {
    let orders = |name| {
        let route = Route::all("{event_type}".parse().unwrap()).only(Match::event_type("order.*"));
        Destination::new(id(name), "memory", vec![route])
    };
    let mut world = World::new(1, vec![orders("fast"), orders("slow")]);
    narrow(&mut world);
    world.commit((0..4_000).map(|n| event(n % 100, n)).collect());
    world.commit(vec![NewEvent::new("lost", "1", "nobody.wants").json(&1).unwrap()]);
    let late = SourceAction::FailBefore(ErrorKind::Unavailable);
    world.source.script(Operation::Load).then([SourceAction::Pass, SourceAction::Pass, late]);
    world.start(Target::Forever);
    let found = |world: &World| world.healths()[0].dead == 1;
    answer_every(&mut world, "slow", Duration::from_millis(250), found);
    assert_eq!(world.delivered("fast"), 4_000);
    let slow = world.delivered("slow");
    assert!(slow < 3_000, "the slow one has delivered {slow} meanwhile");
}

/// INV-5: a destination whose broker is slow does not slow down another one.
#[test]
fn a_slow_destination_does_not_hold_another() {
    let mut world = World::new(1, vec![everything("slow"), everything("well")]);
    narrow(&mut world);
    world.commit((0..4_000).map(|n| event(n % 100, n)).collect());
    world.start(Target::Forever);
    let all = |world: &World| world.delivered("well") == 4_000;
    answer_every(&mut world, "slow", Duration::from_millis(50), all);
    let slow = world.delivered("slow");
    assert!(slow < 2_000, "the slow one is at {slow} already");
    world.run_until(Duration::from_secs(5), |world| world.delivered("slow") == 4_000);
    world.check("slow");
    world.check("well");
}

/// INV-6: a topic for each event does not cost memory for each event.
#[test]
fn endpoints_that_were_used_once_are_forgotten() {
    let retry = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
    let route = Route::all("to.{id}".parse().unwrap()).retry(retry);
    let definition = Destination::new(id("all"), "memory", vec![route]);
    let mut world = World::new(2, vec![definition]);
    world.start(Target::Forever);
    for n in 0..20u64 {
        let events = (0..500).map(|k| NewEvent::new("order", format!("{}", k % 50), "t").json(&n));
        world.commit(events.map(Result::unwrap).collect());
        world.run_for(Duration::from_secs(2));
    }
    assert_eq!(world.delivered("all"), 10_000);
    world.check("all");
    let memory = format!("{:?}", world.relays[0].machine).len();
    assert!(memory < 750_000, "{memory} bytes of text");
}
