//! What operators pause: partitions and destinations stand still, are named, and go on.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::{DestinationState, ErrorKind, PartitionId};
use postrider_relay::{Blocker, State, Target};
use postrider_testkit::fault::{Operation, SourceAction};

use crate::world::{World, event, everything, id};

/// A paused partition is let go when what is under way is saved; the others go on; it comes back.
#[test]
fn a_paused_partition_stands_still_and_the_others_go_on() {
    let mut world = World::new(4, vec![everything("all")]);
    world.start(Target::Forever);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(20));
    let mut n = 0;
    let mut more = |world: &mut World, seconds: u64| {
        for _ in 0..seconds {
            world.commit((0..32).map(|key| event(key, n)).collect());
            n += 1;
            world.run_for(Duration::from_secs(1));
        }
        n as usize * 32
    };
    let before = more(&mut world, 5);
    assert_eq!(world.delivered("all"), before);
    world.store.set_partition(PartitionId(1), true).unwrap();
    world.run_for(Duration::from_secs(8));
    let committed = more(&mut world, 10);
    let delivered = world.delivered("all");
    assert!(delivered > before && delivered < committed, "{before} {delivered} {committed}");
    let owned: u16 = world.healths().iter().map(|health| health.partitions).sum();
    assert_eq!(owned, 3, "nobody owns it");
    assert!(world.healths().iter().all(|health| health.partitions >= 1), "a fair share of three");
    let named = Blocker::PausedPartition { partition: PartitionId(1) };
    assert!(world.healths().iter().all(|health| health.blockers.contains(&named)));
    assert_eq!(world.duplicates("all"), 0, "it was let go with everything saved");
    world.store.set_partition(PartitionId(1), false).unwrap();
    world.run_for(Duration::from_secs(10));
    assert_eq!((world.delivered("all"), world.duplicates("all")), (committed, 0));
    world.check("all");
}

/// A partition that is let go on before its last owner has heard of that is taken all the same, and
/// kept.
#[test]
fn a_partition_that_is_let_go_on_at_once_is_kept() {
    let mut world = World::new(2, vec![everything("all")]);
    world.start(Target::Forever);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(20));
    world.store.set_partition(PartitionId(1), true).unwrap();
    world.run_until(Duration::from_secs(10), |world| {
        world.healths().iter().any(|health| health.partitions == 0)
    });
    world.store.set_partition(PartitionId(1), false).unwrap();
    world.run_for(Duration::from_secs(15));
    let taken = |world: &World| world.healths().iter().map(|health| health.leases_taken).sum();
    let before: u64 = taken(&world);
    world.run_for(Duration::from_secs(30));
    assert!(world.healths().iter().all(|health| health.partitions == 1), "{:?}", world.healths());
    assert_eq!(taken(&world), before, "nobody takes it and lets it go again");
}

/// A relay with nothing to own hears when that changes.
#[test]
fn a_relay_whose_partitions_are_all_paused_stands_by() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    world.store.set_partition(PartitionId(0), true).unwrap();
    world.run_for(Duration::from_secs(10));
    world.commit(vec![event(1, 0)]);
    let wakes = world.wakes;
    world.run_for(Duration::from_secs(60));
    assert!(world.wakes - wakes < 300, "it sleeps: {}", world.wakes - wakes);
    let health = world.healths().remove(0);
    assert_eq!((health.partitions, health.state), (0, State::Standby), "{health:?}");
    assert_eq!(world.delivered("all"), 0);
    world.store.set_partition(PartitionId(0), false).unwrap();
    world.run_until(Duration::from_secs(10), |world| world.delivered("all") == 1);
}

/// INV-8: a paused destination with a backlog does not read as empty; one without does.
#[test]
fn a_paused_destination_with_a_backlog_is_named() {
    let mut world = World::new(2, vec![everything("all"), everything("other")]);
    world.start(Target::Forever);
    world.commit((0..10).map(|key| event(key, 0)).collect());
    world.run_for(Duration::from_secs(3));
    world.store.set_state(&id("all"), DestinationState::Paused).unwrap();
    world.run_for(Duration::from_secs(20));
    let named = |world: &World| {
        let paused = Blocker::Paused { destination: id("all") };
        world.healths()[0].blockers.contains(&paused)
    };
    assert!(!named(&world), "nothing waits for it: {:?}", world.healths());
    assert_eq!(world.healths()[0].state, State::Empty);
    world.commit((0..10).map(|key| event(key, 1)).collect());
    world.run_for(Duration::from_secs(20));
    assert!(named(&world), "{:?}", world.healths());
    assert_eq!(world.healths()[0].state, State::Blocked, "there is something, and it stands");
    let fetches = world.healths()[0].fetches;
    world.run_for(Duration::from_secs(60));
    assert!(world.healths()[0].fetches - fetches < 300, "it is looked at now and then");
    world.store.set_state(&id("all"), DestinationState::Active).unwrap();
    world.run_for(Duration::from_secs(10));
    assert!(!named(&world), "{:?}", world.healths());
    assert_eq!(world.delivered("all"), 20);
}

/// A lease whose release was not heard is released again: nobody waits until it ends.
#[test]
fn a_release_that_failed_is_sent_again() {
    let mut world = World::new(2, vec![everything("all")]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    let failed = SourceAction::FailBefore(ErrorKind::Unavailable);
    world.source.script(Operation::Release).then([failed.clone(), failed]);
    world.start(Target::Forever);
    let spent = world.run_until(Duration::from_secs(60), |world| {
        world.healths().iter().all(|health| health.partitions == 1)
    });
    assert!(spent < world.settings.lease, "{spent:?}");
}

/// INV-8: a grant whose answer was lost is not waited for until it ends.
#[test]
fn a_partition_whose_grant_was_not_heard_is_taken_anew() {
    let mut world = World::new(2, vec![everything("all")]);
    let lost = SourceAction::FailAfter(ErrorKind::Timeout);
    world.source.script(Operation::Acquire).then([lost.clone(), lost]);
    world.commit((0..10).map(|key| event(key, 0)).collect());
    world.start(Target::Forever);
    let most = world.settings.heartbeat * 3;
    let spent = world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 10);
    assert!(spent <= most, "{spent:?}");
    assert_eq!(world.duplicates("all"), 0);
}

/// INV-5: a settlement that the store refuses for good stands still, and is named: its window is not
/// sent again every lease.
#[test]
fn a_settlement_that_is_refused_for_good_does_not_repeat_its_window() {
    let mut world = World::simple();
    let refused = SourceAction::FailBefore(ErrorKind::Invalid);
    world.source.script(Operation::Settle).always(Some(refused));
    world.commit((0..50).map(|key| event(key, 0)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(120));
    assert_eq!((world.delivered("all"), world.duplicates("all")), (50, 0));
    let health = world.healths().remove(0);
    assert_eq!((health.state, health.leases_lost), (State::Blocked, 0), "{health:?}");
    world.source.script(Operation::Settle).always(None);
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.store.settled(&id("all")).len(), 50);
    assert_eq!(world.duplicates("all"), 0);
}
