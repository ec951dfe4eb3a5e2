//! Isolation: what is slow, dead, or new delays only itself.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::operate::Verb;
use postrider_core::source::DefinitionChange;
use postrider_core::{
    Destination, ErrorKind, Fault, Match, NewEvent, OutboxSource, Outcome, Route, Start,
};
use postrider_relay::{State, Target};
use postrider_testkit::fault::{BrokerAction, Gate};

use crate::world::{World, event, everything, id, now};

/// INV-5: a destination that is down for an hour neither delays the other nor loses its events.
#[test]
fn a_destination_that_is_down_for_an_hour_does_not_hold_the_other() {
    let mut world = World::new(1, vec![everything("dead"), everything("live")]);
    world.place("dead").broker.set_down("order.changed", true);
    world.start(Target::Forever);
    let mut committed = 0;
    for _ in 0..360 {
        world.commit((0..100).map(|key| event(key, committed)).collect());
        committed += 100;
        world.run_for(Duration::from_secs(10));
        assert_eq!(world.delivered("live"), committed as usize, "the living one keeps up");
    }
    assert_eq!(world.delivered("dead"), 0);
    let health = world.healths().remove(0);
    assert!(health.window_rows <= 8_192, "{health:?}");
    assert_eq!(health.standing, [id("dead")]);
    assert!(health.blockers.iter().any(|b| b.to_string().contains("of dead")), "{health:?}");
    world.place("dead").broker.set_down("order.changed", false);
    world.run_until(Duration::from_secs(120), |world| world.delivered("dead") == 36_000);
    for name in ["dead", "live"] {
        world.check(name);
        assert_eq!(world.duplicates(name), 0, "{name}");
        assert_eq!(now(world.store.counts(&id(name))).unwrap().total(), 0, "{name}");
    }
}

/// INV-8: while every destination refuses, events that none of them takes go on being passed, and so do those of other
/// routes. The relay is blocked all the same, and says by whom; one destination that flows again is movement.
#[test]
fn what_passes_elsewhere_is_no_progress_of_who_stands() {
    let of = |name: &str, pattern: &str| {
        let route = Route::all(pattern.parse().unwrap()).only(Match::event_type(pattern));
        Destination::new(id(name), "local", vec![route])
    };
    let mut world = World::new(8, vec![of("first", "a"), of("second", "b")]);
    for (name, topic) in [("first", "a"), ("second", "b")] {
        world.place(name).broker.set_down(topic, true);
    }
    let events = |n: u64| {
        ["a", "b", "stray"].map(|kind| NewEvent::new(kind, n.to_string(), kind).json(&n).unwrap())
    };
    world.start(Target::Forever);
    for n in 0..60 {
        world.commit(events(n).to_vec());
        world.run_for(Duration::from_millis(500));
        let health = world.healths().remove(0);
        if n > 12 {
            assert_eq!(health.state, State::Blocked, "{n} {health:?}");
            assert_eq!(health.standing, [id("first"), id("second")]);
            for named in ["endpoint a of first", "endpoint b of second"] {
                assert!(health.blockers.iter().any(|b| b.to_string().contains(named)));
            }
        }
    }
    world.place("second").broker.set_down("b", false);
    world.run_until(Duration::from_secs(60), |world| world.delivered("second") == 60);
    let health = world.healths().remove(0);
    assert_eq!(
        (health.state, &*health.standing),
        (State::Moving, &[id("first")][..]),
        "{health:?}"
    );
}

/// What is given to a destination that had nothing to do does not stand from the first moment, however long the call takes.
#[test]
fn who_has_just_been_given_something_does_not_stand() {
    let mut world = World::simple();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(3_600));
    world.place("all").broker.set_down("order.changed", true);
    world.commit(vec![event(1, 1)]);
    world.run_for(Duration::from_millis(600));
    let health = world.healths().remove(0);
    assert_eq!((health.state, health.standing.len()), (State::Moving, 0), "{health:?}");
    world.run_for(Duration::from_secs(10));
    let health = world.healths().remove(0);
    assert_eq!((health.state, health.standing.len()), (State::Blocked, 1), "{health:?}");
}

/// INV-8: beside a destination that takes nothing a relay does not go to and fro with each event that another one takes: with
/// one now and then it moves, and with one in a long while it is blocked. One that flows again is believed at once.
#[test]
fn a_relay_beside_a_dead_destination_is_steady() {
    let of = |name: &str, pattern: &str| {
        let route = Route::all(pattern.parse().unwrap()).only(Match::event_type(pattern));
        Destination::new(id(name), "local", vec![route])
    };
    for (apart, expected) in [(2_u64, State::Moving), (12, State::Moving), (60, State::Blocked)] {
        let mut world = World::new(4, vec![of("dead", "a"), of("live", "b")]);
        world.place("dead").broker.set_down("a", true);
        world.start(Target::Forever);
        world.commit(vec![NewEvent::new("a", "1", "a").json(&1).unwrap()]);
        let mut states = Vec::new();
        for second in 0..600 {
            if second % apart == 0 {
                world.commit(vec![NewEvent::new("b", "1", "b").json(&second).unwrap()]);
            }
            for _ in 0..10 {
                world.run_for(Duration::from_millis(100));
                let health = world.healths().remove(0);
                if second > 150 {
                    assert_eq!(health.standing, [id("dead")], "{second} {health:?}");
                    states.push(health.state);
                }
            }
        }
        states.dedup();
        assert_eq!(states, [expected], "every {apart} s");
        // Nothing comes any more: it says so soon.
        world.run_for(Duration::from_secs(20));
        assert_eq!(world.healths()[0].state, State::Blocked);
        world.place("dead").broker.set_down("a", false);
        world.run_until(Duration::from_secs(60), |world| world.delivered("dead") == 1);
        let health = world.healths().remove(0);
        assert!(health.state != State::Blocked && health.standing.is_empty(), "{health:?}");
    }
}

/// INV-6, INV-8: of very many endpoints that fail a screen is named, each once, while all of them stand and while others move.
#[test]
fn of_very_many_dead_endpoints_a_screen_is_named() {
    let mut world = World::simple();
    let of = |n: u64| NewEvent::new("order", n.to_string(), format!("t{n}")).json(&n).unwrap();
    for n in 0..1_000 {
        world.place("all").broker.set_down(&format!("t{n}"), true);
    }
    world.commit((0..1_000).map(of).collect());
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(120));
    let named = |world: &World| {
        let named = world.healths().remove(0).blockers.into_iter().map(|b| b.to_string());
        named.collect::<BTreeSet<String>>().len()
    };
    assert_eq!((named(&world), world.healths().remove(0).blockers.len()), (100, 100));
    world.commit((1_000..1_010).map(of).collect());
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.delivered("all"), 10);
    assert_eq!((named(&world), world.healths().remove(0).blockers.len()), (100, 100));
}

/// INV-5: one dead endpoint of many leaves the window, so that it holds neither the others nor the
/// cursor, and comes back in order.
#[test]
pub(crate) fn a_dead_endpoint_does_not_hold_the_cursor() {
    let mut world = World::simple();
    world.settings.window.rows_max = 400;
    world.settings.window.page_rows_max = 100;
    let of = |n: u64| NewEvent::new("order", format!("{}", n % 40), format!("t{}", n % 4)).json(&n);
    world.place("all").broker.set_down("t3", true);
    world.start(Target::Forever);
    for round in 0..100u64 {
        let events = (0..40).map(|n| of(round * 40 + n).unwrap()).collect();
        world.commit(events);
        world.run_for(Duration::from_secs(5));
    }
    assert_eq!(world.delivered("all"), 3_000, "{:#?}", world.healths());
    let settled = world.store.settled(&id("all")).len();
    assert!(settled > 3_500, "the cursor moved on: {settled}");
    assert_eq!(now(world.store.counts(&id("all"))).unwrap().dead, 0);
    world.place("all").broker.set_down("t3", false);
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 4_000);
    world.check("all");
}

/// The nth event of a key, to one of four endpoints.
fn of(key: u64, endpoint: u64, n: u64) -> NewEvent {
    NewEvent::new("order", format!("{key}"), format!("t{endpoint}")).json(&n).unwrap()
}

/// What an endpoint answers that wants to be left alone for ten minutes.
const BUSY: BrokerAction = BrokerAction::RetryNamed { after: Some(Duration::from_secs(600)) };

/// INV-5, INV-8, F18: an endpoint that asks once for a long pause holds neither the cursor nor the others, and gets what
/// came meanwhile in order.
#[test]
fn an_endpoint_that_asks_for_a_long_pause_does_not_hold_the_others() {
    let mut world = World::simple();
    world.settings.window.rows_max = 400;
    world.settings.window.page_rows_max = 100;
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    world.place("all").broker.script.then([BUSY]);
    world.commit(vec![of(3, 3, 0)]);
    world.run_for(Duration::from_secs(1));
    let mut latest = Duration::ZERO;
    for round in 1..=60u64 {
        world.commit((0..40).map(|key| of(key, key % 4, round)).collect());
        let others = round as usize * 30;
        let most = Duration::from_secs(5);
        let spent = world.run_until(most, |world| world.delivered("all") >= others);
        latest = latest.max(spent);
        world.run_for(Duration::from_secs(5) - spent);
    }
    assert!(latest <= Duration::from_millis(600), "{latest:?}: a poll, and nothing else");
    let settled = world.store.settled(&id("all")).len();
    assert!(settled > 2_300, "the cursor moved on: {settled}");
    assert_eq!(world.place("all").memory.received("t3").len(), 0, "it is left alone");
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 2_401);
    assert_eq!(now(world.store.counts(&id("all"))).unwrap().total(), 0);
    world.check("all");
}

/// INV-5, F18: nor do its events that wait already hold those of the others that wait.
#[test]
fn what_waits_for_an_endpoint_that_asked_for_a_long_pause_does_not_hold_what_waits_for_others() {
    let mut world = World::simple();
    world.settings.due_rows_max = 8;
    world.start(Target::Forever);
    world.commit((0..4).map(|key| of(key, key, 0)).collect());
    world.run_for(Duration::from_secs(2));
    let paused: Vec<_> = (0..40).map(|n| of(100 + n, 3, 0)).collect();
    world.place("all").broker.refuse(paused.iter().map(|event| event.event().id));
    let poison = of(50, 0, 0);
    let fault = Fault::new(ErrorKind::Unavailable, "500");
    let fails = Outcome::Retry { fault, after: Some(Duration::from_secs(5)) };
    world.place("all").broker.answer([poison.event().id], &fails);
    world.commit(paused);
    world.commit((0..10).map(|n| of(60, 0, n)).chain([poison]).collect());
    world.run_until(Duration::from_secs(2), |world| world.store.waiting(&id("all")).len() == 41);
    let waiting = world.store.waiting(&id("all"));
    world.place("all").broker.relent();
    world.place("all").broker.script.then([BUSY]);
    let dead = waiting.iter().filter(|row| row.state.as_str() == "dead");
    world.ask(Verb::Redrive(dead.map(|row| world.row("all", row.row.seq)).collect()));
    world.run_until(Duration::from_secs(30), |world| world.delivered("all") == 4 + 10 + 1);
    world.run_until(Duration::from_secs(900), |world| world.delivered("all") == 4 + 10 + 1 + 40);
    world.check("all");
}

/// R069: a slow key delays only itself.
#[test]
fn a_slow_key_does_not_delay_the_others() {
    let mut world = World::simple();
    let gate = Gate::new();
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    world.commit(vec![event(1, 0)]);
    world.place("all").broker.script.then([BrokerAction::Hold(gate.clone())]);
    world.run_for(Duration::from_millis(600));
    world.commit((0..50).map(|n| event(1 + n % 5, 1 + n)).collect());
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.delivered("all"), 40, "all but the slow key");
    gate.open();
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.delivered("all"), 51);
    world.check("all");
}

#[test]
fn a_destination_added_later_starts_where_it_is_told() {
    for (start, expected) in [(Start::Beginning, 15), (Start::Now, 5)] {
        let mut world = World::simple();
        world.commit((0..10).map(|key| event(key, 0)).collect());
        world.add_place(everything("late"));
        let change = DefinitionChange {
            expected: Some(1),
            put: vec![(everything("late"), start)],
            remove: Vec::new(),
        };
        now(world.store.apply(&change)).unwrap();
        world.commit((0..5).map(|key| event(key, 1)).collect());
        world.start(Target::Once);
        world.run_until(Duration::from_secs(9), |world| world.ending(0).is_some());
        assert_eq!(world.delivered("all"), 15);
        assert_eq!(world.delivered("late"), expected, "{start:?}");
    }
}

/// R108: definitions change under two relays; the one that knows the new ones takes over, nothing is
/// lost, and no key is out of order.
#[test]
fn definitions_roll_from_one_relay_to_the_next() {
    let old = everything("all");
    let only = Route::all("new.{event_type}".parse().unwrap()).only(Match::event_type("order.*"));
    let new = Destination::new(id("all"), "memory", vec![only]);
    let mut world = World::new(4, vec![old.clone()]);
    world.start_with(vec![old], Target::Forever);
    world.run_for(Duration::from_secs(1));
    world.start_with(vec![new.clone()], Target::Forever);
    let mut committed = 0u64;
    let mut more = |world: &mut World| {
        for _ in 0..20 {
            world.commit((0..16).map(|key| event(key, committed)).collect());
            committed += 16;
            world.run_for(Duration::from_secs(1));
        }
        committed as usize
    };
    let total = more(&mut world);
    assert_eq!(world.delivered("all"), total, "the old relay serves the old definition");
    assert!(world.place("all").memory.received("new.order.changed").is_empty());
    let change =
        DefinitionChange { expected: None, put: vec![(new, Start::Now)], remove: Vec::new() };
    now(world.store.apply(&change)).unwrap();
    let total = more(&mut world);
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.delivered("all"), total);
    assert!(!world.place("all").memory.received("new.order.changed").is_empty());
    world.check("all");
    let outdated = world.healths().remove(0);
    assert!(outdated.blockers.iter().any(|b| b.to_string().contains("PR-1201")), "{outdated:?}");
}

#[test]
fn a_paused_destination_keeps_its_events_in_the_outbox() {
    let mut world = World::new(1, vec![everything("all"), everything("other")]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    world.store.set_state(&id("all"), postrider_core::DestinationState::Paused).unwrap();
    world.run_for(Duration::from_secs(10));
    world.commit((0..10).map(|key| event(key, 0)).collect());
    world.run_for(Duration::from_secs(10));
    assert_eq!((world.delivered("all"), world.delivered("other")), (0, 10));
    world.store.set_state(&id("all"), postrider_core::DestinationState::Active).unwrap();
    world.run_for(Duration::from_secs(10));
    assert_eq!(world.delivered("all"), 10);
}

/// INV-5, F18: pauses that an endpoint asks for again and again are one long one for those who wait behind its events.
#[test]
fn an_endpoint_that_asks_for_short_pauses_again_and_again_does_not_hold_the_others() {
    let mut world = World::simple();
    world.settings.window.rows_max = 100;
    world.settings.window.page_rows_max = 100;
    world.start(Target::Forever);
    world.commit(vec![of(0, 0, 0)]);
    world.run_until(Duration::from_secs(2), |world| world.delivered("all") == 1);
    let again = BrokerAction::RetryNamed { after: Some(Duration::from_secs(4)) };
    world.place("all").broker.script.then(vec![again; 2]);
    world.commit((0..100).map(|n| of(100 + n, 3, 0)).collect());
    world.commit(vec![of(1, 0, 0)]);
    let others = |world: &World| world.place("all").memory.received("t0").len() == 2;
    let spent = world.run_until(Duration::from_secs(30), others);
    assert!(spent < Duration::from_secs(6), "{spent:?}: two pauses of four seconds, or more");
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 102);
    world.check("all");
}

/// INV-6: a relay that has the old name of a renamed destination reads no further, and asks for the new definitions at
/// once: what it sends is not saved, and comes again under the new name.
#[test]
fn what_is_sent_under_an_old_name_is_a_window_at_most() {
    let mut world = World::new(1, vec![everything("all"), everything("other")]);
    (world.settings.window.rows_max, world.settings.window.page_rows_max) = (200, 50);
    world.commit((0..5_000).map(|n| event(n % 100, n)).collect());
    world.start(Target::Forever);
    while world.delivered("all") < 500 {
        if !world.round() {
            world.pass(Duration::from_millis(100));
        }
    }
    let before = world.delivered("all");
    world.store.rename(&id("all"), &id("new")).unwrap();
    world.settle_down();
    let after = world.delivered("all") - before;
    assert!(after <= 200, "{after} events were sent under the old name, and are not saved");
    // It keeps its partition: there is nobody who could serve more.
    world.run_until(Duration::from_secs(5), |world| world.delivered("other") == 5_000);
    assert_eq!((world.duplicates("other"), world.healths()[0].leases_taken), (0, 1));
    world.check("other");
}
