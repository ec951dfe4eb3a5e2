//! The negative controls: the checker that passes the other tests must fail where a promise is
//! broken, and name the promise.

use postrider_core::Invariant;

use crate::evidence::{Witness, assert_holds};
use crate::stage::Stage;

/// Events are placed, delivered, and charged; then the tamperer works on the files.
async fn broken_by(tamper: impl FnOnce(&Stage)) -> Vec<Invariant> {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(30, &["--keys", "1", "--rollback-every", "3"]).await);
    stage.drain().await;
    stage.consume("billing").await;
    witness.look(&stage).await;
    tamper(&stage);
    witness.judge(&stage).await.1.broken()
}

fn change(path: &std::path::Path, statement: &str) {
    let connection = postrider_sqlite::connect(path).expect("the file");
    assert!(connection.execute(statement, ()).expect("the change") > 0, "nothing was changed");
}

/// The run itself is sound, so what the other controls find is their own doing.
#[tokio::test]
async fn an_untouched_run_is_sound() {
    assert_eq!(broken_by(|_| {}).await, []);
}

/// INV-1: a message that the broker lost is missed.
#[tokio::test]
async fn a_lost_message_is_seen() {
    let broken = broken_by(|stage| {
        change(&stage.files.queue, "delete from message where seq = 5");
    });
    assert_eq!(broken.await, [Invariant::NoLoss]);
}

/// INV-2: an event that was delivered and is not in the shop is seen. It cannot be rolled back
/// afterwards, so the shop's rows are taken away.
#[tokio::test]
async fn a_ghost_is_seen() {
    let broken = broken_by(|stage| {
        change(
            &stage.files.shop,
            "delete from orders where event_id = (select id from outbox order by seq limit 1)",
        );
        change(&stage.files.shop, "delete from outbox where seq = (select min(seq) from outbox)");
    });
    assert_eq!(broken.await, [Invariant::NoGhost]);
}

/// INV-3: two messages of one key in the wrong order are seen.
#[tokio::test]
async fn disorder_is_seen() {
    let broken = broken_by(|stage| {
        change(&stage.files.queue, "update message set seq = 1000 where seq = 5");
    });
    assert_eq!(broken.await, [Invariant::KeyOrder]);
}

/// INV-4: a second effect is seen.
#[tokio::test]
async fn a_second_effect_is_seen() {
    let broken = broken_by(|stage| {
        change(&stage.files.billing, "insert into charges select * from charges limit 1");
    });
    assert_eq!(broken.await, [Invariant::OneEffect]);
}

/// INV-1, INV-7, R031: a relay that records first and publishes afterwards is killed in between: the
/// page is lost, and the record of it is a lie. The checker sees both.
#[tokio::test]
async fn a_relay_that_marks_before_it_publishes_is_found_out() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(50, &[]).await);
    let mut careless = stage.start("careless", &["--halt", "after_mark:2"]);
    careless.reached().await;
    careless.kill().await;
    witness.look(&stage).await;
    stage.drain().await;
    let (history, verdict) = witness.judge(&stage).await;
    assert_eq!(verdict.broken(), [Invariant::NoLoss, Invariant::Truth], "{verdict}");
    assert_eq!(history.ledger().lost, 20, "the second page of the careless relay");
}

/// The same careless relay, not killed, harms nothing: it is the kill that shows the defect, as it is
/// with a real one.
#[tokio::test]
async fn without_the_kill_nothing_would_be_seen() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(50, &[]).await);
    assert_eq!(stage.start("careless", &[]).ended().await.code, Some(0));
    stage.drain().await;
    assert_holds(&witness.judge(&stage).await.1, &[Invariant::NoLoss, Invariant::Truth]);
}
