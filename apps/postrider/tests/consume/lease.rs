//! Leases: calls that take longer than one, and sidecars that stand still past theirs.

use std::time::Duration;

use postrider_core::Invariant;
use rusqlite::TransactionBehavior;
use rustix::process::Signal;

use crate::endpoint::{Endpoint, Plan};
use crate::history::{assert_one_effect_each, judge};
use crate::stage::{OUTLIVED, Stage, TAKEN_OVER};

/// R081: a handler that works three leases long is called once, also while another sidecar of its
/// group waits for work.
#[tokio::test]
async fn a_call_of_three_leases_is_one_call() {
    let stage = Stage::new();
    stage.place("slow").await;
    // A claim is renewed each third of it: a machine that stands still for seconds does not lose it.
    let (lease, slow) = (["--lease", "8s", "--timeout", "60s"], Duration::from_secs(24));
    let endpoint = Endpoint::start(move |_, _| Plan::After(slow, Box::new(Plan::done()))).await;
    let first = stage.sidecar(&endpoint, &lease).await;
    let second = stage.sidecar(&endpoint, &lease).await;
    stage.settled().await;
    let (first, second) = (first.stop().await, second.stop().await);
    assert_eq!(endpoint.calls().len(), 1);
    assert!(!first.text.contains("lost") && !second.text.contains("lost"));
    assert_eq!(stage.number(TAKEN_OVER), 0, "one claim");
    assert_one_effect_each(&stage, &endpoint).await;
}

/// A sidecar stands still past its lease in the middle of a call; another one takes over. The first
/// one wakes up with an answer in its hand, and may not complete.
async fn outlived(endpoint: &Endpoint) -> Stage {
    let stage = Stage::new();
    let event = stage.place("1").await;
    let mut paused = stage.sidecar(endpoint, &OUTLIVED).await;
    endpoint.called(1).await;
    paused.signal(Signal::STOP);
    let other = stage.sidecar(endpoint, &[]).await;
    endpoint.called(2).await;
    endpoint.open();
    stage.settled().await;
    assert_eq!(stage.number(TAKEN_OVER), 1);
    let result = "select count(*) from inbox where result = cast('by the second' as blob)";
    assert_eq!(stage.number(result), 1, "the result is the second one's");
    paused.signal(Signal::CONT);
    paused.hear("the claim was lost while the endpoint worked").await;
    let paused = paused.stop().await;
    let other = other.stop().await;
    assert!(paused.text.contains("0 delivered"), "{}", paused.text);
    assert!(paused.text.contains("1 claims lost"), "{}", paused.text);
    assert!(other.text.contains("1 delivered"), "{}", other.text);
    assert_eq!(stage.number(result), 1, "and stays so");
    assert_eq!(stage.number(TAKEN_OVER), 1);
    let calls = endpoint.calls_of(event);
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].header("idempotency-key"), calls[1].header("idempotency-key"));
    stage
}

/// What the first call is answered with, while its sidecar stands still, and the second.
fn answers(before: usize) -> Plan {
    let body = if before == 0 { "by the first" } else { "by the second" };
    Plan::Held(Box::new(Plan::Act(body.into())))
}

/// R114, F11, F14: whoever wakes up past its lease is refused, and the effect is there once.
#[tokio::test]
async fn a_sidecar_that_stood_still_past_its_lease_completes_nothing() {
    let endpoint = Endpoint::start(|_, before| answers(before)).await;
    let stage = outlived(&endpoint).await;
    assert_one_effect_each(&stage, &endpoint).await;
}

/// The negative control: a handler that ignores the key acts twice in the same play, and the checker
/// says so.
#[tokio::test]
async fn a_careless_handler_in_the_same_play_is_found_out() {
    let endpoint = Endpoint::careless(|_, before| answers(before)).await;
    let stage = outlived(&endpoint).await;
    let verdict = judge(&stage, &endpoint.effects()).await;
    assert_eq!(verdict.broken(), [Invariant::OneEffect], "{verdict}");
}

/// R079: what another sidecar is at is left on the queue, uncounted, however often it comes.
#[tokio::test]
async fn what_another_sidecar_works_on_is_left_alone() {
    let stage = Stage::new();
    let event = crate::stage::order("1");
    stage.publish(&event, 1).await;
    let endpoint = Endpoint::start(|_, _| Plan::Held(Box::new(Plan::done()))).await;
    let worker = stage.sidecar(&endpoint, &["--attempts", "1"]).await;
    endpoint.called(1).await;
    // The broker forgets that the message is with somebody.
    let queue = postrider_sqlite::connect(stage.path("queue.db")).unwrap();
    queue.execute("update delivery set visible_at_ms = 0", ()).unwrap();
    let other = stage.sidecar(&endpoint, &["--attempts", "1"]).await;
    stage
        .until("the other one had it", || {
            let claims = "select max(token) from delivery";
            queue.query_row(claims, (), |row| row.get::<_, i64>(0)).unwrap() >= 2
        })
        .await;
    endpoint.open();
    stage.settled().await;
    let worker = worker.stop().await;
    let other = other.stop().await;
    assert!(worker.text.contains("1 delivered"), "{}", worker.text);
    assert!(other.text.contains("0 delivered"), "{}", other.text);
    assert!(stage.dead().await.is_empty());
    assert_eq!(endpoint.calls().len(), 1);
}

/// R081: when the lease is lost under a call, the connection is closed, so that the handler can know.
#[tokio::test]
async fn a_lost_lease_closes_the_connection_of_its_call() {
    let stage = Stage::new();
    stage.place("1").await;
    let endpoint = Endpoint::start(|_, before| match before {
        0 => Plan::Hang,
        _ => Plan::done(),
    })
    .await;
    let mut paused = stage.sidecar(&endpoint, &OUTLIVED).await;
    endpoint.called(1).await;
    paused.signal(Signal::STOP);
    let other = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    endpoint.ended(1).await;
    paused.signal(Signal::CONT);
    endpoint.ended(2).await;
    paused.hear("the claim was lost while the endpoint worked").await;
    paused.stop().await;
    other.stop().await;
    assert_one_effect_each(&stage, &endpoint).await;
}

/// An inbox that cannot be written for longer than a lease is nobody's fault: the call is aborted,
/// because the claim may be another's by now, and no attempt counts.
#[tokio::test]
async fn a_locked_inbox_counts_against_no_event() {
    let stage = Stage::new();
    let event = stage.place("1").await;
    let endpoint = Endpoint::start(|_, before| match before {
        0 => Plan::Hang,
        _ => Plan::done(),
    })
    .await;
    let more = [&["--attempts", "1"], &OUTLIVED[..]].concat();
    let sidecar = stage.sidecar(&endpoint, &more).await;
    endpoint.called(1).await;
    let mut application = stage.inbox();
    let lock = application.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    endpoint.ended(1).await;
    drop(lock);
    stage.settled().await;
    sidecar.stop().await;
    assert!(stage.dead().await.is_empty());
    assert_eq!(endpoint.calls_of(event).last().unwrap().attempt(), 1);
    assert_one_effect_each(&stage, &endpoint).await;
}
