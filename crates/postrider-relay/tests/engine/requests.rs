//! Requests of operators: carried out by the owner, with a key's order kept while events flow.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::operate::{RowKey, Verb};
use postrider_core::{Clock, ErrorKind, OutboxSource};
use postrider_relay::{Command, Input, Target};
use postrider_testkit::fault::{Gate, Operation, SourceAction};

use crate::world::{World, event, everything, id, now, number};

/// The numbers of a key's events, as the broker got them first.
fn order_of(world: &World, key: &str) -> Vec<u64> {
    let mut seen = std::collections::BTreeSet::new();
    let published = world.place("all").memory.published();
    let acked = published.iter().filter(|p| p.is_acked() && p.event.key() == key);
    acked.filter(|p| seen.insert(p.event.id)).map(|p| number(&p.event)).collect()
}

/// The rows of a destination in a state.
fn in_state(world: &World, state: &str) -> Vec<RowKey> {
    let waiting = world.store.waiting(&id("all"));
    let rows = waiting.iter().filter(|row| row.state.as_str() == state);
    rows.map(|row| world.row("all", row.row.seq)).collect()
}

/// A world in which key 1 is parked behind a dead letter, its first event.
fn parked(events: u64) -> World {
    let mut world = World::simple();
    let poison = event(1, 0);
    world.place("all").broker.refuse([poison.event().id]);
    world.commit(vec![poison]);
    world.commit((1..events).map(|n| event(1, n)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(3));
    assert_eq!(in_state(&world, "dead").len(), 1);
    world
}

/// R093, R096: a parked key is redriven while new events of it arrive, and the relay is killed at any
/// step of that: every event is delivered, and in order.
#[test]
fn a_redriven_key_keeps_its_order_whenever_the_relay_dies() {
    for steps in 0..50 {
        let mut world = parked(6);
        world.place("all").broker.relent();
        world.ask(Verb::Redrive(in_state(&world, "dead")));
        let mut n = 6;
        for step in 0..steps {
            if step % 3 == 0 {
                world.commit(vec![event(1, n), event(2, n)]);
                n += 1;
            }
            if !world.round() {
                world.pass(Duration::from_millis(400));
            }
        }
        world.kill(0);
        world.commit(vec![event(1, n)]);
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(60));
        assert_eq!(order_of(&world, "order/1"), (0..=n).collect::<Vec<_>>(), "{steps} steps");
        world.check("all");
        assert_eq!(world.healths()[0].waiting_keys, 0, "{steps} steps");
    }
}

/// R096: what is redriven twice is done once; the second time it is not dead any more.
#[test]
fn a_dead_letter_that_is_redriven_twice_is_delivered_once() {
    let mut world = parked(3);
    world.place("all").broker.relent();
    let rows = in_state(&world, "dead");
    let first = world.ask(Verb::Redrive(rows.clone()));
    let second = world.ask(Verb::Redrive(rows));
    world.run_for(Duration::from_secs(10));
    assert_eq!((world.delivered("all"), world.duplicates("all")), (3, 0));
    let (first, second) = (world.store.request(first), world.store.request(second));
    assert_eq!((first.unwrap().done, second.unwrap().skipped), (1, 1));
}

/// R093: dead letters are let go in the middle of a parked key, and the owner hears of each: what
/// follows flows, and new events of the key wait for nobody.
#[test]
fn a_discard_in_the_middle_of_a_key_is_heard_of() {
    let mut world = World::simple();
    let events: Vec<_> = (0..8).map(|n| event(1, n)).collect();
    let poison = [events[0].event().id, events[3].event().id];
    world.place("all").broker.refuse(poison);
    world.commit(events);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(3));
    world.ask(Verb::Discard(in_state(&world, "dead")));
    world.run_for(Duration::from_secs(3));
    assert_eq!(order_of(&world, "order/1"), [1, 2], "up to the next dead letter");
    assert_eq!(in_state(&world, "dead").len(), 1);
    // The one in the middle, and while it is let go, more of its key.
    world.ask(Verb::Discard(in_state(&world, "dead")));
    world.commit((8..12).map(|n| event(1, n)).collect());
    world.run_for(Duration::from_secs(3));
    assert_eq!(order_of(&world, "order/1"), [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(world.healths()[0].waiting_keys, 0, "the key is free, and we know it");
    let settlements = world.healths()[0].settlements;
    world.commit(vec![event(1, 12)]);
    world.run_for(Duration::from_millis(900));
    assert_eq!(world.delivered("all"), 11, "from the window, not through `waiting`");
    assert!(world.healths()[0].settlements <= settlements + 1);
    world.check("all");
}

/// R098: an event that was settled is sent again, and says that it is late.
#[test]
fn a_requeued_event_is_marked_late() {
    let mut world = World::simple();
    world.commit((0..5).map(|n| event(1, n)).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(3));
    let seq = world.store.committed()[2].row.seq;
    world.ask(Verb::Requeue(vec![world.row("all", seq)]));
    world.run_for(Duration::from_secs(3));
    let published = world.place("all").memory.published();
    let (first, again) = published.split_at(5);
    assert!(first.iter().all(|p| !p.marks.late));
    assert_eq!(again.len(), 1);
    assert!(again[0].marks.late && number(&again[0].event) == 2, "{:?}", again[0]);
    assert_eq!(now(world.store.counts(&id("all"))).unwrap().total(), 0);
}

/// INV-8: an answer that was lost may have freed keys. What we count of them is read again, and new
/// events wait for nobody.
#[test]
fn a_lost_answer_to_a_discard_leaves_no_key_waiting() {
    for lost in [SourceAction::FailAfter(ErrorKind::Timeout), SourceAction::busy()] {
        let mut world = parked(4);
        world.source.script(Operation::CarryOut).then([lost.clone()]);
        world.ask(Verb::Discard(in_state(&world, "dead")));
        world.run_for(Duration::from_secs(10));
        assert_eq!(order_of(&world, "order/1"), [1, 2, 3], "{lost:?}");
        assert_eq!(world.healths()[0].waiting_keys, 0, "{lost:?}");
        assert_eq!(world.healths()[0].leases_lost, 0, "{lost:?}");
        world.commit(vec![event(1, 4)]);
        world.run_for(Duration::from_millis(900));
        assert_eq!(world.delivered("all"), 4, "{lost:?}");
        assert_eq!(now(world.store.counts(&id("all"))).unwrap().total(), 0, "{lost:?}");
        world.check("all");
    }
}

/// A store that refuses to carry out is asked seldom, named, and holds nobody up.
#[test]
fn a_store_that_carries_out_nothing_is_named_and_holds_nobody() {
    let mut world = parked(2);
    let full = SourceAction::FailBefore(ErrorKind::DiskFull);
    world.source.script(Operation::CarryOut).always(Some(full));
    world.run_for(Duration::from_secs(5));
    let fetches = world.healths()[0].fetches;
    for n in 0..20 {
        world.commit(vec![event(2 + n, 0)]);
        world.run_for(Duration::from_secs(1));
    }
    assert_eq!(world.delivered("all"), 20);
    assert!(world.healths()[0].fetches > fetches);
    let health = world.healths().remove(0);
    assert!(health.blockers.iter().any(|b| b.to_string().contains("PR-1004")), "{health:?}");
}

/// What was asked for begins at once where the store says that something changed, and however often
/// it says so, it is asked ten times a second at most.
#[test]
fn a_woken_relay_carries_out_at_once_and_not_too_often() {
    let mut world = parked(3);
    world.place("all").broker.relent();
    world.run_for(Duration::from_millis(300));
    world.ask(Verb::Redrive(in_state(&world, "dead")));
    let tick = world.clock.tick();
    world.relays[0].machine.step(tick, Input::Woken);
    let start = world.clock.elapsed();
    world.run_until(Duration::from_secs(1), |world| world.delivered("all") == 3);
    assert!(world.clock.elapsed() - start <= Duration::from_millis(150));
    let mut asked = 0;
    for _ in 0..1_000 {
        world.clock.advance(Duration::from_millis(1));
        let tick = world.clock.tick();
        let machine = &mut world.relays[0].machine;
        machine.step(tick, Input::Woken);
        for (ticket, command) in machine.take_commands().collect::<Vec<_>>() {
            if let Command::CarryOut(request) = command {
                asked += 1;
                let answer = now(world.store.carry_out(&request));
                let answer = postrider_relay::Answer::CarriedOut(answer);
                world.relays[0].machine.step(tick, Input::Answered(ticket, answer));
            }
        }
    }
    assert!((9..=11).contains(&asked), "{asked} times in a second");
}

/// A one-shot run does what was asked for before it says that it is done.
#[test]
fn a_one_shot_run_carries_out_what_was_asked() {
    let mut world = parked(4);
    world.place("all").broker.relent();
    world.kill(0);
    world.clock.advance(world.settings.lease);
    world.ask(Verb::Redrive(in_state(&world, "dead")));
    // The store takes its time.
    let gate = Gate::new();
    world.source.script(Operation::CarryOut).then([SourceAction::Hold(gate.clone())]);
    world.start(Target::Once);
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.ending(0), None, "it is not done yet");
    gate.open();
    world.run_until(Duration::from_secs(30), |world| world.ending(0).is_some());
    assert_eq!(order_of(&world, "order/1"), [0, 1, 2, 3]);
}

/// R070: requests for partitions of several relays are carried out by each for its own.
#[test]
fn each_owner_carries_out_its_own_part() {
    let mut world = World::new(4, vec![everything("all")]);
    let poison: Vec<_> = (0..40).map(|key| event(key, 0)).collect();
    world.place("all").broker.refuse(poison.iter().map(|event| event.event().id));
    world.commit(poison);
    world.start(Target::Forever);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(20));
    assert!(world.healths().iter().all(|health| health.partitions == 2), "{:?}", world.healths());
    world.place("all").broker.relent();
    let request = world.ask(Verb::Redrive(in_state(&world, "dead")));
    world.run_for(Duration::from_secs(5));
    assert_eq!((world.delivered("all"), world.duplicates("all")), (40, 0));
    let request = world.store.request(request).unwrap();
    assert_eq!((request.done, request.finished), (40, true));
    assert!(world.healths().iter().all(|health| health.carried > 0), "{:?}", world.healths());
}
