//! Ownership: leases, takeovers, paused owners, fair shares, crashes.

use std::time::Duration;

use postrider_core::ErrorKind;
use postrider_relay::{State, Target};
use postrider_testkit::fault::{BrokerAction, Gate, Operation, SourceAction};

use crate::world::{World, event, id};

/// R008, R009, F1: a relay killed after any number of steps loses nothing and breaks no order.
#[test]
fn a_relay_killed_at_any_step_loses_nothing() {
    for steps in 0..40 {
        let mut world = World::simple();
        world.settings.window.page_rows_max = 20;
        world.commit((0..100).map(|n| event(n % 9, n)).collect());
        world.start(Target::Forever);
        for _ in 0..steps {
            world.round();
        }
        world.kill(0);
        world.start(Target::Forever);
        world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 100);
        world.check("all");
    }
}

/// R036, F1: the second relay takes over when the first is gone, within a lease.
#[test]
fn a_standby_takes_over_within_a_lease() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.healths()[1].state, State::Standby);
    world.kill(0);
    world.commit(vec![event(1, 0)]);
    let spent = world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 1);
    assert!(spent <= world.settings.lease + Duration::from_secs(1), "{spent:?}");
}

/// F11, R114: an owner that is paused beyond its lease publishes nothing when it wakes, and its
/// writes are refused.
#[test]
pub(crate) fn an_owner_that_wakes_late_is_refused() {
    let mut world = World::simple();
    world.commit((0..200).map(|n| event(n % 5, n)).collect());
    world.start(Target::Forever);
    for _ in 0..7 {
        world.round();
    }
    let before = world.delivered("all");
    assert!(before > 0 && before < 200, "{before}");
    world.relays[0].paused = true;
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 200);
    let batches = world.place("all").broker.batches().len();
    world.relays[0].paused = false;
    world.settle_down();
    assert_eq!(world.place("all").broker.batches().len(), batches, "it published nothing");
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.healths()[0].state, State::Standby);
    assert_eq!(world.store.settled(&id("all")).len(), 200);
    world.check("all");
}

/// The lease's formula: with no renewal answered, publishing stops a deadline and a margin before
/// the lease can end.
#[test]
fn publishing_stops_in_time_when_renewals_fail() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(4));
    let start = world.clock.elapsed();
    let cut = SourceAction::FailBefore(ErrorKind::Unavailable);
    world.source.script(Operation::Renew).always(Some(cut.clone()));
    world.source.script(Operation::Acquire).always(Some(cut));
    for n in 0..300 {
        world.commit(vec![event(n, n)]);
        world.run_for(Duration::from_millis(100));
    }
    let last = world.place("all").memory.published().last().unwrap().at - start;
    let settings = world.settings;
    let latest = settings.lease - settings.publish_deadline - settings.margin;
    assert!(last <= latest && last + Duration::from_secs(4) > latest, "{last:?} of {latest:?}");
    world.source.script(Operation::Renew).always(None);
    world.source.script(Operation::Acquire).always(None);
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 300);
    world.check("all");
}

/// The lease's formula counts from when a renewal was sent: one whose answer comes late is older than
/// it looks, and nothing starts that could end after the lease.
#[test]
pub(crate) fn a_lease_counts_from_when_its_renewal_was_sent() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_millis(3_100));
    let start = world.clock.elapsed();
    let gate = Gate::new();
    let never = SourceAction::Hold(Gate::new());
    let renew = world.source.script(Operation::Renew);
    renew.then([SourceAction::HoldAnswer(gate.clone())]);
    renew.always(Some(never.clone()));
    world.source.script(Operation::Acquire).always(Some(never));
    world.run_for(Duration::from_secs(8));
    gate.open();
    for n in 0..200 {
        world.commit(vec![event(n, n)]);
        world.run_for(Duration::from_millis(100));
    }
    let last = world.place("all").memory.published().last().unwrap().at - start;
    let (settings, heartbeat) = (world.settings, world.settings.heartbeat);
    let latest = settings.lease - settings.publish_deadline - settings.margin + heartbeat;
    assert!(last > Duration::from_secs(8) && last <= latest, "{last:?} of {latest:?}");
}

/// R030, R071: several relays share the partitions, none delivers what another owns, also when they
/// come and go.
#[test]
fn relays_share_the_partitions_fairly() {
    let mut world = World::new(8, vec![crate::world::everything("all")]);
    let mut committed = 0;
    for relays in [1usize, 2, 3, 4] {
        world.start(Target::Forever);
        for _ in 0..30 {
            world.commit((0..32).map(|key| event(key, committed)).collect());
            committed += 32;
            world.run_for(Duration::from_secs(1));
        }
        let shares: Vec<_> = world.healths().iter().map(|health| health.partitions).collect();
        assert_eq!(shares.iter().sum::<u16>(), 8, "{shares:?}");
        assert!(
            shares.iter().all(|share| usize::from(*share) <= 8usize.div_ceil(relays)),
            "{shares:?}"
        );
    }
    assert_eq!(world.delivered("all"), committed as usize);
    assert_eq!(world.duplicates("all"), 0, "planned moves are graceful");
    world.check("all");
    while world.relays.len() > 1 {
        world.kill(0);
        world.run_for(Duration::from_secs(40));
        world.commit((0..32).map(|key| event(key, committed)).collect());
        committed += 32;
        world.run_for(Duration::from_secs(10));
        assert_eq!(world.delivered("all"), committed as usize);
    }
    world.check("all");
}

/// An acknowledgement that comes after the partition was lost settles nothing.
#[test]
fn an_answer_that_comes_after_the_lease_is_of_no_effect() {
    let mut world = World::simple();
    world.commit(vec![event(1, 0), event(1, 1)]);
    let gate = Gate::new();
    world.place("all").broker.script.then([BrokerAction::HoldAnswer(gate.clone())]);
    world.start(Target::Forever);
    world.settle_down();
    world.relays[0].paused = true;
    world.start(Target::Forever);
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 2);
    world.relays[0].paused = false;
    gate.open();
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.duplicates("all"), 1, "the one that was under way");
    assert_eq!(world.store.settled(&id("all")).len(), 2);
    world.check("all");
}

/// The fault that fencing is for: without it, the same run would settle twice. The store that
/// ignores tokens is refused by the suite; here the machine is seen to lose its partition.
#[test]
fn a_fenced_settlement_loses_the_partition() {
    let mut world = World::simple();
    world.commit(vec![event(1, 0)]);
    let fenced = SourceAction::FailBefore(ErrorKind::Fenced);
    world.source.script(Operation::Settle).then([fenced]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    let health = world.healths().remove(0);
    assert_eq!((health.fenced, health.leases_lost), (1, 1), "{health:?}");
    assert_eq!(world.store.settled(&id("all")).len(), 1);
}

/// INV-8: a store that says that what is remembered of a partition is void is believed, whatever it was
/// asked: the partition is given up, and loaded anew at the next heartbeat.
#[test]
fn a_void_memory_costs_its_partition_a_heartbeat() {
    for operation in [Operation::Load, Operation::Fetch] {
        let mut world = World::simple();
        world.commit(vec![event(1, 0)]);
        let void = SourceAction::FailBefore(ErrorKind::Conflict);
        world.source.script(operation).then([void]);
        world.start(Target::Forever);
        let spent = world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 1);
        assert!(spent <= Duration::from_secs(5), "{operation:?}: {spent:?}");
        world.check("all");
    }
}

/// INV-3: another server took over and knows nothing of a lease. What its new owner parked ahead of its
/// cursor is not the head of its key for the old one, who has not heard of it.
#[test]
fn an_owner_that_another_server_forgot_takes_nothing_of_what_waits() {
    let mut world = World::simple();
    world.settings.window.rows_max = 8;
    world.settings.window.page_rows_max = 4;
    world.settings.due_every = world.settings.poll_min;
    let standby = world.store.checkpoint();
    let old = world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    world.relays[old].paused = true;
    world.store.fail_over(standby);
    world.commit((0..12).map(|n| event(1, n)).collect());
    let gate = Gate::new();
    world.place("all").broker.script.then([BrokerAction::Hold(gate.clone())]);
    world.start(Target::Forever);
    world.run_for(Duration::from_millis(100));
    assert!(!world.store.waiting(&id("all")).is_empty(), "the new owner parked some");
    world.relays[old].paused = false;
    world.run_for(Duration::from_millis(100));
    gate.open();
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 12);
    world.check("all");
}
