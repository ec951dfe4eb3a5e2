//! No space left: for the application, for the broker, for the relay's host.

use postrider_core::EventId;
use std::collections::BTreeSet;

use crate::evidence::{OF_A_RELAY, Witness, assert_holds, ids, placed, received};
use crate::stage::{Stage, number};

/// F23: the database is full: the producer fails cleanly with a reason, what it said to be committed
/// is there and nothing else, the relay delivers it, and when there is space again all goes on.
#[tokio::test]
async fn a_full_database_refuses_producers_and_keeps_what_it_has() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    let args = ["--count", "500", "--bytes", "2000", "--pages-more", "60"];
    let full = stage.start("producer", &args).ended().await;
    assert_eq!(full.code, Some(1));
    let refused = full.all("refused").join("");
    assert!(refused.contains("DiskFull"), "{refused}");
    let told: BTreeSet<EventId> = ids(&full.all("committed")).into_iter().collect();
    assert!(told.len() > 5 && told.len() < 500, "{}", told.len());
    assert_eq!(placed(&stage), told, "nothing was half written");
    assert_eq!(number(&stage.shop(), "select count(*) from outbox"), told.len() as i64);
    stage.drain().await;
    assert_eq!(received(&stage).await, told);
    witness.hear(&stage.produce(10, &["--seed", "2"]).await);
    stage.drain().await;
    assert_eq!(received(&stage).await.len(), told.len() + 10);
    assert_holds(&witness.judge(&stage).await.1, &OF_A_RELAY);
}

/// F25: the broker is full: the events wait in the shop, none is given up, health names the endpoint,
/// and a relay with a roomier broker delivers them.
#[tokio::test]
async fn a_full_broker_kills_no_event() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(60, &["--bytes", "20000"]).await);
    let mut relay = stage.play("relay", &["--queue-bytes", "400000", "--lease-ms", "10000"]).await;
    relay.hear("which endpoint is full", |line| line.contains("endpoint order.placed")).await;
    relay.kill().await;
    witness.look(&stage).await;
    assert!(received(&stage).await.len() < 60);
    assert_eq!(
        number(&stage.shop(), "select count(*) from outbox_waiting where state = 'dead'"),
        0
    );
    stage.drain().await;
    assert_eq!(received(&stage).await, placed(&stage));
    assert_holds(&witness.judge(&stage).await.1, &OF_A_RELAY);
}

/// F24: no file of the relay's process may grow, as on a full disk of its host. It lives, says what
/// does not answer, loses nothing, and goes on by itself when there is space.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_of_the_relays_host_is_outlived() {
    use rustix::process::{Resource, Rlimit, prlimit};
    let stage = Stage::new();
    let mut witness = Witness::default();
    let mut relay = stage.play("relay", &["--lease-ms", "10000"]).await;
    relay.hear("that it is at work", |line| line.starts_with("health Empty")).await;
    let limit = |bytes| {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(relay.pid()), Resource::Fsize, limit).expect("the limit")
    };
    let before = limit(Some(4_096));
    witness.hear(&stage.produce(60, &["--bytes", "2000"]).await);
    relay.hear("what does not answer", |line| line.contains("Blocked")).await;
    assert_eq!(received(&stage).await.len(), 0);
    prlimit(Some(relay.pid()), Resource::Fsize, before).expect("the limit as it was");
    stage.until(&mut relay, "everything is saved", || stage.position() == 60).await;
    assert_eq!(relay.finish().await.code, Some(0));
    assert_eq!(received(&stage).await, placed(&stage));
    assert_holds(&witness.judge(&stage).await.1, &OF_A_RELAY);
}
