//! Absent: a store that has none of a relay's destinations.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::source::DefinitionChange;
use postrider_core::{OutboxSource, Start};
use postrider_relay::{Blocker, State, Target};
use postrider_testkit::memory::MemoryStore;

use crate::world::{World, event, everything, id, now};

/// Whether each relay says that the destination is not in its store.
fn all_miss_it(world: &World) -> bool {
    let absent = Blocker::Absent { destination: id("all") };
    world.healths().iter().all(|health| health.blockers.contains(&absent))
}

/// INV-8: a store that has none of a relay's destinations is named, whether somebody removed them or a standby from before
/// they were made has taken over; who owns a partition and who owns none goes on by itself when they are there.
#[test]
fn a_store_without_its_destinations_is_not_empty() {
    for removed in [true, false] {
        let mut world = World::simple();
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(5));
        assert_eq!((world.healths()[0].state, all_miss_it(&world)), (State::Empty, false));
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(5));
        if removed {
            let change =
                DefinitionChange { remove: vec![id("all")], ..DefinitionChange::default() };
            now(world.store.apply(&change)).unwrap();
        } else {
            let fresh = MemoryStore::new(1, world.clock.clone());
            world.store.fail_over(fresh.checkpoint());
        }
        world.run_for(Duration::from_secs(60));
        assert!(all_miss_it(&world), "{removed}: {:#?}", world.healths());
        assert!(world.healths().iter().all(|health| health.state == State::Blocked));
        let put = vec![(everything("all"), Start::Now)];
        now(world.store.apply(&DefinitionChange { put, ..DefinitionChange::default() })).unwrap();
        world.run_for(Duration::from_secs(60));
        world.commit(vec![event(1, 1)]);
        world.run_until(Duration::from_secs(30), |world| world.delivered("all") == 1);
        let told = world.healths().iter().any(|health| {
            health.blockers.iter().any(|blocker| matches!(blocker, Blocker::Absent { .. }))
        });
        assert!(!told, "{removed}: {:#?}", world.healths());
    }
}
