//! Bounds: what must stay small however much there is (INV-6).

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::{Destination, NewEvent, RetryPolicy, Route};
use postrider_relay::Target;

use crate::world::{World, everything, id};

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

/// INV-5, INV-6: a destination that takes nothing holds no more of the relay's memory than it leaves free.
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
    // What one reads beyond its half, it read before the other had read the same.
    let held = world.healths().remove(0).window_bytes;
    let page = 8 * ((128 << 10) + (9 << 10));
    assert!((1 << 20..(2 << 20) + page).contains(&held), "{held} bytes");
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
    assert!(memory < 600_000, "{memory} bytes of text");
}
