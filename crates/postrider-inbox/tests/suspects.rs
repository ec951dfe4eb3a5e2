//! What was begun suspiciously often is tried alone: what ends the process then is known, and takes nobody along.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use postrider_core::inbox::{DELIVERIES_MAX, Receiver, Verdict, usual_deliveries};
use postrider_core::subscription::{Receipt, SubscriptionCapabilities};
use postrider_core::{Delivery, ErrorKind, Event, EventId, Fault, Tick};
use postrider_inbox::command::{Answer, Command, DeliveryNo, Input};
use postrider_inbox::{ConsumerOptions, Context, Leased, Machine, Outcome, Performed};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::bench::{Bench, LEASE, event};

const VISIBILITY: Duration = Duration::from_secs(30);

/// A first delivery, as far as its broker knows: many count in each process for itself, if at all.
fn delivery(event: &Arc<Event>, message: u64) -> Delivery {
    let receipt = Receipt { message, token: 1 };
    Delivery::new(Ok(Arc::clone(event)), Arc::from("orders"), receipt)
}

fn engine(deliveries: Vec<Delivery>) -> (Machine, Vec<Command>) {
    let capabilities = SubscriptionCapabilities::least(VISIBILITY);
    let options = ConsumerOptions::default();
    let mut machine = Machine::new(options, capabilities, 7).of_receiver_that_counts(true);
    machine.step(Tick(0), Input::Woke);
    let commands = machine.step(Tick(0), Input::Received(deliveries));
    (machine, commands)
}

/// What is started: the number, and whether alone.
fn started(commands: &[Command]) -> Vec<(u64, bool)> {
    let of = |command: &Command| match command {
        Command::Dispatch { no, delivery } => Some((no.0, delivery.alone == Some(true))),
        _ => None,
    };
    commands.iter().filter_map(of).collect()
}

fn answer(machine: &mut Machine, no: u64, verdict: Verdict) -> Vec<Command> {
    machine.step(Tick(1), Input::Answered(DeliveryNo(no), Answer::Verdict(verdict)))
}

fn of_keys(keys: &[&str]) -> Vec<Delivery> {
    let numbered = keys.iter().zip(0_u64..);
    numbered.map(|(key, n)| delivery(&event(u128::from(n) + 1, key), n)).collect()
}

/// F19: one suspect after the other, each while nothing else is in work, at its place in its key.
#[test]
fn a_suspect_waits_for_all_and_all_wait_for_it() {
    let (mut machine, begun) = engine(of_keys(&["a", "b", "c", "b"]));
    assert_eq!(started(&begun), [(0, false), (1, false), (2, false)]);
    assert_eq!(started(&answer(&mut machine, 1, Verdict::Alone)), [], "two are in work");
    assert_eq!(started(&answer(&mut machine, 2, Verdict::Alone)), [], "one is in work");
    let more = of_keys(&["d"]);
    assert_eq!(
        started(&machine.step(Tick(1), Input::Received(more))),
        [],
        "none is begun meanwhile"
    );
    assert_eq!(machine.stats().suspects, 2);
    assert_eq!(started(&answer(&mut machine, 0, Verdict::Done)), [(1, true)]);
    assert_eq!(started(&machine.step(Tick(2), Input::Woke)), [], "and none beside it");
    assert_eq!(started(&answer(&mut machine, 1, Verdict::Done)), [(2, true)], "then the next");
    assert_eq!(started(&answer(&mut machine, 2, Verdict::Done)), [(3, false), (4, false)]);
    assert_eq!((machine.stats().done, machine.stats().suspects), (3, 0));
}

/// Nothing that happens to a suspect keeps the others waiting: it is given back, its visibility ends, or it says once more
/// what it was granted.
#[test]
fn a_suspect_that_goes_away_keeps_nobody() {
    let (mut machine, _) = engine(of_keys(&["a", "b", "c"]));
    answer(&mut machine, 0, Verdict::Alone);
    answer(&mut machine, 1, Verdict::Alone);
    let alone = answer(&mut machine, 2, Verdict::Done);
    assert_eq!(started(&alone), [(0, true)]);
    let again = answer(&mut machine, 0, Verdict::Alone);
    assert!(again.iter().any(|it| matches!(it, Command::Nack { counted: false, .. })), "{again:?}");
    assert_eq!(started(&again), [(1, true)]);
    answer(&mut machine, 1, Verdict::Reject(Fault::new(ErrorKind::Rejected, "no")));
    let next = machine.step(Tick(2), Input::Received(of_keys(&["e", "f"])));
    assert_eq!(started(&next), [(3, false), (4, false)]);
    answer(&mut machine, 3, Verdict::Alone);
    let late = Tick(0) + 2 * VISIBILITY;
    let free = machine.step(late, Input::Answered(DeliveryNo(4), Answer::Verdict(Verdict::Done)));
    assert_eq!(started(&free), [], "nobody extended its visibility");
    let next = machine.step(late, Input::Received(of_keys(&["g", "h"])));
    assert_eq!(started(&next), [(5, false), (6, false)]);
    answer(&mut machine, 5, Verdict::Alone);
    let given = machine.step(late, Input::Drain { deadline: late + VISIBILITY });
    let back = |it: &Command| matches!(it, Command::Nack { no: DeliveryNo(5), .. });
    assert!(given.iter().any(back), "{given:?}");
    assert_eq!(started(&answer(&mut machine, 6, Verdict::Alone)), [], "it stops");
    assert_eq!(machine.stats().in_work, 0);
}

/// R079: what fails is never put off, however often; what had no end is from half of its tries on, which is no try.
#[tokio::test(start_paused = true)]
async fn what_had_no_end_so_often_is_tried_alone_and_what_failed_is_not() {
    let bench = Bench::new();
    let event = event(1, "a");
    let fails = bench.worker(|_: Arc<Event>, _: Context| async { Ok(Outcome::retry("no")) });
    let mut delivery = delivery(&event, 1);
    delivery.alone = Some(false);
    for expected in 1..=DELIVERIES_MAX + 2 {
        let said = fails.receive(&event, &delivery).await.unwrap();
        assert!(matches!(said, Verdict::Retry { tries: Some(n), .. } if n == expected), "{said:?}");
    }
    let half = usual_deliveries(DELIVERIES_MAX);
    end(&bench, &event, half - 1).await;
    let said = fails.receive(&event, &delivery).await.unwrap();
    assert!(matches!(said, Verdict::Retry { .. }), "the control: not one too early: {said:?}");
    end(&bench, &event, half).await;
    for _ in 0..5 {
        assert_eq!(fails.receive(&event, &delivery).await.unwrap(), Verdict::Alone);
    }
    delivery.alone = Some(true);
    end(&bench, &event, DELIVERIES_MAX - half - 1).await;
    let said = fails.receive(&event, &delivery).await.unwrap();
    assert!(matches!(said, Verdict::Retry { .. }), "the control: not one too early: {said:?}");
    end(&bench, &event, DELIVERIES_MAX).await;
    let said = fails.perform(&event).await.unwrap();
    assert!(matches!(said, Performed::Retry { .. }), "who cannot be alone is asked: {said:?}");
    end(&bench, &event, DELIVERIES_MAX).await;
    for _ in 0..2 {
        let refused = fails.receive(&event, &delivery).await.unwrap();
        let Verdict::Reject(fault) = refused else { panic!("{refused:?}") };
        assert!(fault.detail.contains("may stop the consumer"), "{fault}");
    }
    fails.buried(&delivery).await.unwrap();
    let said = fails.receive(&event, &delivery).await.unwrap();
    assert!(matches!(said, Verdict::Retry { tries: Some(1), .. }), "sent again: {said:?}");
}

/// Processes that end with the event at work, so many times.
async fn end(bench: &Bench, event: &Event, times: u32) {
    for _ in 0..times {
        bench.orphan_claim(event).await;
        // waits: for the lease to expire
        sleep(LEASE * 2).await;
    }
}

/// A process: its engine with all that is left, until the poison ends it, or nothing is left. Who is at work then gets no
/// further.
struct Process<'a> {
    events: &'a [Arc<Event>],
    /// Whether its engine tries suspects alone.
    heeds: bool,
    over: BTreeSet<EventId>,
    refused: Vec<EventId>,
}

impl Process<'_> {
    async fn live(&mut self, worker: &Leased, death: &Notify) {
        let left = self.events.iter().filter(|event| !self.over.contains(&event.id));
        let deliveries = left.zip(0..).map(|(event, n)| delivery(event, n)).collect();
        let (mut machine, mut commands) = engine(deliveries);
        loop {
            let begun: Vec<_> = commands.drain(..).filter_map(|it| self.begun(it)).collect();
            if begun.is_empty() {
                return;
            }
            let calls = begun.iter().map(|(_, event, delivery)| worker.receive(event, delivery));
            let answers = tokio::select! {
                answers = join_all(calls) => answers,
                () = death.notified() => return,
            };
            for ((no, event, _), said) in begun.iter().zip(answers) {
                let verdict = said.unwrap();
                if matches!(verdict, Verdict::Done | Verdict::Reject(_)) {
                    self.over.insert(event.id);
                }
                if matches!(verdict, Verdict::Reject(_)) {
                    self.refused.push(event.id);
                }
                commands.extend(answer(&mut machine, no.0, verdict));
            }
        }
    }

    fn begun(&self, command: Command) -> Option<(DeliveryNo, Arc<Event>, Delivery)> {
        let Command::Dispatch { no, delivery } = command else { return None };
        let mut delivery = Delivery::clone(&delivery);
        if !self.heeds {
            // It takes itself for alone.
            delivery.alone = Some(true);
        }
        let event = Arc::clone(delivery.event.as_ref().unwrap());
        Some((no, event, delivery))
    }
}

/// Processes that one event ends, a moment after it was begun, while all others take longer. Says what was refused, and how many were
/// done.
async fn processes(heeds: bool) -> (Vec<EventId>, usize) {
    let bench = Bench::new();
    let events: Vec<_> = (1..=6).map(|n| event(n, &n.to_string())).collect();
    let poison = events[2].id;
    let mut process =
        Process { events: &events, heeds, over: BTreeSet::new(), refused: Vec::new() };
    for _ in 0..=DELIVERIES_MAX {
        let death = Arc::new(Notify::new());
        let (end, own) = (Arc::clone(&death), bench.other_view());
        let view = Arc::clone(&own);
        let worker = bench.worker_on(view, move |event: Arc<Event>, _: Context| {
            let (end, own) = (Arc::clone(&end), Arc::clone(&own));
            async move {
                sleep(LEASE / 100).await; // waits: what this handler takes
                if event.id == poison {
                    // Who is dead lets go of nothing.
                    own.down.store(true, Ordering::SeqCst);
                    end.notify_one();
                }
                sleep(LEASE / 10).await; // waits: what this handler takes
                Ok(Outcome::done())
            }
        });
        process.live(&worker, &death).await;
        // waits: for the claims of who died to expire
        sleep(LEASE * 2).await;
    }
    let done = process.over.len() - process.refused.len();
    (process.refused, done)
}

/// F19: an event that ends its process is refused at last, and takes nobody along who was beside it.
#[tokio::test(start_paused = true)]
async fn who_ends_the_process_is_refused_and_his_neighbours_are_done() {
    assert_eq!(processes(true).await, (vec![EventId::from_u128(3)], 5));
    let (refused, done) = processes(false).await;
    assert!(refused.len() == 6 && done == 0, "the control: {refused:?}, {done} done");
}
