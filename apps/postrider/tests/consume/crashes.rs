//! Crashes: sidecars and endpoints killed around their calls.

use std::process::Stdio;
use std::time::{Duration, Instant};

use postrider_core::{EventId, Invariant};
use rusqlite::TransactionBehavior;

use crate::endpoint::{Endpoint, Plan};
use crate::history::{assert_one_effect_each, judge};
use crate::stage::{OUTLIVED, REST_MAX, Stage, TAKEN_OVER};

/// Both calls for an event had the same key.
fn assert_two_calls_of_one_key(endpoint: &Endpoint, id: EventId) {
    let calls = endpoint.calls_of(id);
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].header("idempotency-key"), calls[1].header("idempotency-key"));
    assert_eq!(calls[1].attempt(), 2, "the try of the dead counts");
}

/// R076, R089, F15: killed in the middle of a call, a sidecar leaves a claim that is taken over after
/// its lease; the endpoint is called by the same key.
#[tokio::test]
async fn killed_in_a_call_the_next_one_calls_by_the_same_key() {
    let stage = Stage::new();
    let event = stage.place("1").await;
    let endpoint = Endpoint::start(|_, before| match before {
        // The handler has acted, and is about to answer.
        0 => Plan::ActThen(Box::new(Plan::Hang)),
        _ => Plan::done(),
    })
    .await;
    let sidecar = stage.sidecar(&endpoint, &OUTLIVED).await;
    endpoint.called(1).await;
    sidecar.kill().await;
    assert_eq!(stage.number("select count(*) from inbox where status = 'claimed'"), 1);
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    sidecar.stop().await;
    assert_two_calls_of_one_key(&endpoint, event);
    assert_eq!(stage.number(TAKEN_OVER), 1);
    assert_one_effect_each(&stage, &endpoint).await;
}

/// Kills a sidecar after the endpoint answered, and before the inbox recorded it: its database is
/// locked in between, by an application that takes its time.
async fn killed_before_complete(endpoint: &Endpoint) -> Stage {
    let stage = Stage::new();
    let event = stage.place("1").await;
    let sidecar = stage.sidecar(endpoint, &OUTLIVED).await;
    endpoint.called(1).await;
    let mut application = stage.inbox();
    let lock = application.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    endpoint.open();
    endpoint.ended(1).await;
    sidecar.kill().await;
    drop(lock);
    assert_eq!(stage.number("select count(*) from inbox where status = 'processed'"), 0);
    let sidecar = stage.sidecar(endpoint, &[]).await;
    stage.settled().await;
    sidecar.stop().await;
    assert_two_calls_of_one_key(endpoint, event);
    stage
}

/// R088, F15: killed between the answer and its record, the endpoint is called twice by one key, and
/// its effect is there once.
#[tokio::test]
async fn killed_after_the_answer_the_key_absorbs_the_second_call() {
    let endpoint = Endpoint::start(|_, _| Plan::Held(Box::new(Plan::done()))).await;
    let stage = killed_before_complete(&endpoint).await;
    assert_one_effect_each(&stage, &endpoint).await;
}

/// The negative control of the same: without the key there are two effects, and the checker says so.
#[tokio::test]
async fn killed_after_the_answer_a_careless_handler_is_found_out() {
    let endpoint = Endpoint::careless(|_, _| Plan::Held(Box::new(Plan::done()))).await;
    let stage = killed_before_complete(&endpoint).await;
    let verdict = judge(&stage, &endpoint.effects()).await;
    assert_eq!(verdict.broken(), [Invariant::OneEffect], "{verdict}");
}

/// F19: a handler that dies at one event, and answers others, costs that event attempts; the sidecar
/// lives.
#[tokio::test]
async fn an_event_that_kills_its_handler_is_a_dead_letter() {
    let stage = Stage::new();
    let poison = stage.place("poison").await;
    let endpoint = Endpoint::start(move |call, _| match call.event.id == poison {
        true => Plan::Cut,
        false => Plan::done(),
    })
    .await;
    let sidecar = stage.sidecar(&endpoint, &["--attempts", "2"]).await;
    let begun = Instant::now();
    for number in 0.. {
        if begun.elapsed() > REST_MAX || !stage.dead().await.is_empty() {
            break;
        }
        stage.place(&number.to_string()).await;
        // waits: orders come in one by one
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stage.settled().await;
    sidecar.stop().await;
    assert_eq!(stage.dead().await.len(), 1);
    assert_one_effect_each(&stage, &endpoint).await;
}

/// Sidecars are killed again and again, at moments that nobody chose, while orders come: whatever was
/// placed is acted on once.
#[tokio::test]
async fn whatever_is_killed_everything_placed_is_acted_on_once() {
    let stage = Stage::new();
    let endpoint =
        Endpoint::start(|_, _| Plan::After(Duration::from_millis(20), Box::new(Plan::done())))
            .await;
    let mut called = 0;
    for round in 0..6_usize {
        for order in 0..30 {
            stage.place(&(order % 11).to_string()).await;
        }
        // Short: what a killed one held is waited for in the next round, and may come twice.
        let sidecar = stage.sidecar(&endpoint, &["--concurrency", "4", "--lease", "1s"]).await;
        called += 5 + 3 * round;
        endpoint.called(called.max(endpoint.calls().len() + 1)).await;
        sidecar.kill().await;
    }
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    sidecar.stop().await;
    assert_eq!(stage.processed().len(), 180);
    assert!(stage.dead().await.is_empty());
    assert_one_effect_each(&stage, &endpoint).await;
}

/// An endpoint whose process is killed in the middle of its calls, and started again, costs no event
/// an attempt. It is the handler of the guide, if Python is there.
#[tokio::test]
async fn a_killed_endpoint_costs_no_event_an_attempt() {
    let Some(python) = crate::guide::python() else { return };
    let stage = Stage::new();
    for order in 0..40 {
        stage.place(&order.to_string()).await;
    }
    let handler = crate::guide::Handler::start(&python, &stage, 0);
    let port = handler.port();
    let to = handler.url();
    let mut sidecar = stage.sidecar_to(&to, &["--lease", "30s", "--attempts", "1"]).await;
    let acted = || crate::guide::charges(&stage).len();
    stage.until("some orders were charged", || acted() >= 3).await;
    handler.kill();
    stage.place("late").await;
    sidecar.hear("events wait, none counted").await;
    let handler = crate::guide::Handler::start(&python, &stage, port);
    stage.settled().await;
    sidecar.stop().await;
    handler.kill();
    assert!(stage.dead().await.is_empty());
    let verdict = judge(&stage, &crate::guide::charges(&stage)).await;
    assert!(verdict.holds() && verdict.judged(Invariant::OneEffect) > 0, "{verdict}");
}

/// A sidecar that is asked nothing prints nothing on standard output, and leaves it to others.
#[tokio::test]
async fn standard_output_stays_empty() {
    let stage = Stage::new();
    stage.place("1").await;
    let endpoint = Endpoint::willing().await;
    let mut command = stage.command(&endpoint.url(), &[]);
    let child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    stage.until("it is done", || stage.processed().len() == 1).await;
    let id = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.stdout.is_empty() && output.status.success());
}
