//! Notices: what an operator reads and counts says what happened, once, and never a payload.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::waiting::Reason;
use postrider_core::{Destination, DestinationId, ErrorKind, Route};
use postrider_relay::{Blocker, LostBecause, Notice, Target};
use postrider_testkit::fault::{BrokerAction, Gate, Operation, SourceAction};

use crate::world::{World, event, everything, id};

fn count(world: &World, is: impl Fn(&Notice) -> bool) -> usize {
    world.relays[0].notices.iter().filter(|notice| is(notice)).count()
}

/// R100: each delivery says which event, where to, which attempt, and how long the call took.
#[test]
fn a_delivery_is_noted_with_its_attempt_and_its_time() {
    let mut world = World::simple();
    let gate = Gate::new();
    world.place("all").broker.hold("order.changed", Some(gate.clone()));
    world.commit(vec![event(1, 0)]);
    let created = world.store.committed()[0].event.as_ref().unwrap().created_at;
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(2));
    gate.open();
    world.run_for(Duration::from_secs(2));
    let delivered = world.relays[0].notices.iter().find_map(|notice| match notice {
        Notice::Delivered { subject, attempt, took, created_at, lag, .. } => {
            Some((subject.clone(), *attempt, *took, *created_at, *lag))
        }
        _ => None,
    });
    let (subject, attempt, took, created_at, lag) = delivered.unwrap();
    assert_eq!(
        (subject.key().as_deref(), subject.event_type()),
        (Some("order/1"), Some("order.changed"))
    );
    assert_eq!((subject.topic.as_deref(), subject.route), (Some("order.changed"), Some(0)));
    assert_eq!((subject.destination, attempt, created_at), (id("all"), 1, created));
    assert!(took >= Duration::from_secs(1) && took <= Duration::from_secs(3), "{took:?}");
    assert_eq!(lag, None, "the machine has no wall clock");
}

/// A poison event is warned of at each counted failure, and mourned once; the first of its key that
/// is parked is named, and no other.
#[test]
fn a_dead_letter_is_noted_once_and_its_key_once() {
    let mut world = World::simple();
    let poison = event(1, 0);
    world.place("all").broker.refuse([poison.event().id]);
    world.commit(vec![poison]);
    world.commit((1..9).map(|n| event(1, n)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(3));
    let is_dead = |notice: &Notice| match notice {
        Notice::DeadLetter { subject, reason, detail, attempts, holds_key } => {
            assert_eq!((*reason, *attempts, *holds_key), (Reason::Rejected, 1, true));
            assert!(detail.contains("refused by the script"), "{detail}");
            assert_eq!(subject.topic.as_deref(), Some("order.changed"));
            true
        }
        _ => false,
    };
    assert_eq!(count(&world, is_dead), 1);
    let failed = |notice: &Notice| matches!(notice, Notice::AttemptFailed { delay: None, .. });
    assert_eq!(count(&world, failed), 1);
    assert_eq!(count(&world, |notice| matches!(notice, Notice::Parked { .. })), 1);
    let tally = world.healths()[0].destinations[&id("all")];
    assert_eq!((tally.delivered, tally.failures, tally.dead), (0, 1, 1));
    let text = format!("{:?}", world.relays[0].notices);
    assert!(text.contains("order/1"));
}

/// An endpoint fails, recovers, is gone, and is enabled; each is noted, and names it.
#[test]
fn what_becomes_of_an_endpoint_is_noted() {
    let mut world = World::simple();
    let broker = std::sync::Arc::clone(&world.place("all").broker);
    broker.set_down("order.changed", true);
    world.commit(vec![event(1, 0)]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(30));
    broker.set_down("order.changed", false);
    world.run_for(Duration::from_secs(60));
    broker.set_gone("order.changed", true);
    world.commit(vec![event(1, 1)]);
    world.run_for(Duration::from_secs(3));
    broker.set_gone("order.changed", false);
    world.ask(Verb::Enable { destination: id("all"), topic: "order.changed".to_owned() });
    world.run_for(Duration::from_secs(3));
    let named = |destination: &DestinationId, topic: &str| {
        *destination == id("all") && topic == "order.changed"
    };
    let seen: Vec<&str> = world.relays[0]
        .notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::EndpointFailed { destination, topic, failures: 1, .. } => {
                named(destination, topic).then_some("failed")
            }
            Notice::EndpointRecovered { destination, topic, failures, away } => {
                assert!(*failures > 3 && *away > Duration::from_secs(20), "{notice:?}");
                named(destination, topic).then_some("recovered")
            }
            Notice::EndpointDisabled { destination, topic, detail } => {
                assert!(detail.contains("410"), "{detail}");
                named(destination, topic).then_some("disabled")
            }
            Notice::EndpointEnabled { destination, topic } => {
                named(destination, topic).then_some("enabled")
            }
            Notice::CarriedOut { rows: 1, .. } => Some("carried out"),
            _ => None,
        })
        .collect();
    assert_eq!(seen, ["failed", "recovered", "disabled", "enabled", "carried out"]);
    assert_eq!(world.delivered("all"), 2);
}

/// An outage that goes on for another reason says so, however seldom it is said otherwise: once for each reason.
#[test]
fn another_reason_of_an_outage_is_new() {
    let mut world = World::simple();
    let (away, refused) = (ErrorKind::Unavailable, ErrorKind::Unauthorized);
    let kinds = [away, away, refused, away, refused];
    world.place("all").broker.script.then(kinds.map(BrokerAction::FailBefore));
    world.commit(vec![event(1, 0)]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    world.place("all").broker.script.then([BrokerAction::FailBefore(away)]);
    world.commit(vec![event(1, 1)]);
    world.run_for(Duration::from_secs(60));
    let notices = world.relays[0].notices.iter();
    let said = notices.filter_map(|notice| match notice {
        Notice::EndpointFailed { failures, is_new, .. } => Some((*failures, *is_new)),
        _ => None,
    });
    let expected = [(1, true), (2, false), (3, true), (4, false), (5, false), (1, true)];
    assert_eq!(said.collect::<Vec<_>>(), expected);
    assert_eq!(world.delivered("all"), 2);
}

/// Trouble with the store is said when it begins, when it changes, and when it ends: not each time.
#[test]
fn trouble_is_noted_once_per_change() {
    let mut world = World::new(16, vec![everything("all")]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    for kind in [ErrorKind::DiskFull, ErrorKind::ReadOnly] {
        world.source.script(Operation::Fetch).always(Some(SourceAction::FailBefore(kind)));
        world.run_for(Duration::from_secs(20));
    }
    world.source.script(Operation::Fetch).always(None);
    world.run_for(Duration::from_secs(5));
    let seen: Vec<_> = world.relays[0]
        .notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::StoreTrouble { operation: "fetch", kind, .. } => Some(Some(*kind)),
            Notice::StoreRecovered { operation: "fetch" } => Some(None),
            _ => None,
        })
        .collect();
    // Sixteen partitions read for two destinations, and each meets the trouble by itself.
    assert_eq!(seen, [Some(ErrorKind::DiskFull), Some(ErrorKind::ReadOnly), None]);
}

/// A partition that is taken, lost, and taken again says so, with the reason.
#[test]
fn leases_are_noted() {
    let mut world = World::simple();
    world.commit(vec![event(1, 0)]);
    world.source.script(Operation::Settle).then([SourceAction::FailBefore(ErrorKind::Conflict)]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(20));
    assert_eq!(count(&world, |notice| matches!(notice, Notice::LeaseTaken { .. })), 2);
    assert_eq!(count(&world, |notice| matches!(notice, Notice::Fenced { .. })), 1);
    let refused =
        |notice: &Notice| matches!(notice, Notice::LeaseLost { why: LostBecause::Refused, .. });
    assert_eq!(count(&world, refused), 1);
    let settled = |notice: &Notice| matches!(notice, Notice::Settled { rows: 2, .. });
    assert_eq!(count(&world, settled), 1, "one event, at two destinations");
}

/// INV-8: that relay and store do not agree on a destination is said once, also where others flow: nobody may look at health.
#[test]
fn a_destination_that_is_not_served_is_noted_once() {
    let mut world = World::new(1, ["all", "other", "rest"].map(everything).to_vec());
    world.add_place(everything("added"));
    let route = Route::all("new.{event_type}".parse().unwrap());
    let changed = Destination::new(id("other"), "memory", vec![route]);
    world.start_with(vec![everything("all"), changed, everything("added")], Target::Forever);
    world.run_for(Duration::from_secs(60));
    world.commit(vec![event(1, 0)]);
    world.run_until(Duration::from_secs(30), |world| world.delivered("all") == 1);
    let noted = |notice: &Notice| match notice {
        Notice::NotServed { blocker } => Some(blocker.clone()),
        _ => None,
    };
    let noted: Vec<Blocker> = world.relays[0].notices.iter().filter_map(noted).collect();
    let (other, rest, added) = (id("other"), id("rest"), id("added"));
    let expected = [
        Blocker::Definition { destination: other },
        Blocker::Unnamed { destination: rest },
        Blocker::Absent { destination: added },
    ];
    assert_eq!(noted, expected);
}
