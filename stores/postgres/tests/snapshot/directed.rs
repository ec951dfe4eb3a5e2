//! The interleavings that each wrong floor loses an event by, step by step, and the right one does not.

use uuid::Uuid;

use crate::cluster::Cluster;
use crate::relay::Relay;
use crate::rule::{Reader, Rule};
use crate::shop::{Shop, events};

/// Whether the reader misses an event whose writer drew its number before the fetch and commits after it.
/// `between` puts the writer between the two halves of the tick.
async fn loses(shop: &Shop, rule: Rule, between: bool) -> bool {
    let mut reader = Reader::new(shop, rule).await;
    let writer = shop.connect().await;
    let insert = shop.sql(&format!("begin; {}", events(1)));
    if between {
        reader.begin_tick().await;
        writer.batch_execute(&insert).await.unwrap();
        reader.end_tick().await;
    } else {
        writer.batch_execute(&insert).await.unwrap();
        reader.begin_tick().await;
        reader.end_tick().await;
    }
    reader.fetch().await;
    assert!(reader.read.is_empty(), "nothing is committed yet");
    writer.batch_execute("commit").await.unwrap();
    reader.read().await;
    reader.read().await;
    reader.read.is_empty()
}

/// R001, INV-1: the right floor finds what was drawn before the fetch and committed after it; each wrong one
/// loses it.
#[tokio::test]
async fn each_wrong_floor_loses_an_event_and_the_right_one_does_not() {
    let Some(cluster) = Cluster::start(&["fsync = off", "autovacuum = off"]).await else { return };
    let shop = Shop::open(&cluster.url(), 1).await;
    shop.events(1).await;
    for between in [false, true] {
        assert!(!loses(&shop, Rule::Right, between).await, "between: {between}");
    }
    assert!(loses(&shop, Rule::AtTheFetch, false).await);
    assert!(loses(&shop, Rule::TickInTheFetch, false).await);
    assert!(loses(&shop, Rule::NumberFirst, true).await);
}

/// R001, INV-1: a relay that is there before the first event finds it. A fresh sequence says 1 before it gave
/// 1, and who takes that for given loses the first event.
#[tokio::test]
async fn the_first_event_of_a_fresh_store_is_found() {
    let Some(cluster) = Cluster::start(&["fsync = off", "autovacuum = off"]).await else { return };
    let shop = Shop::open(&cluster.url(), 1).await;
    let mut wrong = Reader::new(&shop, Rule::FreshOneGiven).await;
    let mut right = Reader::new(&shop, Rule::Right).await;
    let mut relay = Relay::new("first", &shop);
    relay.acquire(1).await;
    for _ in 0..3 {
        wrong.read().await;
        right.read().await;
        relay.turn(1_000).await;
    }
    shop.events(1).await;
    wrong.read().await;
    right.read().await;
    relay.drain().await;
    let first = shop.rows().await[0].id;
    assert_eq!(right.read, [first]);
    let read: Vec<Uuid> = relay.read().iter().map(|read| read.id).collect();
    assert_eq!(read, [first]);
    assert!(wrong.read.is_empty(), "the wrong rule must be seen to lose it");
}
