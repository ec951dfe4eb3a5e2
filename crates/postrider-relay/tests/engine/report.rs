//! Reports: what keeps a relay from delivering stands in the store while it does.

use std::time::Duration;

use postrider_core::ErrorKind;
use postrider_relay::Target;
use postrider_testkit::fault::{BrokerAction, Operation, SourceAction};

use crate::world::{World, event};

const LONG: Duration = Duration::from_secs(120);

/// INV-8: an endpoint that takes nothing is named with its words, and no longer once it takes what it gets.
#[test]
fn an_endpoint_that_fails_is_told_of_until_it_recovers() {
    let mut world = World::simple();
    world.commit((0..3).map(|key| event(key, 0)).collect());
    let broker = &world.place("all").broker;
    broker.script.then((0..12).map(|_| BrokerAction::RetryNamed { after: None }));
    world.start(Target::Forever);
    world.run_until(LONG, |world| !world.store.hindrances().is_empty());
    let found = world.store.hindrances();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].destination.as_ref().map(|id| id.as_str()), Some("all"));
    assert!(found[0].words.starts_with("endpoint order.changed: "), "{found:?}");
    assert!(found[0].words.len() > "endpoint order.changed: ".len(), "{found:?}");
    world.run_until(LONG, |world| {
        world.delivered("all") == 3 && world.store.hindrances().is_empty()
    });
    assert_eq!(world.store.hindrances(), []);
}

/// INV-8: a store that answers some questions and refuses others is told what it refuses.
#[test]
fn a_question_that_the_store_refuses_is_told_of() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    let fetches = world.source.script(Operation::Fetch);
    fetches.always(Some(SourceAction::FailBefore(ErrorKind::Unavailable)));
    world.run_until(LONG, |world| !world.store.hindrances().is_empty());
    let found = world.store.hindrances();
    assert_eq!(found[0].destination, None, "{found:?}");
    world.source.script(Operation::Fetch).always(None);
    world.run_until(LONG, |world| world.store.hindrances().is_empty());
}
