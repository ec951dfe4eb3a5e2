//! Servers that crash: what was delivered stays committed, and what was committed is delivered.
//!
//! fsync is on in all of them. The server's writer of the log sleeps, so that what does not wait for the disk
//! is not there for long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use crate::bouncer::Bouncer;
use crate::cluster::{Cluster, connect, kill_backend};
use crate::dice::Dice;
use crate::place::{Fate, judge};
use crate::property::carry;
use crate::record::Record;
use crate::relay::Relay;
use crate::rule::{Reader, Rule};
use crate::shop::{Shop, events};
use crate::writers::Load;

const LAZY: [&str; 2] = ["wal_writer_delay = '10s'", "autovacuum = off"];

/// A crash may find the disk up to date by chance: so often something else is tried.
const TRIES_MAX: u32 = 5;

async fn ids(shop: &Shop) -> BTreeSet<Uuid> {
    shop.rows().await.iter().map(|row| row.id).collect()
}

/// So many transactions with an event each, or without one.
async fn transactions(shop: &Shop, count: u32, setting: &str, statement: &str) {
    let client = shop.connect().await;
    client.batch_execute(&format!("set synchronous_commit = {setting}")).await.unwrap();
    let statement = shop.sql(statement);
    for _ in 0..count {
        client.batch_execute(&statement).await.unwrap();
    }
}

/// F3, R002, INV-1, INV-2: the server stops at once in the midst of batches, three times, with writers that
/// wait for the disk and writers that do not. Whatever was delivered is committed after recovery, and whatever
/// is committed is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_at_once_makes_no_ghosts_and_loses_nothing() {
    let Some(mut cluster) = Cluster::start(&LAZY).await else { return };
    let shop = Shop::open(&cluster.url(), 8).await;
    let record = Arc::new(Record::default());
    let (end, ended) = watch::channel(false);
    let mut relays = tokio::task::JoinSet::new();
    for name in ["north", "south"] {
        let relay = Relay::with(name, &shop, &record);
        relays.spawn(carry(relay, Dice::new(name.len() as u64), ended.clone()));
    }
    let load =
        Load { writers: 12, transactions: 120, long: 0, prepares: false, asynchronous: true };
    let writing = tokio::spawn({
        let shop = shop.clone();
        async move { load.run(&shop, 7).await }
    });
    let mut amid = 0;
    for _ in 0..3 {
        let enough = record.reads().len() + 200;
        while record.reads().len() < enough && !writing.is_finished() {
            // waits: batches under way are what is interrupted
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        amid += usize::from(!writing.is_finished());
        cluster.crash().await;
    }
    let deeds = writing.await.unwrap();
    end.send(true).unwrap();
    while let Some(ended) = relays.join_next().await {
        ended.expect("a relay ends");
    }
    Relay::with("last", &shop, &record).drain().await;
    let (rows, reads, facts) = (shop.rows().await, record.reads(), record.facts());
    let there: BTreeSet<Uuid> = rows.iter().map(|row| row.id).collect();
    let told = deeds.fates.iter().filter(|(_, fate)| **fate == Fate::Committed);
    let vanished = told.filter(|(id, _)| !there.contains(*id)).count();
    eprintln!(
        "{amid} crashes amid {} events; {vanished} were taken back, {} of unknown end; {} read; {:?}",
        rows.len(),
        deeds.count(Fate::Unknown),
        reads.len(),
        facts.trouble,
    );
    let verdict = judge(&rows, &deeds.fates, &reads);
    assert!(verdict.holds(), "{verdict}");
    assert!(amid > 0 && deeds.count(Fate::Unknown) > 0);
    assert!(
        facts.trouble.keys().any(|trouble| trouble.ends_with("Conflict")),
        "{:?}",
        facts.trouble
    );
}

/// INV-2: what is visible and not on the disk is not delivered before it is. A reader that does not look
/// delivers ghosts.
#[tokio::test]
async fn what_is_not_on_the_disk_is_not_delivered() {
    let Some(mut cluster) = Cluster::start(&LAZY).await else { return };
    let shop = Shop::open(&cluster.url(), 4).await;
    let mut ghosts = 0;
    for _ in 0..TRIES_MAX {
        let mut careless = Reader::new(&shop, Rule::Right).await;
        transactions(&shop, 20, "off", &events(1)).await;
        careless.read().await;
        assert_eq!(careless.read.len(), 20);
        cluster.crash().await;
        let there = ids(&shop).await;
        ghosts += careless.read.iter().filter(|id| !there.contains(*id)).count();
        if ghosts > 0 {
            break;
        }
    }
    assert!(ghosts > 0, "the danger must be seen");
    for _ in 0..3 {
        let mut relay = Relay::new("careful", &shop);
        relay.acquire(4).await;
        assert_eq!(relay.owns(), 4);
        transactions(&shop, 20, "off", &events(1)).await;
        while relay.turn(7).await.0 > 0 {}
        let read: BTreeSet<Uuid> = relay.read().iter().map(|read| read.id).collect();
        assert!(read.len() >= 20, "{}", read.len());
        cluster.crash().await;
        assert!(read.is_subset(&ids(&shop).await));
        relay.drain().await;
    }
    eprintln!("{ghosts} ghosts of a reader that does not look at the disk, none of the relay");
}

/// INV-1: a server that crashed gives numbers a second time. The relay forgets what it remembers; one that
/// keeps its memory over the lost connection passes the second bearers of the numbers unread.
#[tokio::test]
async fn numbers_that_a_crash_gives_twice_lose_nothing() {
    let Some(mut cluster) = Cluster::start(&LAZY).await else { return };
    let shop = Shop::open(&cluster.url(), 4).await;
    shop.events(5).await;
    let mut lost = 0;
    for _ in 0..TRIES_MAX {
        let mut relay = Relay::new("forgetful", &shop);
        relay.acquire(4).await;
        let mut remembers = Reader::new(&shop, Rule::Right).await;
        while relay.turn(100).await.0 > 0 {}
        for partition in relay.partitions() {
            assert!(relay.settle(partition, 0).await);
        }
        // Transactions that are taken back, without events: a relay reads on behind them.
        transactions(&shop, 30, "off", "update account set n = n + 1 where id = '0'").await;
        remembers.read().await;
        assert_eq!(relay.turn(100).await, (0, true));
        cluster.crash().await;
        let before = ids(&shop).await;
        transactions(&shop, 60, "on", &events(1)).await;
        remembers.reconnect().await;
        for _ in 0..2 {
            remembers.read().await;
        }
        relay.drain().await;
        let read: BTreeSet<Uuid> = relay.read().iter().map(|read| read.id).collect();
        let there = ids(&shop).await;
        assert!(there.difference(&before).all(|id| read.contains(id)), "the relay lost something");
        let trouble = relay.facts().trouble;
        assert!(trouble.contains_key("fetch: Conflict"), "the crash is noticed: {trouble:?}");
        lost += there.difference(&before).filter(|id| !remembers.read.contains(*id)).count();
        if lost > 0 {
            return eprintln!(
                "{lost} of 60 lost by a reader that keeps its memory, none by the relay"
            );
        }
    }
    panic!("the reader that keeps its memory lost nothing in {TRIES_MAX} crashes");
}

/// INV-1: behind a pooler no connection is lost when the server stops at once, and the crash is noticed all
/// the same, and nothing is lost.
#[tokio::test]
async fn a_crash_behind_a_pooler_is_noticed() {
    let Some(mut cluster) = Cluster::start(&LAZY).await else { return };
    let Some(bouncer) = Bouncer::start(&cluster) else { return };
    let shop = Shop::open(&cluster.url(), 4).await;
    let pooled = Shop::at(&bouncer.url());
    let witness = connect(&pooled.url).await;
    shop.events(5).await;
    let mut relay = Relay::new("pooled", &pooled);
    relay.acquire(4).await;
    assert_eq!(relay.owns(), 4, "{:?}", relay.facts().trouble);
    while relay.turn(100).await.0 > 0 {}
    for partition in relay.partitions() {
        assert!(relay.settle(partition, 0).await);
    }
    transactions(&shop, 30, "off", "update account set n = n + 1 where id = '0'").await;
    assert_eq!(relay.turn(100).await, (0, true));
    cluster.crash().await;
    transactions(&shop, 60, "on", &events(1)).await;
    relay.drain().await;
    let read: BTreeSet<Uuid> = relay.read().iter().map(|read| read.id).collect();
    assert_eq!(read, ids(&shop).await);
    let trouble = relay.facts().trouble;
    assert!(trouble.contains_key("fetch: Conflict"), "{trouble:?}");
    witness.simple_query("select 1").await.expect("the pooler kept the connection");
    eprintln!("behind a pooler: {trouble:?}");
}

/// INV-1: one killed process of the server is a crash too, though the server lives on; a clean restart is
/// none, and nothing is read again after it.
#[tokio::test]
async fn a_killed_backend_is_a_crash_and_a_clean_restart_is_none() {
    let Some(mut cluster) = Cluster::start(&LAZY).await else { return };
    let shop = Shop::open(&cluster.url(), 2).await;
    shop.events(50).await;
    let mut relay = Relay::new("steady", &shop);
    relay.acquire(2).await;
    while relay.turn(100).await.0 > 0 {}
    cluster.stop("fast");
    cluster.launch().await;
    shop.events(50).await;
    relay.drain().await;
    let (read, facts) = (relay.read(), relay.facts());
    assert_eq!(read.len(), 100, "nothing is read again after a clean restart");
    assert!(!facts.trouble.keys().any(|it| it.ends_with("Conflict")), "{:?}", facts.trouble);

    relay.acquire(2).await;
    shop.events(50).await;
    while relay.turn(100).await.0 > 0 {}
    kill_backend(&shop.url).await;
    shop.events(50).await;
    relay.drain().await;
    let facts = relay.facts();
    assert!(facts.trouble.keys().any(|it| it.ends_with("Conflict")), "{:?}", facts.trouble);
    let read: BTreeSet<Uuid> = relay.read().iter().map(|read| read.id).collect();
    assert_eq!(read, ids(&shop).await);
}
