//! Attacks: interleavings that were thought out to break a promise, each with what it must not do.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::time::Duration;

use postrider_core::DestinationState;
use postrider_core::source::DefinitionChange;
use postrider_core::{
    BrokerCapabilities, Destination, Error, ErrorKind, Fault, Match, NewEvent, OutboxSource,
    Outcome, Payload, RelayId, RetryPolicy, Route, Start, Tick,
};
use postrider_relay::{Answer, Command, Ending, Input, Machine, Settings, State, Target};
use postrider_testkit::fault::{BrokerAction, Gate, Operation, SourceAction};

use crate::world::{World, event, everything, id, now, number};

/// The nth event of a key, of a type, and so to a topic of its own.
fn of(event_type: &str, key: u64, n: u64) -> NewEvent {
    NewEvent::new("order", format!("{key}"), event_type).json(&n).unwrap()
}

/// A world in which 600 keys wait for the dead endpoint `dead`, while `live` takes everything.
fn with_a_dead_endpoint() -> World {
    let mut world = World::simple();
    world.place("all").broker.set_down("dead", true);
    world.start(Target::Forever);
    for n in 0..60 {
        world.commit((0..10).map(|key| of("dead", n * 10 + key, 0)).collect());
        world.commit(vec![of("live", 9_000, n)]);
        world.run_for(Duration::from_secs(2));
    }
    assert_eq!(world.delivered("all"), 60);
    world
}

/// INV-8: a relay with more due events than it takes at once sleeps until it can do something.
#[test]
fn a_relay_whose_waiting_events_cannot_be_sent_sleeps() {
    let mut world = with_a_dead_endpoint();
    let wakes = world.wakes;
    world.run_for(Duration::from_secs(60));
    assert!(world.wakes - wakes < 600, "{} wakes in a minute", world.wakes - wakes);
}

/// INV-8: a one-shot run that lasts longer than its stall time sleeps while it waits.
#[test]
fn a_long_one_shot_run_sleeps() {
    let mut world = World::simple();
    world.settings.stall = Duration::from_secs(3);
    world.commit((0..12).map(|n| event(1, n)).collect());
    let gates: Vec<_> = (0..12).map(|_| Gate::new()).collect();
    let held = gates.iter().map(|gate| BrokerAction::Hold(gate.clone()));
    world.place("all").broker.script.then(held);
    world.start(Target::Once);
    for gate in &gates {
        world.run_for(Duration::from_secs(1));
        gate.open();
    }
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.delivered("all"), 12);
    assert!(world.wakes < 600, "{} wakes in 13 seconds", world.wakes);
}

/// INV-8: a store that does not say where the target of a drain is, is asked again a little later,
/// not at once.
#[test]
fn a_target_that_cannot_be_read_is_not_asked_for_again_at_once() {
    let store = World::simple().store;
    let local = vec![(everything("all"), BrokerCapabilities::least())];
    let settings = Settings::default();
    let mut machine = Machine::new(RelayId::mint(), 1, None, local, settings, Target::Once);
    let mut heads = 0;
    for round in 0..1_000u64 {
        machine.step(Tick(round * 1_000_000), Input::Passed);
        for (ticket, command) in machine.take_commands().collect::<Vec<_>>() {
            let answer = match command {
                Command::Define => Answer::Defined(now(store.destinations())),
                Command::Acquire(request) => Answer::Acquired(now(store.acquire(&request))),
                Command::Load(lease, id) => Answer::Loaded(now(store.load(&lease, &id))),
                Command::Admit(lease, rows) => Answer::Admitted(now(store.admit(&lease, rows))),
                Command::Due(request) => Answer::Due(now(store.due(&request))),
                Command::Renew(request) => Answer::Renewed(now(store.renew(&request))),
                Command::CarryOut(request) => Answer::CarriedOut(now(store.carry_out(&request))),
                Command::Count(id) => Answer::Counted(now(store.counts(&id))),
                Command::Head(_) => {
                    heads += 1;
                    Answer::Head(Err(Error::new(ErrorKind::Unavailable, "head")))
                }
                other => panic!("{other:?}"),
            };
            machine.step(Tick(round * 1_000_000), Input::Answered(ticket, answer));
        }
    }
    // After `poll_max`, or up to half of that earlier.
    assert!((2..=4).contains(&heads), "asked {heads} times in a second");
}

fn unavailable() -> Outcome {
    Outcome::Retry { fault: Fault::new(ErrorKind::Unavailable, "503\0"), after: None }
}

/// INV-5: events that wait for a dead endpoint do not keep back what waits for a living one.
#[test]
fn what_waits_for_a_dead_endpoint_does_not_hold_what_waits_for_a_living_one() {
    let mut world = with_a_dead_endpoint();
    let failing = of("live", 9_001, 0);
    world.place("all").broker.answer([failing.event().id], &unavailable());
    world.commit(vec![failing, of("live", 9_000, 60)]);
    world.run_for(Duration::from_millis(500));
    world.place("all").broker.relent();
    world.run_until(Duration::from_secs(90), |world| world.delivered("all") == 62);
    world.place("all").broker.set_down("dead", false);
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 662);
    world.check("all");
}

fn put(world: &World, definition: Destination) {
    let change =
        DefinitionChange { expected: None, put: vec![(definition, Start::Now)], remove: vec![] };
    now(world.store.apply(&change)).unwrap();
}

/// Two routes, to `old` and `new`; the second world knows only one of them.
fn routed(routes: &[&str]) -> Destination {
    let retry = RetryPolicy { attempts_max: 50, ..RetryPolicy::default() };
    let route = |name: &&str| {
        let route = Route::all("{event_type}".parse().unwrap()).only(Match::event_type(name));
        match name.strip_prefix("!") {
            Some(name) => route.only(Match::event_type(name)).dropping(),
            None => route.retry(retry),
        }
    };
    Destination::new(id("all"), "memory", routes.iter().map(route).collect())
}

/// INV-1, INV-5: waiting events whose route is gone, or drops them now, are visibly dead, are not
/// published, and do not stand in the way of the others.
#[test]
fn waiting_events_without_a_route_are_dead_and_hold_nobody() {
    let mut world = World::new(1, vec![routed(&["gone", "dropped", "kept", "live"])]);
    world.start(Target::Forever);
    for (n, event_type) in ["gone", "dropped", "kept"].into_iter().enumerate() {
        world.place("all").broker.set_down(event_type, true);
        world.commit((0..300).map(|key| of(event_type, n as u64 * 1_000 + key, 0)).collect());
    }
    for n in 0..60 {
        world.commit(vec![of("live", 9_000, n)]);
        world.run_for(Duration::from_secs(1));
    }
    assert_eq!(world.store.waiting(&id("all")).len(), 900);
    world.kill(0);
    put(&world, routed(&["kept", "!dropped", "live"]));
    for event_type in ["gone", "dropped", "kept"] {
        world.place("all").broker.set_down(event_type, false);
    }
    let before = world.place("all").memory.published().len();
    world.start_with(vec![routed(&["kept", "!dropped", "live"])], Target::Forever);
    world.run_for(Duration::from_secs(120));
    let sent = world.place("all").memory.published().split_off(before);
    let of_type =
        |name: &str| sent.iter().filter(|published| *published.event.event_type == *name).count();
    assert_eq!(["gone", "dropped", "kept"].map(of_type), [0, 0, 300]);
    let counts = now(world.store.counts(&id("all"))).unwrap();
    assert_eq!((counts.dead, counts.total()), (600, 600), "{counts:?}");
}

/// What was erased while it waited is not published.
#[test]
fn an_event_that_was_erased_while_it_waited_is_not_published() {
    let mut world = World::simple();
    let failing = event(1, 0);
    world.place("all").broker.answer([failing.event().id], &unavailable());
    world.start(Target::Forever);
    let erased = NewEvent::new("order", "1", "order.changed").payload(Payload::Erased, "a/b");
    world.commit(vec![failing, event(2, 0)]);
    world.run_for(Duration::from_millis(100));
    world.commit(vec![erased, event(1, 1)]);
    world.run_for(Duration::from_millis(300));
    world.place("all").broker.relent();
    world.run_for(Duration::from_secs(30));
    assert_eq!(world.delivered("all"), 3);
    let waiting = world.store.waiting(&id("all"));
    assert!(waiting.is_empty(), "it is gone, and its key flows: {waiting:?}");
    assert_eq!(world.healths()[0].waiting_keys, 0, "and we know it");
    let last = world.place("all").memory.received("order.changed");
    assert_eq!(number(last.last().unwrap()), 1, "what followed it came");
    world.check("all");
}

/// INV-3, INV-1: where a destination stood before it was paused is of no use after it was resumed.
#[test]
fn an_answer_to_a_load_from_before_a_pause_is_of_no_effect() {
    let mut world = World::simple();
    let gate = Gate::new();
    let held = SourceAction::HoldAnswer(gate.clone());
    world.source.script(Operation::Load).then([held]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    world.store.set_state(&id("all"), DestinationState::Paused).unwrap();
    world.run_for(Duration::from_secs(10));
    world.store.set_state(&id("all"), DestinationState::Active).unwrap();
    world.run_for(Duration::from_secs(10));
    let poison = event(1, 0);
    world.place("all").broker.refuse([poison.event().id]);
    world.commit(vec![poison, event(2, 0)]);
    world.run_for(Duration::from_secs(10));
    gate.open();
    world.run_for(Duration::from_secs(1));
    world.commit(vec![event(1, 1), event(2, 1)]);
    world.run_for(Duration::from_secs(30));
    assert_eq!((world.delivered("all"), world.duplicates("all")), (2, 0));
    world.check("all");
}

/// INV-5: a destination that takes long to load does not hold the others of its partition.
#[test]
fn a_slow_load_holds_nobody_else() {
    let mut world = World::new(1, vec![everything("slow"), everything("quick")]);
    let gate = Gate::new();
    world.commit((0..10).map(|key| event(key, 0)).collect());
    // In the order of their names: quick, slow, unrouted.
    world
        .source
        .script(Operation::Load)
        .then([SourceAction::Pass, SourceAction::Hold(gate.clone())]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(5));
    assert_eq!((world.delivered("quick"), world.delivered("slow")), (10, 0));
    gate.open();
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.delivered("slow"), 10);
}

/// INV-8: a store that can be read but not written to is named all the time, not now and then.
#[test]
fn what_the_store_refuses_is_named_until_it_stops() {
    for operation in [Operation::Settle, Operation::Due] {
        let mut world = World::simple();
        world.commit((0..100).map(|key| event(key, 0)).collect());
        let full = SourceAction::FailBefore(ErrorKind::DiskFull);
        world.source.script(operation).always(Some(full));
        world.start(Target::Forever);
        world.run_for(Duration::from_secs(8));
        for _ in 0..200 {
            world.run_for(Duration::from_millis(100));
            let health = world.healths().remove(0);
            assert_eq!(health.state, State::Blocked, "{operation:?} {health:?}");
            assert!(!health.blockers.is_empty(), "{operation:?} {health:?}");
        }
        world.source.script(operation).always(None);
        world.run_for(Duration::from_secs(10));
        assert_eq!(world.healths().remove(0).state, State::Empty, "{operation:?}");
    }
}

/// A one-shot run that may not serve a destination does not say that everything is delivered.
#[test]
fn a_one_shot_run_with_an_outdated_definition_is_not_done() {
    let mut world = World::new(1, vec![everything("all"), everything("other")]);
    world.commit(vec![event(1, 0)]);
    put(&world, routed(&["order.changed"]));
    world.start(Target::Once);
    world.run_for(Duration::from_secs(70));
    assert_eq!((world.delivered("all"), world.delivered("other")), (0, 1));
    assert_eq!(world.ending(0), Some(&Ending::Stalled));
}

/// A detail that came over the wire can be stored anywhere: no store's text takes a zero byte.
#[test]
fn a_fault_with_a_zero_byte_is_kept_without_it() {
    let mut world = World::simple();
    let poison = event(1, 0);
    let fault = Fault::new(ErrorKind::Rejected, "no\0good");
    world.place("all").broker.answer([poison.event().id], &Outcome::Rejected(fault));
    world.commit(vec![poison]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(1));
    let waiting = world.store.waiting(&id("all"));
    assert!(waiting[0].detail.contains("good") && !waiting[0].detail.contains('\0'), "{waiting:?}");
}

/// INV-5: an endpoint that dies after everybody else fell silent, with a window of its own events,
/// does not keep the others from being read.
#[test]
fn a_dead_endpoint_that_fills_the_window_does_not_hide_the_others() {
    let mut world = World::simple();
    world.settings.window.rows_max = 100;
    world.settings.window.page_rows_max = 50;
    world.start(Target::Forever);
    world.commit(vec![of("live", 1, 0)]);
    world.run_for(Duration::from_secs(1));
    world.commit(vec![of("dead", 2, 0)]);
    world.run_for(Duration::from_secs(1));
    world.place("all").broker.set_down("dead", true);
    world.commit((0..300).map(|key| of("dead", 10 + key, 0)).collect());
    world.commit((0..20).map(|key| of("live", 1_000 + key, 0)).collect());
    world.run_until(Duration::from_secs(300), |world| world.delivered("all") == 22);
    world.place("all").broker.set_down("dead", false);
    world.run_until(Duration::from_secs(600), |world| world.delivered("all") == 322);
    world.check("all");
}

/// INV-5: poison among what waits for an endpoint that was down is not its only probe: the endpoint
/// is found to live, the others are delivered, and the poison is given up.
#[test]
fn poison_is_not_the_only_probe_of_an_endpoint() {
    let mut world = World::simple();
    let mut events: Vec<_> = (0..20).map(|key| of("dead", key, 0)).collect();
    let poison: Vec<_> = (100..103).map(|key| of("dead", key, 0)).collect();
    let ids: Vec<_> = poison.iter().map(|event| event.event().id).collect();
    world.place("all").broker.answer(ids, &unavailable());
    world.place("all").broker.set_down("dead", true);
    world.start(Target::Forever);
    events.splice(0..0, poison);
    world.commit(events);
    let mut n = 0;
    let mut trickle = |world: &mut World, seconds: u64| {
        for _ in 0..seconds / 10 {
            n += 1;
            world.commit(vec![of("live", 9_000, n)]);
            world.run_for(Duration::from_secs(10));
        }
        n as usize
    };
    trickle(&mut world, 3_600);
    world.place("all").broker.set_down("dead", false);
    let live = trickle(&mut world, 900);
    assert_eq!(world.delivered("all"), live + 20, "{:#?}", world.healths());
    assert_eq!(now(world.store.counts(&id("all"))).unwrap().total(), 3);
    world.check("all");
}

/// INV-8: an endpoint that asked for a long pause is named from its first failure on.
#[test]
fn an_endpoint_that_asked_for_a_pause_is_named() {
    let mut world = World::simple();
    let after = Some(Duration::from_secs(300));
    world.place("all").broker.script.then([BrokerAction::RetryNamed { after }]);
    world.commit(vec![event(1, 0)]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(60));
    let health = world.healths().remove(0);
    assert_eq!(health.state, State::Blocked);
    assert!(health.blockers.iter().any(|b| b.to_string().contains("order.changed")), "{health:?}");
    world.run_until(Duration::from_secs(300), |world| world.delivered("all") == 1);
}

/// Times that would make the relay spin, or panic where it clamps one by the other, are refused.
#[test]
fn settings_that_would_spin_are_refused() {
    let zero = Duration::ZERO;
    for wrong in [
        Settings { due_every: Duration::from_millis(1), ..Settings::default() },
        Settings { heartbeat: zero, ..Settings::default() },
        Settings { publish_deadline: zero, ..Settings::default() },
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

/// INV-5: a cursor that was moved behind the relay's back costs its partition a heartbeat, not a lease.
#[test]
fn a_cursor_that_was_moved_does_not_stop_its_partition_for_a_lease() {
    let mut world = World::simple();
    world.commit(vec![event(1, 0)]);
    let moved = SourceAction::FailBefore(ErrorKind::Conflict);
    world.source.script(Operation::Settle).then([moved]);
    world.start(Target::Forever);
    world.run_for(Duration::from_secs(2));
    world.commit(vec![event(2, 0)]);
    let spent = world.run_until(Duration::from_secs(60), |world| world.delivered("all") == 2);
    assert!(spent <= Duration::from_secs(4), "{spent:?}");
    world.check("all");
}

/// INV-1: an event that no route takes is a dead letter also where the relay may not serve every
/// destination, and also if a route for its type is added before one may.
#[test]
fn an_event_without_a_route_is_dead_though_another_destination_is_outdated() {
    let other = |event_type: &str| {
        let route = Route::all("o".parse().unwrap()).only(Match::event_type(event_type));
        Destination::new(id("other"), "memory", vec![route])
    };
    let mut world = World::new(1, vec![routed(&["t0"]), other("o2")]);
    world.start_with(vec![routed(&["t0"]), other("o1")], Target::Forever);
    world.commit(vec![of("t9", 1, 0), of("t0", 2, 0)]);
    world.run_for(Duration::from_secs(40));
    assert_eq!(world.delivered("all"), 1);
    world.kill(0);
    put(&world, routed(&["t0", "t9"]));
    put(&world, other("o1"));
    world.start_with(vec![routed(&["t0", "t9"]), other("o1")], Target::Forever);
    world.run_for(Duration::from_secs(60));
    let unrouted = world.store.waiting(&id(Destination::UNROUTED));
    assert_eq!((world.delivered("all"), unrouted.len()), (1, 1));
}
