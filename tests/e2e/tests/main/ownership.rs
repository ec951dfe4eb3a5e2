//! Two relays, one of which is stopped in the middle of its work and wakes up too late.
//!
//! SIGSTOP stops a process as a whole, also its renewals, and its clock goes on: what a suspended
//! machine or a long pause does.

use postrider_relay::Point;

use crate::evidence::{OF_A_RELAY, Witness, assert_holds};
use crate::stage::{Stage, number};

const EVENTS: u32 = 60;

/// Long enough that no flush of a busy disk, and no machine that stands still, takes a third of it, which is the publish
/// deadline.
const LEASE: [&str; 2] = ["--lease-ms", "18000"];

/// Stops relay A at a point, lets B take over and deliver, and continues A. Returns how many events
/// came twice, and how many the broker had when A was stopped.
async fn overtake(point: Point) -> (u64, u64) {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(EVENTS, &[]).await);
    let place = format!("{point}:1");
    let mut a = stage.play("relay", &[&["--hold", place.as_str()], &LEASE[..]].concat()).await;
    a.reached().await;
    a.pause_between_writes(&stage.shop());
    let stored = stage.log().await.len() as u64;
    let token = number(&stage.shop(), "select token from outbox_lease");

    let mut b = stage.play("relay", &LEASE).await;
    let all = u64::from(EVENTS);
    stage.until(&mut b, "the successor has saved everything", || stage.position() == all).await;
    assert_eq!(number(&stage.shop(), "select token from outbox_lease"), token + 1);

    a.resume();
    a.release().await;
    // It has noticed when it stands by behind its successor.
    a.hear("a lost lease", |line| {
        line.starts_with("health") && !line.contains("lost=0") && line.contains("is held by")
    })
    .await;
    // New events of the same keys, delivered by B beside A, which is awake.
    witness.hear(&stage.produce(20, &["--seed", "3"]).await);
    stage.until(&mut b, "the new events are saved", || stage.position() == all + 20).await;
    // The dead successor is replaced by the one that was stopped.
    b.kill().await;
    witness.hear(&stage.produce(20, &["--seed", "4"]).await);
    stage.until(&mut a, "it takes over again", || stage.position() == all + 40).await;
    assert_eq!(a.finish().await.code, Some(0));

    let duplicates = stage.log().await.len() as u64 - all - 40;
    let (history, verdict) = witness.judge(&stage).await;
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, all + 40);
    (duplicates, stored)
}

/// F11: stopped with a batch in its hand: it looks at its clock before it sends, and sends nothing.
#[tokio::test]
async fn a_late_relay_sends_nothing_that_it_had_not_sent() {
    let (duplicates, stored) = overtake(Point::BeforePublish).await;
    assert_eq!((duplicates, stored), (0, 0));
}

/// F11: stopped with an answer in its hand: what it had sent comes twice, and nothing else.
#[tokio::test]
async fn a_late_relay_doubles_at_most_what_was_in_flight() {
    let (duplicates, stored) = overtake(Point::AfterPublish).await;
    assert_eq!((duplicates, stored), (u64::from(EVENTS), u64::from(EVENTS)));
}

/// F11, R033: stopped with a settlement in its hand: the store refuses its stale token, although the
/// successor has not saved anything yet either.
#[tokio::test]
async fn a_late_settlement_is_refused() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(EVENTS, &[]).await);
    let mut a = stage.play("relay", &[&["--hold", "before_settle:1"], &LEASE[..]].concat()).await;
    a.reached().await;
    a.pause_between_writes(&stage.shop());
    let mut b = stage.play("relay", &[&["--halt", "before_settle:1"], &LEASE[..]].concat()).await;
    b.reached().await;

    a.resume();
    a.release().await;
    a.hear("that the settlement was tried", |line| line == "passed after_settle").await;
    assert_eq!(stage.position(), 0, "the cursor is its successor's");
    assert_eq!(number(&stage.shop(), "select count(*) from outbox_settled"), 0);

    b.kill().await;
    // Two owners in a row fell silent at this place, so it goes on one event at a time, out of
    // `waiting`: at rest is only what stands there no more.
    let waiting = "select count(*) from outbox_waiting";
    let at_rest = || stage.position() == u64::from(EVENTS) && number(&stage.shop(), waiting) == 0;
    stage.until(&mut a, "it takes over again", at_rest).await;
    assert_eq!(a.finish().await.code, Some(0));
    assert_eq!(stage.log().await.len() as u32, 3 * EVENTS, "two owners, neither could save");
    let (history, verdict) = witness.judge(&stage).await;
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, u64::from(EVENTS));
}

/// R036: of two relays one works and one stands by; killing the one at work loses nothing.
#[tokio::test]
async fn the_one_standing_by_takes_over() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    let first = stage.play("relay", &LEASE).await;
    let mut second = stage.play("relay", &LEASE).await;
    second.hear("that it stands by", |line| line.starts_with("health Standby")).await;
    witness.hear(&stage.produce(100, &[]).await);
    first.kill().await;
    witness.hear(&stage.produce(100, &["--seed", "5"]).await);
    stage.until(&mut second, "everything is saved", || stage.position() == 200).await;
    assert_eq!(second.finish().await.code, Some(0));
    let (history, verdict) = witness.judge(&stage).await;
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, 200);
}
