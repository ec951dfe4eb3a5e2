//! Outdated: what a store refused of work that a relay has no more of is not held against the store.

use std::time::Duration;

use postrider_core::{Code, ErrorKind};
use postrider_relay::{Blocker, Health, State, Target};
use postrider_testkit::fault::{Operation, SourceAction};

use crate::world::{World, event, everything};

fn refuse(world: &World, operations: &[Operation], kind: Option<ErrorKind>) {
    for operation in operations {
        world.source.script(*operation).always(kind.map(SourceAction::FailBefore));
    }
}

/// What a relay says of its store.
fn said(health: &Health) -> Vec<&Blocker> {
    health.blockers.iter().filter(|blocker| matches!(blocker, Blocker::Store { .. })).collect()
}

/// INV-8: who lost its partition in an outage of the store, and only stands by since, is not held up by that outage for
/// ever: it asks for nothing that could tell it otherwise.
#[test]
fn who_stands_by_after_an_outage_is_not_blocked_by_it() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    world.start(Target::Forever);
    let away = Operation::ALL;
    let poison = event(2, 0);
    world.place("all").broker.refuse([poison.event().id]);
    world.commit(vec![poison]);
    let mut changed = 0;
    for n in 0..20 {
        let owner = |world: &World| world.healths()[0].partitions;
        let before = owner(&world);
        refuse(&world, &away, Some(ErrorKind::Unavailable));
        world.commit(vec![event(1, n)]);
        world.run_for(world.settings.lease * 2);
        for health in world.healths() {
            assert_eq!((health.state, health.partitions), (State::Blocked, 0), "{health:?}");
        }
        refuse(&world, &away, None);
        world.run_for(world.settings.lease * 2);
        changed += u32::from(owner(&world) != before);
        for health in world.healths() {
            assert_eq!(said(&health), Vec::<&Blocker>::new(), "{:?}", health.state);
            assert_ne!(health.state, State::Blocked);
        }
    }
    assert!(changed > 0, "some other relay was first");
}

/// INV-8: a lease that could not be let go has ended by itself, and nobody is held up by it any more.
#[test]
fn a_lease_that_ended_by_itself_holds_nobody_up() {
    let mut world = World::new(4, vec![everything("all")]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    refuse(&world, &[Operation::Release], Some(ErrorKind::Unavailable));
    world.start(Target::Forever);
    world.run_for(world.settings.lease / 2);
    assert_eq!(said(&world.healths()[0]).len(), 1, "{:?}", world.healths()[0].blockers);
    world.run_for(world.settings.lease * 4);
    refuse(&world, &[Operation::Release], None);
    for health in world.healths() {
        assert_eq!(health.partitions, 2, "the other two ended");
        assert_eq!(said(&health), Vec::<&Blocker>::new(), "{:?}", health.state);
    }
}

/// INV-8: what stands before a relay that owns nothing is what the store says now, and not what it said of work that
/// went with the partitions.
#[test]
fn who_owns_nothing_says_what_the_store_says_now() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    let away = [Operation::CarryOut, Operation::Renew, Operation::Acquire, Operation::Fetch];
    refuse(&world, &away, Some(ErrorKind::Unavailable));
    world.commit(vec![event(1, 1)]);
    world.run_for(world.settings.lease * 2);
    refuse(&world, &away, Some(ErrorKind::Unauthorized));
    world.run_for(world.settings.lease);
    let health = &world.healths()[0];
    let [Blocker::Store { code, .. }] = said(health)[..] else { panic!("{:?}", health.blockers) };
    assert_eq!((*code, health.state), (Some(Code::Unauthorized), State::Blocked));
}
