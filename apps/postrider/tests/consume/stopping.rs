//! Stopping: what is under way ends, what is not goes back at once, uncounted.

use std::time::Duration;

use rustix::process::Signal;

use crate::endpoint::{Endpoint, Plan};
use crate::history::assert_one_effect_each;
use crate::stage::Stage;

/// A stage on which a call is held, and more events wait than calls are allowed.
async fn busy(more: &[&str]) -> (Stage, Endpoint, crate::sidecar::Sidecar) {
    let stage = Stage::new();
    for order in 0..10 {
        stage.place(&order.to_string()).await;
    }
    let endpoint = Endpoint::start(|_, _| Plan::Held(Box::new(Plan::done()))).await;
    let args = [&["--concurrency", "2", "--lease", "60s"], more].concat();
    let sidecar = stage.sidecar_to(&endpoint.url(), &args).await;
    endpoint.called(2).await;
    (stage, endpoint, sidecar)
}

/// F39: a signal takes nothing new, lets the calls finish, and gives the rest back: the next sidecar
/// has it at once, though the lease is a minute.
#[tokio::test]
async fn a_signal_lets_calls_finish_and_gives_back_the_rest() {
    for signal in [Signal::TERM, Signal::INT] {
        let (stage, endpoint, mut sidecar) = busy(&[]).await;
        sidecar.signal(signal);
        sidecar.hear("stopping: nothing new is taken, 2 calls may finish").await;
        // Before the calls have ended: what waited for one of them is visible again.
        let hour = Duration::from_secs(3_600);
        let hidden = |within| stage.hidden(within);
        stage.until("the rest is given back", || heads_hidden(&stage) <= 2).await;
        assert!(hidden(Duration::ZERO) && !hidden(hour));
        endpoint.open();
        let ended = sidecar.ended().await;
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        assert!(ended.text.contains("2 delivered"), "{}", ended.text);
        assert_eq!(endpoint.calls().len(), 2, "nothing new was taken");
        let next = stage.sidecar_to(&endpoint.url(), &[]).await;
        stage.settled().await;
        next.stop().await;
        assert_eq!(endpoint.calls().len(), 10, "no call was made twice");
        assert!(endpoint.calls().iter().all(|call| call.attempt() == 1), "uncounted");
        assert_one_effect_each(&stage, &endpoint).await;
    }
}

fn heads_hidden(stage: &Stage) -> i64 {
    let queue = postrider_sqlite::connect(stage.path("queue.db")).unwrap();
    let hidden = "select count(*) from delivery
        where visible_at_ms > cast(unixepoch('subsec') * 1000 as integer)";
    queue.query_row(hidden, (), |row| row.get(0)).unwrap()
}

/// Calls that do not end in time are aborted: nothing is completed, the claims are let go, and the
/// next sidecar calls at once, by the same keys.
#[tokio::test]
async fn calls_that_do_not_end_in_time_are_aborted_and_given_back() {
    let (stage, endpoint, sidecar) = busy(&["--drain", "200ms"]).await;
    let ended = sidecar.stop().await;
    assert!(ended.text.contains("0 delivered"), "{}", ended.text);
    endpoint.ended(2).await;
    assert_eq!(stage.number("select count(*) from inbox where status = 'processed'"), 0);
    assert_taken_over(&stage, &endpoint).await;
}

/// A second signal aborts at once, with a code of its own.
#[tokio::test]
async fn a_second_signal_aborts() {
    let (stage, endpoint, mut sidecar) = busy(&["--drain", "1h"]).await;
    sidecar.signal(Signal::TERM);
    sidecar.hear("stopping").await;
    sidecar.signal(Signal::TERM);
    sidecar.hear("aborting the calls; their events come again").await;
    let ended = sidecar.ended().await;
    assert_eq!(ended.code, Some(130), "{}", ended.text);
    endpoint.ended(2).await;
    assert_taken_over(&stage, &endpoint).await;
}

/// Another sidecar does everything at once, though the first one's lease was a minute.
async fn assert_taken_over(stage: &Stage, endpoint: &Endpoint) {
    endpoint.open();
    let next = stage.sidecar_to(&endpoint.url(), &[]).await;
    stage.settled().await;
    next.stop().await;
    assert!(endpoint.calls().iter().all(|call| call.attempt() == 1), "uncounted");
    assert_eq!(endpoint.calls().len(), 12, "the two that were aborted, again");
    assert_one_effect_each(stage, endpoint).await;
}

/// A sidecar that waits for an endpoint that is away stops at once.
#[tokio::test]
async fn what_waits_for_the_endpoint_goes_back_at_once() {
    let stage = Stage::new();
    for order in 0..10 {
        stage.place(&order.to_string()).await;
    }
    let endpoint = Endpoint::willing().await;
    let url = endpoint.url();
    drop(endpoint);
    let mut sidecar = stage.sidecar_to(&url, &["--lease", "60s", "--drain", "1h"]).await;
    sidecar.hear("connection refused").await;
    sidecar.stop().await;
    stage.until("everything is given back", || heads_hidden(&stage) == 0).await;
}

/// F39: deployed again and again while orders come, each sidecar stopped in order: no call is made
/// twice, and nothing is lost.
#[tokio::test]
async fn rolling_deployments_call_for_nothing_twice() {
    let stage = Stage::new();
    let slow = Duration::from_millis(15);
    let endpoint = Endpoint::start(move |_, _| Plan::After(slow, Box::new(Plan::done()))).await;
    for _ in 0..6 {
        for order in 0..25 {
            stage.place(&(order % 9).to_string()).await;
        }
        let sidecar = stage.sidecar_to(&endpoint.url(), &["--concurrency", "4"]).await;
        endpoint.called(endpoint.calls().len() + 10).await;
        sidecar.stop().await;
    }
    let sidecar = stage.sidecar_to(&endpoint.url(), &[]).await;
    stage.settled().await;
    sidecar.stop().await;
    assert_eq!(endpoint.calls().len(), 150, "no duplicates on a graceful stop");
    assert_one_effect_each(&stage, &endpoint).await;
}
