//! Requests of operators that race what the relay has on its way into the store.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::{ErrorKind, Fault, NewEvent, OutboxSource, Outcome};
use postrider_relay::Target;
use postrider_testkit::fault::{BrokerAction, Gate, Operation, SourceAction};

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
    // Not before the settlement was answered: until then nobody knows what it has done.
    assert_eq!(world.source.script(Operation::Settle).left(), 0);
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

/// INV-8: an endpoint says that it is gone, an operator enables it, and the relay hears of both together.
#[test]
fn an_endpoint_that_is_gone_and_enabled_at_once_comes_back() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    let gate = Gate::new();
    let broker = &world.place("all").broker;
    broker.set_gone("hook", true);
    broker.script.then((0..8).map(|_| BrokerAction::HoldAnswer(gate.clone())));
    world.commit((0..100).map(|key| of("hook", key, 0)).collect());
    world.run_for(Duration::from_millis(500));
    let answer = SourceAction::HoldAnswer(gate.clone());
    world.source.script(Operation::CarryOut).then([answer]);
    world.ask(enable("hook"));
    world.run_for(Duration::from_millis(1_500));
    assert_eq!(world.source.script(Operation::CarryOut).left(), 0);
    world.place("all").broker.set_gone("hook", false);
    gate.open();
    world.commit((0..100).map(|key| of("hook", key, 1)).collect());
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 200);
    world.check("all");
}

/// INV-5: many late events of a key whose lane is busy keep back nothing of other keys.
#[test]
fn late_events_of_a_busy_key_keep_back_no_other_key() {
    let mut world = World::simple();
    world.settings.due_rows_max = 16;
    world.start(Target::Forever);
    world.commit((0..20).map(|n| of("hook", 1, n)).collect());
    world.run_until(Duration::from_secs(5), |world| world.delivered("all") == 20);
    let other = of("hook", 2, 0);
    let fault = Fault::new(ErrorKind::Unavailable, "503");
    let failed = Outcome::Retry { fault, after: Some(Duration::from_secs(2)) };
    world.place("all").broker.answer([other.event().id], &failed);
    world.commit(vec![other, of("hook", 3, 0)]);
    world.run_until(Duration::from_secs(5), |world| !world.store.waiting(&id("all")).is_empty());
    world.place("all").broker.relent();
    let gate = Gate::new();
    world.place("all").broker.script.then([BrokerAction::Hold(gate.clone())]);
    world.commit(vec![of("hook", 1, 20)]);
    world.run_for(Duration::from_millis(100));
    world.ask(Verb::Requeue((1..=20).map(|seq| world.row("all", seq)).collect()));
    world.run_for(Duration::from_secs(4));
    assert_eq!(world.delivered("all"), 22, "the other key's event is due, and nothing holds it");
    gate.open();
    let done =
        |world: &World| world.delivered("all") == 23 && world.store.waiting(&id("all")).is_empty();
    world.run_until(Duration::from_secs(10), done);
    world.check("all");
}

/// A world with one event that is dead after its second attempt, in a settlement to which something
/// happens.
fn with_a_dead_letter(settlement: SourceAction) -> World {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    let poison = of("hook", 1, 0);
    let fault = || Fault::new(ErrorKind::Unavailable, "503");
    let failed = Outcome::Retry { fault: fault(), after: Some(Duration::from_secs(2)) };
    let poison_id = poison.event().id;
    world.place("all").broker.answer([poison_id], &failed);
    world.commit(vec![of("hook", 2, 0), poison]);
    let waits = |state: &'static str| {
        let all = id("all");
        move |world: &World| world.store.waiting(&all).iter().any(|row| row.state.as_str() == state)
    };
    world.run_until(Duration::from_secs(5), waits("retrying"));
    world.place("all").broker.answer([poison_id], &Outcome::Rejected(fault()));
    world.source.script(Operation::Settle).then([settlement]);
    world.run_until(Duration::from_secs(20), waits("dead"));
    world.place("all").broker.relent();
    world
}

/// R096: a dead letter is redriven while the settlement that said it is dead is sent again, because
/// its answer was lost. It is delivered.
#[test]
pub(crate) fn a_settlement_that_is_sent_again_does_not_undo_a_redrive() {
    let mut world = with_a_dead_letter(SourceAction::FailAfter(ErrorKind::Timeout));
    world.source.script(Operation::Settle).then((0..12).map(|_| SourceAction::busy()));
    world.ask(Verb::Redrive(vec![world.row("all", 2)]));
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 2);
    assert!(world.store.waiting(&id("all")).is_empty());
    world.check("all");
}

/// R096: the same, but the redrive is carried out before anybody knows that the answer is lost.
#[test]
pub(crate) fn a_settlement_that_was_crossed_by_a_redrive_is_not_sent_again() {
    let gate = Gate::new();
    let mut world = with_a_dead_letter(SourceAction::HoldAnswer(gate));
    let request = world.ask(Verb::Redrive(vec![world.row("all", 2)]));
    let done = |world: &World| world.store.request(request).unwrap().finished;
    world.run_until(Duration::from_secs(5), done);
    world.run_until(Duration::from_secs(120), |world| world.delivered("all") == 2);
    world.run_for(Duration::from_secs(60));
    assert!(world.store.waiting(&id("all")).is_empty());
    world.check("all");
}

/// INV-3: a key whose events wait behind its lane, because it is hot, is at the head of the store's answer while the lane
/// itself is on its way into `waiting`: nothing is taken out before that is written.
#[test]
pub(crate) fn what_waits_behind_a_hot_lane_does_not_pass_it_on_its_way_out() {
    let mut world = World::simple();
    (world.settings.window.rows_max, world.settings.window.page_rows_max) = (16, 16);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    let events: Vec<_> = (0..8).map(|n| of("hook", 1, n)).collect();
    let gate = Gate::new();
    world.place("all").broker.script.then([BrokerAction::Hold(gate.clone())]);
    world.place("all").broker.refuse([events[0].event().id]);
    world.commit(events);
    // A quarter of the window stands in the lane.
    world.run_until(Duration::from_secs(2), |world| world.store.waiting(&id("all")).len() == 4);
    world.source.script(Operation::Settle).always(Some(SourceAction::busy()));
    gate.open();
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.delivered("all"), 0, "the first of the key is on its way into `waiting`");
    world.source.script(Operation::Settle).always(None);
    world.place("all").broker.relent();
    world.run_until(Duration::from_secs(60), |world| world.store.waiting(&id("all")).len() == 8);
    world.ask(Verb::Redrive(vec![world.row("all", world.store.waiting(&id("all"))[0].row.seq)]));
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 8);
    world.check("all");
}
