//! What counts as a try of an event, whichever process made it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use postrider_core::inbox::{DELIVERIES_MAX, Receiver, Verdict};
use postrider_core::subscription::Receipt;
use postrider_core::{Delivery, Event, Result};
use postrider_inbox::signal::{Signal, within};
use postrider_inbox::{Context, Leased, Outcome};
use tokio::time::sleep;

use crate::bench::{Bench, LEASE, event};

/// Receives what the broker has delivered so often.
async fn delivered(worker: &Leased, event: &Arc<Event>, count: u32) -> Result<Verdict> {
    let receipt = Receipt { message: 1, token: 1 };
    let mut delivery = Delivery::new(Ok(Arc::clone(event)), Arc::from("orders"), receipt);
    delivery.count = count;
    worker.receive(event, &delivery).await
}

/// How many tries the answer says there were.
fn tries(answer: Result<Verdict>) -> u32 {
    match answer {
        Ok(Verdict::Retry { tries: Some(tries), .. }) => tries,
        other => panic!("{other:?}"),
    }
}

/// R079: what waits for something that is away is delivered again and again, by many processes, and that never counts.
#[tokio::test(start_paused = true)]
async fn an_outage_is_no_try_whichever_process_met_it() {
    let bench = Bench::new();
    let event = event(1, "a");
    let waits = |_: Arc<Event>, _: Context| async { Ok(Outcome::Later { after: LEASE }) };
    for count in 1..=50 {
        let answer = delivered(&bench.worker(waits), &event, count).await.unwrap();
        assert_eq!(answer, Verdict::Busy { retry_in: LEASE });
    }
    let fails = |_: Arc<Event>, _: Context| async { Ok(Outcome::retry("no")) };
    assert_eq!(tries(delivered(&bench.worker(fails), &event, 51).await), 1);
    assert_eq!(tries(delivered(&bench.worker(fails), &event, 52).await), 2, "the control");
}

/// R079: who is told to stop because the engine stops has not failed, whether it says so or is dropped; who works too long has.
#[tokio::test(start_paused = true)]
async fn to_be_stopped_with_the_engine_is_no_try_and_to_work_too_long_is() {
    let bench = Bench::new();
    let event = event(1, "a");
    let until_told = |_: Arc<Event>, context: Context| async move {
        context.cancelled().await;
        Ok(Outcome::retry("told to stop"))
    };
    let hangs = |_: Arc<Event>, _: Context| std::future::pending();
    let stopped = Signal::new();
    stopped.give();
    for count in 1..=3 {
        let worker = bench.worker(until_told);
        let answer = within(stopped.listener(), delivered(&worker, &event, count)).await;
        assert_eq!(tries(answer), 1, "the engine gives it back");
        let worker = bench.worker(hangs);
        let dropped = within(stopped.listener(), delivered(&worker, &event, count));
        assert!(tokio::time::timeout(LEASE / 10, dropped).await.is_err());
        // waits: for the claim to be let go
        sleep(LEASE / 10).await;
    }
    let late = Signal::new();
    late.give_for_overtime();
    let worker = bench.worker(until_told);
    let answer = within(late.listener(), delivered(&worker, &event, 7)).await;
    assert_eq!(tries(answer), 1);
    let fails = bench.worker(|_: Arc<Event>, _: Context| async { Ok(Outcome::retry("no")) });
    assert_eq!(tries(delivered(&fails, &event, 8).await), 2, "the control");
}

/// A dead letter that is sent again begins anew, however it became one.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_sent_again_begins_anew() {
    let bench = Bench::new();
    let event = event(1, "a");
    let fails = bench.worker(|_: Arc<Event>, _: Context| async { Ok(Outcome::retry("no")) });
    for count in 1..=3 {
        assert_eq!(tries(delivered(&fails, &event, count).await), count);
    }
    let receipt = Receipt { message: 1, token: 1 };
    fails
        .buried(&Delivery::new(Ok(Arc::clone(&event)), Arc::from("orders"), receipt))
        .await
        .unwrap();
    assert_eq!(tries(delivered(&fails, &event, 9).await), 1);
}

/// A handler that panics in ever new processes says nothing, and is refused at last where the broker counts. Where it does not,
/// each process counts for itself.
#[tokio::test(start_paused = true)]
async fn what_panics_in_ever_new_processes_is_refused_at_last() {
    let bench = Bench::new();
    let event = event(1, "a");
    for count in 1..=DELIVERIES_MAX + 1 {
        let panics = bench.worker(|_: Arc<Event>, _: Context| async {
            assert_eq!(1, 2, "a fault of the handler's");
            Ok(Outcome::done())
        });
        let of = Arc::clone(&event);
        let said = tokio::spawn(async move { delivered(&panics, &of, count).await }).await;
        // waits: for the claim to be let go
        sleep(LEASE / 10).await;
        match said {
            Err(_) => assert!(count <= DELIVERIES_MAX),
            Ok(said) => {
                assert!(matches!(said, Ok(Verdict::Reject(_))), "{said:?}");
                assert_eq!(count, DELIVERIES_MAX + 1);
            }
        }
    }
}

/// What a process that lives has lost is held against no event: answers of the store that got lost, and a store that takes no results.
#[tokio::test(start_paused = true)]
async fn who_lives_was_ended_by_nothing() {
    let bench = Bench::new();
    let event = event(1, "a");
    let view = bench.other_view();
    let own = Arc::clone(&view);
    let loses = bench.worker_on(Arc::clone(&view) as Arc<_>, move |_: Arc<Event>, _: Context| {
        own.down.store(true, Ordering::SeqCst);
        async { Ok(Outcome::done()) }
    });
    let receipt = Receipt { message: 1, token: 1 };
    let mut delivery = Delivery::new(Ok(Arc::clone(&event)), Arc::from("orders"), receipt);
    delivery.alone = Some(false);
    for _ in 0..DELIVERIES_MAX * 2 {
        assert!(loses.receive(&event, &delivery).await.is_err());
        view.down.store(false, Ordering::SeqCst);
        // waits: for the lease to expire
        sleep(LEASE * 2).await;
    }
    let others = bench.worker(|_: Arc<Event>, _: Context| async { Ok(Outcome::done()) });
    let said = others.receive(&event, &delivery).await.unwrap();
    assert_eq!(said, Verdict::Done, "the next process is told so, all but the last");
}

/// A failure makes good for what was lost before it, and to wait for something does not: what its handler needs may be away in each
/// new process at first, and be there when the event ends it.
#[tokio::test(start_paused = true)]
async fn a_failure_makes_good_for_what_was_lost_and_waiting_does_not() {
    let bench = Bench::new();
    let event = event(1, "a");
    let receipt = Receipt { message: 1, token: 1 };
    let mut delivery = Delivery::new(Ok(Arc::clone(&event)), Arc::from("orders"), receipt);
    delivery.alone = Some(false);
    for outcome in [Outcome::retry("no"), Outcome::Later { after: LEASE }] {
        let makes_good = !matches!(outcome, Outcome::Later { .. });
        let mut put_off = 0;
        for _ in 0..DELIVERIES_MAX {
            bench.orphan_claim(&event).await;
            // waits: for the lease to expire
            sleep(LEASE * 2).await;
            let outcome = outcome.clone();
            let process = bench.worker(move |_: Arc<Event>, _: Context| {
                let outcome = outcome.clone();
                async move { Ok(outcome) }
            });
            let said = process.receive(&event, &delivery).await.unwrap();
            put_off += u32::from(said == Verdict::Alone);
        }
        assert_eq!(put_off == 0, makes_good, "{put_off}");
    }
}
