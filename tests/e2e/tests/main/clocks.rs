//! Clocks that step under real processes: the database's, and each process's own.
//!
//! With SQLite the database's clock is the host's. For the store, a step of it is the same as moving
//! every time that it has kept the other way, which needs no right to set a clock.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use postrider_core::Invariant;
use tokio::process::Command;

use crate::evidence::{OF_A_RELAY, Witness, assert_holds, effects, placed};
use crate::process::Process;
use crate::stage::{Stage, number};

/// Far beyond what a test takes: a lease that ends in it ended because of a step.
const LONG: [&str; 2] = ["--lease-ms", "120000"];

/// The clock of the shop's database steps by so many minutes.
fn step_shop(stage: &Stage, minutes: i64) {
    let millis = minutes * 60_000;
    stage
        .shop()
        .execute_batch(&format!(
            "begin immediate;
            update outbox_lease set expires_at = expires_at - {millis},
                free_since = free_since - {millis};
            update outbox_relay set expires_at = expires_at - {millis};
            update outbox_waiting set next_at = next_at - {millis};
            commit"
        ))
        .expect("the times that the store keeps");
}

/// The clocks of the inbox and of the broker step by so many minutes.
fn step_inbox(stage: &Stage, minutes: i64) {
    let millis = minutes * 60_000;
    let inbox = "update inbox set expires_at = expires_at - ?1 where expires_at is not null";
    stage.inbox().execute(inbox, [millis]).expect("the claims");
    let queue = postrider_sqlite::connect(&stage.files.queue).expect("the broker's file");
    let deliveries = "update delivery set visible_at_ms = visible_at_ms - ?1";
    queue.execute(deliveries, [millis]).expect("the deliveries");
}

fn token(stage: &Stage) -> i64 {
    number(&stage.shop(), "select token from outbox_lease")
}

async fn at_work(stage: &Stage, more: &[&str]) -> Process {
    let mut relay = stage.play("relay", &[&LONG, more].concat()).await;
    relay.hear("that it is at work", |line| line.starts_with("health Empty")).await;
    relay
}

/// F13, R033: the database's clock jumps past the lease of a relay at work. Another one takes over
/// early, the first is refused, and nothing is lost or out of order.
#[tokio::test]
async fn a_step_past_a_lease_moves_it_and_breaks_nothing() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    let mut first = at_work(&stage, &["--hold", "before_settle:1"]).await;
    let taken = token(&stage);
    witness.hear(&stage.produce(60, &[]).await);
    first.reached().await;
    step_shop(&stage, 10);
    let mut second = stage.play("relay", &LONG).await;
    stage.until(&mut second, "it has taken over and saved", || stage.position() == 60).await;
    assert_eq!(token(&stage), taken + 1);
    first.release().await;
    first.hear("a lost lease", |line| line.starts_with("health") && !line.contains("lost=0")).await;
    witness.hear(&stage.produce(60, &["--seed", "2"]).await);
    stage.until(&mut second, "it goes on", || stage.position() == 120).await;
    assert_eq!(token(&stage), taken + 1, "it went to and fro");
    for relay in [first, second] {
        assert_eq!(relay.finish().await.code, Some(0));
    }
    let (history, verdict) = witness.judge(&stage).await;
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, 120);
}

/// F13: the database's clock steps back by an hour, and ahead again: who owns goes on, and nothing
/// comes twice.
#[tokio::test]
async fn steps_within_a_lease_and_back_disturb_nobody() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    let mut relay = at_work(&stage, &[]).await;
    let taken = token(&stage);
    for (round, minutes) in [(1, -60), (2, 1), (3, -10), (4, 60)] {
        step_shop(&stage, minutes);
        let seed = round.to_string();
        witness.hear(&stage.produce(40, &["--seed", &seed]).await);
        stage.until(&mut relay, "it is saved", || stage.position() == 40 * round).await;
    }
    assert_eq!(token(&stage), taken, "nobody else asked, so it is the same lease");
    assert_eq!(relay.finish().await.code, Some(0));
    assert_eq!(stage.log().await.len(), 160);
    assert_holds(&witness.judge(&stage).await.1, &OF_A_RELAY);
}

/// F13: after a step back by an hour, a lease that was let go is taken at once, and so is that of a
/// relay that was killed on this host: neither waits for the hour.
#[tokio::test]
async fn what_was_let_go_before_a_step_back_is_free_after_it() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    let relay = at_work(&stage, &[]).await;
    assert_eq!(relay.finish().await.code, Some(0));
    step_shop(&stage, -60);
    witness.hear(&stage.produce(20, &[]).await);
    let mut killed = stage.play("relay", &LONG).await;
    stage.until(&mut killed, "it is saved", || stage.position() == 20).await;
    killed.kill().await;
    step_shop(&stage, -60);
    witness.hear(&stage.produce(20, &["--seed", "2"]).await);
    let mut next = stage.play("relay", &LONG).await;
    stage.until(&mut next, "it is saved", || stage.position() == 40).await;
    assert_eq!(next.finish().await.code, Some(0));
    assert_holds(&witness.judge(&stage).await.1, &OF_A_RELAY);
}

/// F13: the clock of the inbox and of the broker jumps past the claim of a worker that holds it:
/// another one acts, the first is refused, and the effect is there once.
#[tokio::test]
async fn a_step_past_a_claim_causes_no_second_effect() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(1, &[]).await);
    stage.drain().await;
    let place = ["--kind", "mail", "--hold", "holding:1"];
    let mut late = stage.play("consumer", &[&place[..], &LONG].concat()).await;
    late.reached().await;
    // So that no heartbeat comes between the step and the other's claim.
    late.pause_between_writes(&stage.inbox());
    step_inbox(&stage, 10);
    stage.consume("mail").await;
    late.resume();
    late.release().await;
    late.hear("that it was refused", |line| {
        ["fenced", "failed", "retry"].iter().any(|word| line.starts_with(word))
    })
    .await;
    assert!(late.finish().await.all("done").is_empty());
    assert_each_once(&stage, "mail");
    let judged = [Invariant::NoLoss, Invariant::NoGhost, Invariant::OneEffect];
    assert_holds(&witness.judge(&stage).await.1, &judged);
}

fn assert_each_once(stage: &Stage, kind: &str) {
    let acted = effects(stage).into_iter().find(|(name, _)| *name == kind).expect("a kind").1;
    assert_eq!(acted.iter().copied().collect::<BTreeSet<_>>(), placed(stage), "{kind}");
    assert_eq!(acted.len(), placed(stage).len(), "{kind}");
}

/// The library that gives a process a wall clock of its own, if this machine has it.
fn faketime() -> Option<PathBuf> {
    let told = std::env::var_os("LIBFAKETIME").map(PathBuf::from);
    let usual = ["x86_64-linux-gnu", "aarch64-linux-gnu", "."]
        .map(|folder| Path::new("/usr/lib").join(folder).join("faketime/libfaketimeMT.so.1"));
    told.into_iter().chain(usual).find(|path| path.exists())
}

/// A process whose wall clock is what a file says, read anew at each look.
fn with_clock(mut command: Command, library: &Path, says: &Path, name: &str) -> Process {
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", says)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_DISABLE_SHM", "1");
    Process::start(command, name.to_owned())
}

/// F12: the wall clock under two relays and two workers steps by ten minutes to and fro and back by
/// an hour: nothing is lost, nothing is out of order, every effect is there once.
#[tokio::test]
async fn processes_outlive_steps_of_their_wall_clock() {
    let Some(library) = faketime() else {
        eprintln!("skipped: there is no libfaketime on this machine");
        return;
    };
    let stage = Stage::new();
    let mut witness = Witness::default();
    let says = stage.folder.path().join("clock");
    let step = |offset: &str| std::fs::write(&says, offset).expect("the clock");
    step("+0");
    let start =
        |role: &str, args: &[&str]| with_clock(stage.command(role, args), &library, &says, role);
    let mut relays = [start("relay", &[]), start("relay", &[])];
    let mut workers =
        ["billing", "mail"].map(|kind| start("consumer", &["--kind", kind, "--lease-ms", "2000"]));
    for process in relays.iter_mut().chain(&mut workers) {
        process.ready().await;
    }
    for (round, offset) in (1..).zip(["+10m", "+0", "-10m", "+0", "-60m", "+10m"]) {
        witness.hear(&stage.produce(30, &["--seed", &round.to_string()]).await);
        step(offset);
        let [watched, _] = &mut relays;
        stage.until(watched, "it is saved", || stage.position() == 30 * round).await;
    }
    let all = || stage.is_consumed("billing") && stage.is_consumed("mail");
    stage.until(&mut workers[0], "everything is consumed", all).await;
    let queue = postrider_sqlite::connect(&stage.files.queue).expect("the broker's file");
    let steps = "select count(*) from message one join message next on next.seq = one.seq + 1
        where next.stored_at_ms < one.stored_at_ms - 300000";
    assert!(number(&queue, steps) >= 3, "the clock was seen to step back");
    for process in workers.into_iter().chain(relays) {
        assert_eq!(process.finish().await.code, Some(0));
    }
    for kind in ["billing", "mail"] {
        assert_each_once(&stage, kind);
    }
    assert_holds(&witness.judge(&stage).await.1, &OF_A_RELAY);
}
