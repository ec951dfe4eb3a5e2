//! The application killed before and after COMMIT, and transactions that are rolled back.

use std::collections::BTreeSet;

use postrider_core::EventId;

use crate::evidence::{OF_A_RELAY, Witness, assert_holds, ids, placed, received};
use crate::process::Ended;
use crate::stage::Stage;

/// What a producer tried and of which it could not say how it ended.
fn unknown(producer: &Ended) -> BTreeSet<EventId> {
    let of = |word: &str| ids(&producer.all(word));
    let known: BTreeSet<EventId> =
        [of("committed"), of("rolled-back")].concat().into_iter().collect();
    of("trying").into_iter().filter(|id| !known.contains(id)).collect()
}

/// Kills a producer at a point of its 20th transaction, and says what it left unknown.
async fn kill_at(point: &str) -> (Stage, Ended) {
    let stage = Stage::new();
    let place = format!("{point}:20");
    let mut producer = stage.start("producer", &["--count", "40", "--halt", &place]);
    producer.reached().await;
    let killed = producer.kill().await;
    (stage, killed)
}

/// F2, R002: killed before COMMIT: the order never was, and its event neither.
#[tokio::test]
async fn killed_before_commit_neither_order_nor_event_exist() {
    let (stage, killed) = kill_at("before_commit").await;
    let unknown = unknown(&killed);
    assert_eq!(unknown.len(), 1, "one transaction was open");
    assert_eq!(placed(&stage).len(), 19);
    assert!(placed(&stage).is_disjoint(&unknown), "the database knows the outcome: rolled back");
    stage.drain().await;
    assert_eq!(received(&stage).await, placed(&stage));
    assert_holds(&Witness::default().judge(&stage).await.1, &OF_A_RELAY);
}

/// F2, R001: killed after COMMIT and before anybody was told: the order is there, and so is its
/// event.
#[tokio::test]
async fn killed_after_commit_the_event_is_delivered() {
    let (stage, killed) = kill_at("after_commit").await;
    let told: BTreeSet<EventId> = ids(&killed.all("committed")).into_iter().collect();
    assert_eq!(told.len(), 20);
    assert_eq!(placed(&stage), told);
    stage.drain().await;
    assert_eq!(received(&stage).await, told);
    assert_holds(&Witness::default().judge(&stage).await.1, &OF_A_RELAY);
}

/// R002: half of the transactions are rolled back while a relay is at work; none of their events
/// ever arrives.
#[tokio::test]
async fn what_was_rolled_back_never_arrives() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    let relay = stage.play("relay", &[]).await;
    let produced = stage.produce(300, &["--rollback-every", "2"]).await;
    witness.hear(&produced);
    let rolled_back = ids(&produced.all("rolled-back"));
    assert_eq!(rolled_back.len(), 150);
    assert_eq!(relay.finish().await.code, Some(0));
    stage.drain().await;
    let received = received(&stage).await;
    assert_eq!(received.len(), 150);
    assert!(rolled_back.iter().all(|id| !received.contains(id)));
    assert_holds(&witness.judge(&stage).await.1, &OF_A_RELAY);
}
