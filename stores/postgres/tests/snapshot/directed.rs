//! The interleavings that each wrong floor loses an event by, step by step, and the right one does not.

use uuid::Uuid;

use crate::cluster::Cluster;
use crate::relay::Relay;
use crate::rule::{Reader, Rule};
use crate::shop::{Shop, events};

/// So many looks at the sequence in one go, and so many goes until the trap must have been seen.
const LOOKS: u32 = 50_000;
const GOES_MAX: u32 = 60;

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

/// How often what a look says was given is drawn afterwards, while others draw as well.
async fn looks_ahead(shop: &Shop, client: &tokio_postgres::Client, look: &str) -> i64 {
    let looks = shop.sql(&format!(
        "do $$
        declare
            given bigint;
            ahead bigint := 0;
        begin
            for n in 1..{LOOKS} loop
                {look};
                ahead := ahead + (nextval({{text:outbox_seq}}) <= given)::int;
            end loop;
            perform set_config('looks.ahead', ahead::text, false);
        end $$"
    ));
    client.batch_execute(&looks).await.unwrap();
    let ahead = "select current_setting('looks.ahead')::bigint";
    client.query_one(ahead, &[]).await.unwrap().get(0)
}

/// R001, INV-1: a tick's floor was given. The sequence's own row says at times what was not: it is read without
/// the sequence's lock, and nextval writes to it what is logged ahead.
#[tokio::test]
async fn a_look_at_the_sequence_is_never_ahead_of_it() {
    let Some(cluster) = Cluster::start(&["fsync = off", "autovacuum = off"]).await else { return };
    let shop = Shop::open(&cluster.url(), 1).await;
    let (end, ended) = tokio::sync::watch::channel(false);
    let draws = shop.sql("select max(nextval({text:outbox_seq})) from generate_series(1, 20000)");
    let drawing = {
        let client = shop.connect().await;
        tokio::spawn(async move {
            while !*ended.borrow() {
                client.batch_execute(&draws).await.unwrap();
            }
        })
    };
    let client = shop.connect().await;
    let mut by_row = 0;
    for _ in 0..GOES_MAX {
        let by_lock = looks_ahead(&shop, &client, "given := {outbox_given}()").await;
        assert_eq!(by_lock, 0, "the floor of a tick was not given yet");
        let row = "select last_value into given from {outbox_seq}";
        by_row += looks_ahead(&shop, &client, row).await;
        if by_row > 0 {
            break;
        }
    }
    end.send(true).unwrap();
    drawing.await.unwrap();
    assert!(by_row > 0, "the trap must be seen, else nothing is shown");
}
