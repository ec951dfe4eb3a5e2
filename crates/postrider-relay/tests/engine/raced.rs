//! Requests of operators that race what the relay has on its way into the store.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::{ErrorKind, NewEvent, OutboxSource};
use postrider_relay::Target;
use postrider_testkit::fault::{Gate, Operation, SourceAction};

use crate::world::{World, id, now};

/// The nth event of a key, to a topic of its type.
fn of(event_type: &str, key: u64, n: u64) -> NewEvent {
    NewEvent::new("order", format!("{key}"), event_type).json(&n).unwrap()
}

fn enable(topic: &str) -> Verb {
    Verb::Enable { destination: id("all"), topic: topic.to_owned() }
}

/// Whether the store has any endpoint disabled.
fn disabled(world: &World) -> bool {
    !now(world.store.destinations()).unwrap().disabled.is_empty()
}

/// INV-8: an operator enables an endpoint while the settlement that said it is gone is sent again,
/// because its answer was lost. What the operator did stands.
#[test]
fn a_settlement_that_is_sent_again_does_not_disable_what_was_enabled() {
    let mut world = World::simple();
    world.place("all").broker.set_gone("hook", true);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    let settle = world.source.script(Operation::Settle);
    settle.then([SourceAction::FailAfter(ErrorKind::Timeout)]);
    settle.then((0..12).map(|_| SourceAction::busy()));
    world.commit(vec![of("hook", 1, 0)]);
    world.run_until(Duration::from_secs(5), disabled);
    world.place("all").broker.set_gone("hook", false);
    let request = world.ask(enable("hook"));
    let done = |world: &World| world.store.request(request).unwrap().finished;
    world.run_until(Duration::from_secs(5), done);
    assert!(world.source.script(Operation::Settle).left() > 0, "the settlement is on its way");
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 1);
    assert!(!disabled(&world), "the operator's word stands");
    world.check("all");
}

/// INV-8: the endpoint is enabled, and the definitions are read, before the settlement that disabled
/// it is answered. The relay hears of it all the same.
#[test]
fn an_endpoint_that_is_enabled_before_its_disabling_is_answered_comes_back() {
    let mut world = World::simple();
    world.place("all").broker.set_gone("hook", true);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    let gate = Gate::new();
    let answer = SourceAction::HoldAnswer(gate.clone());
    world.source.script(Operation::Settle).then([answer]);
    world.commit(vec![of("hook", 1, 0)]);
    world.run_until(Duration::from_secs(5), disabled);
    world.place("all").broker.set_gone("hook", false);
    let lost = SourceAction::FailAfter(ErrorKind::Timeout);
    world.source.script(Operation::CarryOut).then([lost]);
    let request = world.ask(enable("hook"));
    let done = |world: &World| world.store.request(request).unwrap().finished;
    world.run_until(Duration::from_secs(5), done);
    // Long enough for a renewal, and for the definitions that it makes the relay read.
    world.run_for(Duration::from_secs(10));
    gate.open();
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 1);
    world.check("all");
}
