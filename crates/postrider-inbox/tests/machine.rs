//! The pure machine against a random world, and its decisions one by one.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Verdict;
use postrider_core::subscription::{Receipt, SubscriptionCapabilities};
use postrider_core::{Delivery, Error, ErrorKind, Event, EventId, Fault, Tick};
use postrider_inbox::command::{Answer, Command, DeliveryNo, Input};
use postrider_inbox::{ConsumerOptions, Health, Machine};
use proptest::prelude::*;

use crate::world::controls::{Boastful, Careless};
use crate::world::{Engine, World, machine};

fn live<E: Engine>(world: &mut World<E>, acts: usize) -> Result<(), String> {
    world.input(Input::Woke)?;
    (0..acts).try_for_each(|_| world.act())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever handlers, broker, and time do: one delivery per key in work, never more than the
    /// limit, exactly one settlement for each delivery, a key's messages in order, and in the end
    /// everything is done.
    #[test]
    fn any_history_keeps_order_and_limits_and_ends(
        seed: u64, messages in 1usize..60, keys in 1u64..12, acts in 0usize..600,
    ) {
        let mut world = World::new(machine(seed), seed, messages, keys);
        let run = live(&mut world, acts).and_then(|()| world.finish());
        prop_assert_eq!(run.and_then(|()| world.all_settled()), Ok(()));
        prop_assert!(world.dispatched + 8 >= messages.min(10), "hardly anything was started");
    }

    /// When it is told to drain, nothing is started or asked for any more, everything held is
    /// settled, and it stops.
    #[test]
    fn a_drain_ends_with_nothing_held(
        seed: u64, keys in 1u64..12, acts in 0usize..300, within in 0u64..8_000, abort: bool,
    ) {
        let mut world = World::new(machine(seed), seed, 40, keys);
        let deadline = world.now + Duration::from_millis(within);
        let run = live(&mut world, acts)
            .and_then(|()| world.input(if abort { Input::Abort } else { Input::Drain { deadline } }))
            .and_then(|()| world.finish())
            .and_then(|()| world.all_settled());
        prop_assert_eq!(run, Ok(()));
        prop_assert!(world.engine.is_stopped());
        prop_assert_eq!(world.engine.health(), Health::Stopped);
    }

    /// The same inputs give the same commands.
    #[test]
    fn the_machine_is_deterministic(seed: u64) {
        let run = || {
            let mut world = World::new(machine(seed), seed, 30, 5);
            live(&mut world, 300).map(|()| world.log)
        };
        prop_assert_eq!(run(), run());
    }

    /// Negative control: the checker sees an engine that starts whatever comes.
    #[test]
    fn the_checker_catches_a_careless_engine(seed: u64) {
        let mut world = World::new(Careless::default(), seed, 60, 2);
        let run = live(&mut world, 300).and_then(|()| world.finish());
        prop_assert!(run.is_err());
    }

    /// Negative control: and one that calls alone what has company.
    #[test]
    fn the_checker_catches_company(seed: u64) {
        let mut world = World::new(Boastful(machine(seed)), seed, 60, 12);
        let run = live(&mut world, 600).and_then(|()| world.finish());
        prop_assert!(run.is_err_and(|said| said.contains("alone")));
    }
}

const VISIBILITY: Duration = Duration::from_secs(30);

fn event(id: u128, key: &str) -> Arc<Event> {
    let mut event = Event::new(EventId::from_u128(id), "order", key, "order.placed");
    event.source = Arc::from("/shop");
    Arc::new(event)
}

fn delivery(message: u64, key: &str) -> Delivery {
    let receipt = Receipt { message, token: 1 };
    Delivery::new(Ok(event(u128::from(message), key)), Arc::from("orders"), receipt)
}

/// A machine that was asked for deliveries, with the given ones received at the start.
fn received(deliveries: Vec<Delivery>) -> (Machine, Vec<Command>) {
    let capabilities = SubscriptionCapabilities::least(VISIBILITY);
    let mut machine = Machine::new(ConsumerOptions::default(), capabilities, 7);
    machine.step(Tick(0), Input::Woke);
    let commands = machine.step(Tick(0), Input::Received(deliveries));
    (machine, commands)
}

fn after(seconds: u64) -> Tick {
    Tick(0) + Duration::from_secs(seconds)
}

fn started(commands: &[Command]) -> Vec<u64> {
    let number = |command: &Command| match command {
        Command::Dispatch { no, .. } => Some(no.0),
        _ => None,
    };
    commands.iter().filter_map(number).collect()
}

fn verdict(machine: &mut Machine, now: Tick, no: u64, verdict: Verdict) -> Vec<Command> {
    machine.step(now, Input::Answered(DeliveryNo(no), Answer::Verdict(verdict)))
}

fn retry() -> Verdict {
    Verdict::Retry {
        after: None,
        fault: Fault::new(ErrorKind::Unavailable, "no answer"),
        tries: None,
    }
}

/// R079: somebody else's turn leaves the message on the queue for the rest of the lease, and those
/// of its key behind it go as well.
#[test]
fn a_busy_message_goes_back_uncounted_with_those_behind_it() {
    let (mut machine, commands) =
        received(vec![delivery(1, "a"), delivery(2, "a"), delivery(3, "b")]);
    assert_eq!(started(&commands), [0, 2], "one of each key");
    let retry_in = Duration::from_secs(12);
    let commands = verdict(&mut machine, after(1), 0, Verdict::Busy { retry_in });
    let returned: Vec<_> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Nack { no, delay, counted, .. } => Some((no.0, *delay, *counted)),
            _ => None,
        })
        .collect();
    assert_eq!(returned, [(0, retry_in, false), (1, retry_in, false)]);
}

/// R086: what has no source cannot be told from another service's event, and is never started.
#[test]
fn events_without_a_source_and_what_is_no_event_are_refused() {
    let mut nobody = Event::new(EventId::from_u128(1), "order", "a", "order.placed");
    nobody.source = Arc::from("");
    let mut unknown = delivery(1, "a");
    unknown.event = Ok(Arc::new(nobody));
    let mut broken = delivery(2, "a");
    broken.event = Err(Fault::new(ErrorKind::Invalid, "not an event"));
    let (_, commands) = received(vec![unknown, broken]);
    let reasons: Vec<String> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Reject { fault, .. } => Some(fault.detail.clone()),
            _ => None,
        })
        .collect();
    assert!(reasons[0].contains("no source") && reasons[1] == "not an event", "{reasons:?}");
    assert!(started(&commands).is_empty());
}

#[test]
fn a_message_that_kills_the_process_again_and_again_is_refused_unasked() {
    let mut poison = delivery(1, "a");
    poison.count = ConsumerOptions::default().deliveries_max + 1;
    let (mut machine, commands) = received(vec![poison, delivery(2, "a")]);
    assert!(matches!(&commands[0], Command::Reject { no: DeliveryNo(0), .. }), "{commands:?}");
    assert!(started(&commands).is_empty(), "it may come again: {commands:?}");
    let commands = machine.step(after(1), Input::Settled(DeliveryNo(0), Ok(())));
    assert_eq!(started(&commands), [1], "its key flows");
}

/// R079: where the inbox counts tries, neither what the broker counts besides nor what the inbox has of a dead letter that was
/// sent again is held against a message.
#[test]
fn a_receivers_count_of_tries_is_believed_where_the_brokers_is_higher() {
    let attempts_max = ConsumerOptions::default().retry.attempts_max;
    let failed = |tries| match retry() {
        Verdict::Retry { after, fault, .. } => Verdict::Retry { after, fault, tries: Some(tries) },
        other => other,
    };
    let sees = |count, tries, counts| {
        let capabilities = SubscriptionCapabilities::least(VISIBILITY);
        let mut machine = Machine::new(ConsumerOptions::default(), capabilities, 7)
            .of_receiver_that_counts(counts);
        machine.step(Tick(0), Input::Woke);
        let mut came = delivery(1, "a");
        came.count = count;
        machine.step(Tick(0), Input::Received(vec![came]));
        let commands = verdict(&mut machine, after(1), 0, failed(tries));
        commands.into_iter().find_map(|command| match command {
            Command::Nack { counted, .. } => Some(if counted { "again" } else { "uncounted" }),
            Command::Reject { .. } => Some("dead"),
            _ => None,
        })
    };
    assert_eq!(sees(1_000, 1, true), Some("again"), "an outage");
    assert_eq!(sees(1, 1_000, true), Some("again"), "a dead letter that was sent again");
    assert_eq!(sees(attempts_max, attempts_max, true), Some("dead"));
    assert_eq!(sees(1_000, 1, false), None, "the control: it was refused when it came");
}

/// What a receiver that counts could not count, as a panic, is counted by the process, and what breaks a rule by the broker.
#[test]
fn what_no_receiver_could_count_is_counted_all_the_same() {
    let dies = |count, answer: fn() -> Answer| {
        let capabilities = SubscriptionCapabilities::least(VISIBILITY);
        let mut machine =
            Machine::new(ConsumerOptions::default(), capabilities, 7).of_receiver_that_counts(true);
        machine.step(Tick(0), Input::Woke);
        let mut came = delivery(1, "a");
        came.count = count;
        machine.step(Tick(0), Input::Received(vec![came]));
        let commands = machine.step(after(1), Input::Answered(DeliveryNo(0), answer()));
        commands.iter().any(|command| matches!(command, Command::Reject { .. }))
    };
    let panicked = || Answer::Panicked("out of paper".to_owned());
    assert!(!dies(1_000, panicked), "the row of the inbox has it, and refuses at last");
    let wrong = || Answer::Failed(Error::new(ErrorKind::Invalid, "claim"));
    assert!(dies(1_000, wrong), "it has no row");
    assert!(!dies(1, wrong), "the control");
}

/// INV-2: what the broker could make no dead letter of comes again, and what is behind it in its key has not passed it.
#[test]
fn a_refusal_that_the_broker_does_not_take_keeps_its_place() {
    let (mut machine, _) = received(vec![delivery(1, "a"), delivery(2, "a"), delivery(3, "b")]);
    let reject = || Verdict::Reject(Fault::new(ErrorKind::Invalid, "no such order"));
    let commands = verdict(&mut machine, after(1), 0, reject());
    assert!(matches!(&commands[0], Command::Reject { no: DeliveryNo(0), .. }), "{commands:?}");
    assert!(started(&commands).is_empty(), "nobody knows yet: {commands:?}");
    let refused = Err(Error::new(ErrorKind::Unroutable, "reject"));
    let commands = machine.step(after(2), Input::Settled(DeliveryNo(0), refused));
    assert!(started(&commands).is_empty(), "{commands:?}");
    assert!(
        matches!(&commands[0], Command::Nack { no: DeliveryNo(1), counted: false, .. }),
        "it goes as well: {commands:?}"
    );
    let said = |machine: &Machine| match machine.health() {
        Health::BrokerDown { detail } => detail,
        health => format!("{health:?}"),
    };
    assert!(said(&machine).contains("no dead letter could be made"), "{}", said(&machine));
    assert_eq!((machine.stats().rejected, machine.stats().settle_failed), (0, 1));
    machine.step(after(2), Input::Settled(DeliveryNo(1), Ok(())));
    let both = vec![delivery(2, "a"), delivery(1, "a")];
    let commands = machine.step(after(40), Input::Received(both));
    assert_eq!(started(&commands), [4], "the first");
    verdict(&mut machine, after(41), 4, reject());
    machine.step(after(42), Input::Settled(DeliveryNo(4), Ok(())));
    assert_eq!(said(&machine), "Ready", "and no longer");
    let commands = machine.step(after(50), Input::Received(vec![delivery(2, "a")]));
    assert_eq!(started(&commands), [5], "the key flows after the dead letter");
}

/// A broker that does not count deliveries leaves the counting to the process.
#[test]
fn failures_are_counted_here_where_the_broker_does_not_count() {
    let (mut machine, _) = received(vec![delivery(1, "a")]);
    let mut now = Tick(0);
    for no in 0..9 {
        let commands = verdict(&mut machine, now, no, retry());
        assert!(
            commands.iter().any(|c| matches!(c, Command::Nack { counted: true, .. })),
            "try {no}"
        );
        machine.step(now, Input::Settled(DeliveryNo(no), Ok(())));
        now = now + Duration::from_secs(1);
        machine.step(now, Input::Received(vec![delivery(1, "a")]));
    }
    let last = verdict(&mut machine, now, 9, retry());
    assert!(last.iter().any(|c| matches!(c, Command::Reject { .. })), "the tenth: {last:?}");
}

/// R082: a message is extended at a third of its visibility, also while it waits, and one that was
/// lost before a handler was free is not started.
#[test]
fn visibility_is_extended_and_what_lost_it_is_not_started() {
    let (mut machine, commands) = received(vec![delivery(1, "a"), delivery(2, "a")]);
    assert_eq!(commands.last(), Some(&Command::WaitUntil(after(10))), "a third");
    let commands = machine.step(after(10), Input::Woke);
    let extended = |c: &&Command| matches!(c, Command::Extend { by, .. } if *by == VISIBILITY);
    assert_eq!(commands.iter().filter(extended).count(), 2);
    let refused = Err(Error::new(ErrorKind::Fenced, "extend"));
    let commands = machine.step(after(10), Input::Extended(DeliveryNo(1), refused));
    assert!(matches!(&commands[0], Command::Nack { no: DeliveryNo(1), counted: false, .. }));
    let commands = verdict(&mut machine, after(11), 0, Verdict::Done);
    assert!(started(&commands).is_empty(), "the second is somebody else's now");
    assert_eq!(machine.stats().lost, 1);
}

#[test]
fn a_store_that_is_down_is_asked_by_one_probe_at_a_time() {
    let keys = ["a", "b", "c", "d", "e", "f"];
    let deliveries = keys.iter().zip(1..).map(|(key, message)| delivery(message, key)).collect();
    let capabilities = SubscriptionCapabilities::least(VISIBILITY);
    let options = ConsumerOptions { in_flight_max: 3, ..ConsumerOptions::default() };
    let mut machine = Machine::new(options, capabilities, 7);
    machine.step(Tick(0), Input::Woke);
    let commands = machine.step(Tick(0), Input::Received(deliveries));
    assert_eq!(started(&commands), [0, 1, 2]);
    let fail = |machine: &mut Machine, now, no| {
        let error = Error::new(ErrorKind::Unavailable, "claim").message("connection refused");
        machine.step(now, Input::Answered(DeliveryNo(no), Answer::Failed(error)))
    };
    assert_eq!(started(&fail(&mut machine, Tick(0), 0)), [3], "one failure may be chance");
    fail(&mut machine, Tick(0), 1);
    let commands = fail(&mut machine, Tick(0), 2);
    assert!(started(&commands).is_empty(), "three are not");
    assert!(matches!(machine.health(), Health::StoreDown { detail } if detail.contains("refused")));
    let Some(Command::WaitUntil(probe)) = commands.last() else { panic!("{commands:?}") };
    // Delivery 3 and 4 were started before it opened; 5 is the probe.
    let commands = machine.step(*probe, Input::Woke);
    assert_eq!(started(&commands).len(), 1, "{commands:?}");
    let probe_no = started(&commands)[0];
    verdict(&mut machine, *probe, probe_no, Verdict::Done);
    assert_eq!(machine.health(), Health::Ready);
}

#[test]
fn a_handler_that_works_too_long_is_told_then_dropped_and_the_try_counts() {
    let (mut machine, _) = received(vec![delivery(1, "a"), delivery(2, "b")]);
    let commands = machine.step(after(600), Input::Woke);
    assert!(
        commands.contains(&Command::Cancel { no: DeliveryNo(0), overtime: true }),
        "{commands:?}"
    );
    verdict(&mut machine, after(601), 1, Verdict::Done);
    let commands = machine.step(after(605), Input::Woke);
    assert!(commands.contains(&Command::Kill { no: DeliveryNo(0) }));
    assert!(!commands.contains(&Command::Kill { no: DeliveryNo(1) }), "it stopped in time");
    assert!(commands.iter().any(|c| matches!(c, Command::Nack { counted: true, .. })));
}

#[test]
fn a_failing_broker_is_asked_again_later_and_later() {
    let capabilities = SubscriptionCapabilities::least(VISIBILITY);
    let mut machine = Machine::new(ConsumerOptions::default(), capabilities, 7);
    machine.step(Tick(0), Input::Woke);
    let mut now = Tick(0);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let error = Error::new(ErrorKind::Unavailable, "receive");
        let commands = machine.step(now, Input::ReceiveFailed(error));
        let Some(Command::WaitUntil(wake)) = commands.last() else { panic!("{commands:?}") };
        pauses.push(wake.since(now));
        now = *wake;
        let commands = machine.step(now, Input::Woke);
        assert!(matches!(commands[0], Command::Receive { .. }), "{commands:?}");
    }
    assert!(pauses[0] <= Duration::from_secs(1) && pauses[11] >= Duration::from_secs(15));
    assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(30)), "{pauses:?}");
    assert!(matches!(machine.health(), Health::BrokerDown { .. }));
    machine.step(now, Input::Received(Vec::new()));
    assert!(matches!(machine.health(), Health::Ready), "it answers, and has nothing");
}

/// A message is remembered from when the broker took it back: if that took long, it comes late, and
/// the next one of its key must not have started by then.
#[test]
fn a_return_that_the_broker_is_slow_to_answer_keeps_its_place() {
    let (mut machine, _) = received(vec![delivery(1, "a")]);
    verdict(&mut machine, after(1), 0, retry());
    let asked = after(200);
    let commands = machine.step(asked, Input::Received(vec![delivery(2, "a")]));
    assert!(started(&commands).is_empty(), "the first is not back: {commands:?}");
    let answered = after(201);
    machine.step(answered, Input::Settled(DeliveryNo(0), Ok(())));
    machine.step(answered, Input::Settled(DeliveryNo(1), Ok(())));
    let both = vec![delivery(2, "a"), delivery(1, "a")];
    let commands = machine.step(after(220), Input::Received(both));
    assert_eq!(started(&commands), [3], "the first, as it is remembered");
}

/// And what does not come is forgotten, counted from that answer.
#[test]
fn what_does_not_come_again_stops_holding_its_key() {
    let (mut machine, _) = received(vec![delivery(1, "a")]);
    verdict(&mut machine, after(1), 0, retry());
    machine.step(after(100), Input::Settled(DeliveryNo(0), Ok(())));
    let commands = machine.step(after(159), Input::Received(vec![delivery(2, "a")]));
    assert!(started(&commands).is_empty(), "not yet: {commands:?}");
    machine.step(after(159), Input::Settled(DeliveryNo(1), Ok(())));
    machine.step(after(165), Input::Woke);
    let commands = machine.step(after(166), Input::Received(vec![delivery(2, "a")]));
    assert_eq!(started(&commands), [2]);
}
