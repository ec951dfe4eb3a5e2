//! Handlers killed around their effects: the effect is there once, however often the message came.

use std::collections::BTreeSet;

use postrider_core::Invariant;

use crate::evidence::{Witness, assert_holds, effects, placed};
use crate::process::{Ended, Process};
use crate::stage::{Stage, number, texts};

const EVENTS: u32 = 12;

/// A stage on which orders were placed and delivered to the broker.
async fn delivered(events: u32) -> (Stage, Witness) {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(events, &[]).await);
    stage.drain().await;
    (stage, witness)
}

async fn consumer(stage: &Stage, kind: &str, more: &[&str]) -> Process {
    stage.play("consumer", &[&["--kind", kind], more].concat()).await
}

/// Kills a consumer at a point.
async fn kill_at(stage: &Stage, kind: &str, place: &str) -> Ended {
    let mut process = consumer(stage, kind, &["--halt", place]).await;
    process.reached().await;
    process.kill().await
}

/// How often a handler acted on each order that was placed: once, all of them.
fn assert_each_once(stage: &Stage, kind: &str) {
    let acted = effects(stage).into_iter().find(|(name, _)| *name == kind).expect("a kind").1;
    let distinct: BTreeSet<_> = acted.iter().copied().collect();
    assert_eq!(distinct, placed(stage), "{kind} acted on every order, and on nothing else");
    assert_eq!(acted.len(), distinct.len(), "{kind} acted once on each");
}

async fn judge(stage: &Stage, witness: Witness) {
    let judged = [Invariant::NoLoss, Invariant::NoGhost, Invariant::KeyOrder, Invariant::OneEffect];
    assert_holds(&witness.judge(stage).await.1, &judged);
}

/// R074, R009: killed before the commit there is neither marker nor effect; the next worker acts.
#[tokio::test]
async fn killed_before_commit_there_is_neither_marker_nor_effect() {
    let (stage, witness) = delivered(EVENTS).await;
    kill_at(&stage, "billing", "before_commit:1").await;
    let billing = stage.billing();
    assert_eq!(number(&billing, "select count(*) from inbox"), 0);
    assert_eq!(number(&billing, "select count(*) from charges"), 0);
    stage.consume("billing").await;
    assert_each_once(&stage, "billing");
    judge(&stage, witness).await;
}

/// R074, R080: killed after the commit and before the broker heard of it, the message comes again
/// and is absorbed.
#[tokio::test]
async fn killed_after_commit_the_redelivery_is_absorbed() {
    let (stage, witness) = delivered(EVENTS).await;
    kill_at(&stage, "billing", "after_commit:1").await;
    let billing = stage.billing();
    let committed = number(&billing, "select count(*) from charges");
    assert!(committed > 0);
    assert_eq!(number(&billing, "select count(*) from inbox"), committed);
    let finished = stage.consume("billing").await;
    assert!(!finished.all("duplicate").is_empty(), "{:?}", finished.heard);
    assert_each_once(&stage, "billing");
    judge(&stage, witness).await;
}

/// R074: a handler that fails after its change was written leaves no marker and no change; the
/// redelivery acts.
#[tokio::test]
async fn a_failing_handler_leaves_nothing_and_is_asked_again() {
    let (stage, witness) = delivered(1).await;
    let mut process = consumer(&stage, "billing", &["--fail-first", "2"]).await;
    process.hear_word("retry").await;
    process.pause();
    let billing = stage.billing();
    let acted = number(&billing, "select count(*) from charges");
    assert_eq!(
        number(&billing, "select count(*) from inbox"),
        acted,
        "a marker without its change"
    );
    process.resume();
    process.hear_word("done").await;
    assert_eq!(process.finish().await.all("retry").len(), 2);
    assert_each_once(&stage, "billing");
    judge(&stage, witness).await;
}

/// R007: consuming and producing killed before the commit: no marker, no business row, no event.
#[tokio::test]
async fn killed_before_commit_nothing_was_consumed_and_nothing_produced() {
    let (stage, witness) = delivered(EVENTS).await;
    kill_at(&stage, "shipping", "before_commit:1").await;
    let shop = stage.shop();
    assert_eq!(number(&shop, "select count(*) from inbox"), 0);
    assert_eq!(number(&shop, "select count(*) from shipments"), 0);
    assert_eq!(number(&shop, "select count(*) from outbox"), i64::from(EVENTS));
    stage.consume("shipping").await;
    stage.drain().await;
    assert_each_once(&stage, "shipping");
    assert_eq!(stage.log().await.len() as u32, 2 * EVENTS, "what it produced was delivered");
    judge(&stage, witness).await;
}

/// R007: killed after the commit: marker, business row, and event are there, and stay one each.
#[tokio::test]
async fn killed_after_commit_marker_row_and_event_are_there() {
    let (stage, witness) = delivered(EVENTS).await;
    kill_at(&stage, "shipping", "after_commit:1").await;
    let shop = stage.shop();
    let shipped = number(&shop, "select count(*) from shipments");
    assert!(shipped > 0);
    assert_eq!(number(&shop, "select count(*) from inbox where status = 'processed'"), shipped);
    assert_eq!(number(&shop, "select count(*) from outbox"), i64::from(EVENTS) + shipped);
    let produced = "select count(*) from shipments join outbox on outbox.id = shipments.shipped_id";
    assert_eq!(number(&shop, produced), shipped);
    stage.consume("shipping").await;
    stage.drain().await;
    assert_each_once(&stage, "shipping");
    judge(&stage, witness).await;
}

/// R076: killed holding a claim, which is taken over when its lease has expired.
#[tokio::test]
async fn a_claim_of_the_dead_is_taken_over_after_its_lease() {
    let (stage, witness) = delivered(1).await;
    kill_at(&stage, "mail", "holding:1").await;
    let inbox = stage.inbox();
    assert_eq!(texts(&inbox, "select status from inbox"), ["claimed"]);
    let token = number(&inbox, "select token from inbox");
    stage.consume("mail").await;
    assert_eq!(texts(&inbox, "select status from inbox"), ["processed"]);
    assert!(number(&inbox, "select token from inbox") > token, "a claim of its own");
    assert_each_once(&stage, "mail");
    judge(&stage, witness).await;
}

/// Kills the mailer at a point of one event, lets another finish, and returns the keys of all calls
/// to the provider.
async fn calls_after(place: &str) -> (Stage, Ended, Vec<String>) {
    let (stage, witness) = delivered(1).await;
    kill_at(&stage, "mail", place).await;
    let finished = stage.consume("mail").await;
    assert_each_once(&stage, "mail");
    judge(&stage, witness).await;
    let calls = std::fs::read_to_string(&stage.files.calls).expect("the calls");
    let keys = calls.lines().map(|line| line.split('\t').next().unwrap_or("").to_owned()).collect();
    (stage, finished, keys)
}

/// F15, R088, R089: killed after the effect and before it was recorded: the next worker calls with
/// the same key, and the provider does it once.
#[tokio::test]
async fn killed_after_the_effect_the_key_is_the_same() {
    let (_stage, _, keys) = calls_after("after_effect:1").await;
    assert_eq!(keys.len(), 2, "the effect's outcome was unknown, so it was asked for again");
    assert_eq!(keys[0], keys[1]);
}

/// F15: killed after the step was recorded and before the whole was: the step is not repeated.
#[tokio::test]
async fn killed_after_a_step_the_step_is_not_repeated() {
    let (_stage, _, keys) = calls_after("after_step:1").await;
    assert_eq!(keys.len(), 1);
}

/// R085: killed when all was recorded and only the broker did not know: nothing is called again, and
/// the result stays.
#[tokio::test]
async fn killed_before_the_ack_the_result_is_kept() {
    let (stage, finished, keys) = calls_after("after_commit:1").await;
    assert_eq!(keys.len(), 1);
    let duplicates = finished.all("duplicate");
    assert_eq!(duplicates.len(), 1, "{:?}", finished.heard);
    let results = texts(&stage.inbox(), "select cast(result as text) from inbox");
    assert_eq!(results, [format!("receipt for {}", duplicates[0])]);
}

/// F14: a worker stands still past its lease in the middle of its work; another one takes over; the
/// first wakes up, is refused, and the effect is there once.
async fn outlived(place: &str) -> (Vec<String>, Stage) {
    let (stage, witness) = delivered(1).await;
    let mut late = consumer(&stage, "mail", &["--hold", place]).await;
    late.reached().await;
    late.pause_between_writes(&stage.inbox());
    stage.consume("mail").await;
    late.resume();
    late.release().await;
    late.hear("that it was refused", |line| {
        ["fenced", "failed", "retry"].iter().any(|word| line.starts_with(word))
    })
    .await;
    let ended = late.finish().await;
    assert!(ended.all("done").is_empty(), "the loser must not say that it was done");
    assert_each_once(&stage, "mail");
    assert_eq!(texts(&stage.inbox(), "select status from inbox"), ["processed"]);
    judge(&stage, witness).await;
    let calls = std::fs::read_to_string(&stage.files.calls).expect("the calls");
    (calls.lines().map(str::to_owned).collect(), stage)
}

/// F14: stopped before its effect: it must not make it any more.
#[tokio::test]
async fn a_worker_that_lost_its_lease_makes_no_effect() {
    assert_eq!(outlived("holding:1").await.0.len(), 1);
}

/// F14: stopped after its effect: both used the same key.
#[tokio::test]
async fn a_worker_that_lost_its_lease_cannot_complete() {
    let (calls, _stage) = outlived("after_effect:1").await;
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], calls[1]);
}

/// R004: every message is in the broker twice, and every effect is there once.
#[tokio::test]
async fn a_broker_that_stores_everything_twice_causes_one_effect() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(60, &[]).await);
    let args = ["--once", "yes", "--twice", "yes", "--lease-ms", "10000"];
    let relay = stage.start("relay", &args).ended().await;
    assert_eq!(relay.code, Some(0));
    assert_eq!(stage.log().await.len(), 120);
    let billing = stage.consume("billing").await;
    let mail = stage.consume("mail").await;
    for (kind, consumed) in [("billing", billing), ("mail", mail)] {
        assert_eq!(consumed.all("done").len(), 60, "{kind}");
        assert_eq!(consumed.all("duplicate").len(), 60, "{kind}");
        assert_each_once(&stage, kind);
    }
    judge(&stage, witness).await;
}
