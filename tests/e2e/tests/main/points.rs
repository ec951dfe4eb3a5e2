//! A relay killed at each of its points in turn. The end is the same each time: everything is
//! delivered, in order, and what comes twice is exactly what the broker had and no cursor had passed.

use std::time::{Duration, Instant};

use postrider_relay::Point;

use crate::evidence::{OF_A_RELAY, Witness, assert_holds};
use crate::process::Ended;
use crate::stage::{Stage, number};

/// Events of one run: fewer than one batch takes, so that a batch is all of them.
const EVENTS: u32 = 60;

/// A lease that no test outlives, so that a takeover without proof would be seen.
const LONG: [&str; 2] = ["--lease-ms", "60000"];

/// What a run came to.
struct Aftermath {
    duplicates: u64,
    stage: Stage,
}

/// Kills a relay at a point, drains, judges, and counts what came twice.
async fn kill_at(point: Point, more: &[&str]) -> Aftermath {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(EVENTS, &[]).await);
    let place = format!("{point}:1");
    let args = [&["--halt", place.as_str(), "--lease-ms", "10000"], more].concat();
    let mut relay = stage.play("relay", &args).await;
    assert_eq!(relay.reached().await, format!("reached {point}"));
    let killed = relay.kill().await;
    assert!(killed.all("ended").is_empty(), "it went on after the point");
    witness.look(&stage).await;
    let (stored, passed) = (stage.log().await.len() as u64, stage.position());
    stage.drain().await;
    let duplicates = stage.log().await.len() as u64 - u64::from(EVENTS);
    assert_eq!(duplicates, stored - passed, "what was stored and not saved comes again, no more");
    assert_eq!(stage.position(), u64::from(EVENTS));
    let (history, verdict) = witness.judge(&stage).await;
    assert_holds(&verdict, &OF_A_RELAY);
    let ledger = history.ledger();
    assert_eq!((ledger.committed, ledger.delivered), (EVENTS.into(), EVENTS.into()));
    assert_eq!((ledger.lost, ledger.ghosts, ledger.order_violations), (0, 0, 0));
    Aftermath { duplicates, stage }
}

/// R009: killed with leases that it does not know of yet.
#[tokio::test]
async fn killed_after_acquire_nothing_is_doubled() {
    assert_eq!(kill_at(Point::AfterAcquire, &[]).await.duplicates, 0);
}

/// R009, F1: killed between reading and publishing.
#[tokio::test]
async fn killed_after_fetch_nothing_is_doubled() {
    assert_eq!(kill_at(Point::AfterFetch, &[]).await.duplicates, 0);
}

/// R009, F1: killed between reading and publishing, at the last moment.
#[tokio::test]
async fn killed_before_publish_nothing_is_doubled() {
    assert_eq!(kill_at(Point::BeforePublish, &[]).await.duplicates, 0);
}

/// R009, R031, F1: killed after the broker had the batch and before that was recorded: it was not
/// recorded, so the batch comes again.
#[tokio::test]
async fn killed_after_publish_the_batch_comes_again() {
    let aftermath = kill_at(Point::AfterPublish, &[]).await;
    assert_eq!(aftermath.duplicates, u64::from(EVENTS));
    let twice = aftermath.stage.log().await;
    let (first, second) = twice.split_at(EVENTS as usize);
    assert!(
        first.iter().zip(second).all(|(a, b)| a.event.id == b.event.id),
        "R063: the same ids in the same order"
    );
}

/// R009, R031: killed before the record of what was acknowledged.
#[tokio::test]
async fn killed_before_settle_the_batch_comes_again() {
    assert_eq!(kill_at(Point::BeforeSettle, &[]).await.duplicates, u64::from(EVENTS));
}

/// R009: killed with a record that it does not know of yet.
#[tokio::test]
async fn killed_after_settle_only_what_was_not_saved_comes_again() {
    kill_at(Point::AfterSettle, &[]).await;
}

/// R009: killed at a renewal, while it works.
#[tokio::test]
async fn killed_before_renew_nothing_is_lost() {
    kill_at(Point::BeforeRenew, &["--heartbeat-ms", "20"]).await;
}

/// R009: killed when it was about to let its leases go.
#[tokio::test]
async fn killed_before_release_nothing_is_doubled() {
    assert_eq!(kill_at(Point::BeforeRelease, &["--once", "yes"]).await.duplicates, 0);
}

/// How often a busy machine may miss a time.
const TRIES_MAX: u32 = 3;

/// F1: on the same host a restart need not wait for the lease of the dead: the lock file proves it, and all is delivered
/// within the 5 s of the fault matrix. A machine that stands still gets another try.
#[tokio::test]
async fn a_restart_on_the_same_host_does_not_wait_for_the_lease() {
    for attempt in 1..=TRIES_MAX {
        let took = restarted().await;
        eprintln!("after {took:?}");
        if took < Duration::from_secs(5) {
            return;
        }
        assert!(attempt < TRIES_MAX, "it took {took:?}");
    }
}

/// Kills a relay with a long lease and starts another one, which delivers all before the lease ends. How long that took.
async fn restarted() -> Duration {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(EVENTS, &[]).await);
    let mut relay =
        stage.play("relay", &[&["--halt", "after_publish:1"], &LONG[..]].concat()).await;
    relay.reached().await;
    relay.kill().await;
    let expires_at = number(&stage.shop(), "select expires_at from outbox_lease");
    let token = number(&stage.shop(), "select token from outbox_lease");
    let begun = Instant::now();
    let drained = stage.start("relay", &[&["--once", "yes"], &LONG[..]].concat()).ended().await;
    let took = begun.elapsed();
    let now = "select cast((julianday('now') - 2440587.5) * 86400000 as integer)";
    assert!(number(&stage.shop(), now) < expires_at, "the lease of the dead still runs");
    assert_eq!(drained.code, Some(0), "{:#?}", drained.heard);
    assert_eq!(number(&stage.shop(), "select token from outbox_lease"), token + 1);
    assert_holds(&witness.judge(&stage).await.1, &OF_A_RELAY);
    took
}

/// R008: a relay keeps nothing of its own: killed, its folder gone, the next one on another folder
/// goes on from the database, after the lease, as nothing proves the death.
#[tokio::test]
async fn a_relay_whose_host_is_gone_is_replaced() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(EVENTS, &[]).await);
    // Long enough that it still runs when the next relay begins, on whatever machine.
    let lease = ["--lease-ms", "15000"];
    let args = [&["--halt", "after_publish:1"], &lease[..]].concat();
    let mut relay = stage.play("relay", &args).await;
    relay.reached().await;
    witness.hear(&stage.produce(5, &["--seed", "2"]).await);
    relay.kill().await;
    std::fs::remove_dir_all(&stage.files.scratch).expect("its folder goes");
    std::fs::create_dir(&stage.files.scratch).expect("another folder");
    let waited = drain_with(&stage, &lease).await;
    let heard = |word: &str| waited.heard.iter().any(|line| line.contains(word));
    assert!(heard("is held by"), "it had to wait, and said for whom: {:#?}", waited.heard);
    let (history, verdict) = witness.judge(&stage).await;
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, u64::from(EVENTS) + 5);
}

async fn drain_with(stage: &Stage, more: &[&str]) -> Ended {
    let ended = stage.start("relay", &[&["--once", "yes"], more].concat()).ended().await;
    assert_eq!(ended.code, Some(0), "{:#?}", ended.heard);
    ended
}
