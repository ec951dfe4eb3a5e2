//! A store that goes to another server as a dump, and a sequence that begins again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::operate::{Note, Operator as _};
use postrider_testkit::cluster::Wanted;
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::record::Record;
use crate::relay::Relay;
use crate::shop::{Shop, events};
use crate::writers::Load;

fn note() -> Note {
    Note { who: "anna@db1".to_owned(), why: "a proof".to_owned() }
}

fn read(record: &Record) -> BTreeSet<Uuid> {
    record.reads().iter().map(|read| read.id).collect()
}

async fn missing(shop: &Shop, found: &[BTreeSet<Uuid>]) -> usize {
    let rows = shop.rows().await;
    rows.iter().filter(|row| !found.iter().any(|found| found.contains(&row.id))).count()
}

/// INV-1: a dump is restored into a fresh cluster, whose transaction counter lies far behind the cursors, while
/// cursors stand in the midst of a page and transactions were open beside them. Nothing is published before
/// it is adopted, and nothing is lost then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_dump_is_adopted_and_loses_nothing() {
    let Some(old) = Cluster::start(&["fsync = off"]).await else { return };
    if !(old.has("pg_dump") && old.has("psql")) {
        return;
    }
    let shop = Shop::open(&old.url(), 8).await;
    let load = Load { writers: 20, transactions: 40, long: 0, prepares: true, asynchronous: false };
    let record = Arc::new(Record::default());
    let mut relay = Relay::with("old", &shop, &record);
    load.run(&shop, 1).await;
    relay.acquire(8).await;
    while relay.turn(100).await.0 > 0 {}
    let open = shop.connect().await;
    open.batch_execute(&shop.sql(&format!("begin; {}", events(20)))).await.unwrap();
    load.run(&shop, 2).await;
    // Each cursor ends in the midst of a target, with the open transaction in its base.
    while relay.turn(17).await.0 > 0 {
        for partition in relay.partitions() {
            relay.settle(partition, 0).await;
        }
    }
    relay.hand_all_over().await;
    open.batch_execute("commit").await.unwrap();
    load.run(&shop, 3).await;
    let settled = read(&record);
    let pending = missing(&shop, std::slice::from_ref(&settled)).await;
    assert!(pending > 20, "{pending}");

    let wanted = Wanted::default().settings(&["fsync = off"]).with_identity_of_its_own();
    let new = wanted.start().await.expect("the programs of the old one");
    let dump = old.folder().join("dump").display().to_string();
    old.run("pg_dump", &["-d", &old.url(), "-f", &dump]);
    new.run("psql", &["-q", "-v", "ON_ERROR_STOP=1", "-d", &new.url(), "-f", &dump]);
    let moved = Shop::at(&new.url());
    let counter = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let highest = moved.number("select max(xid) from {outbox}").await;
    assert!(moved.number(counter).await < highest, "the numbers run backwards");
    moved.events(10).await;
    let fresh = Arc::new(Record::default());
    let mut relay = Relay::with("new", &moved, &fresh);
    relay.acquire(8).await;
    assert_eq!(relay.owns(), 0);
    let refused = relay.facts().trouble;
    assert!(refused.contains_key("acquire: Conflict"), "{refused:?}");
    moved.store().adopt(&note()).await.expect("adopt");
    moved.events(10).await;
    relay.drain().await;
    moved.events(10).await;
    relay.drain().await;
    let lost = missing(&moved, &[settled, read(&fresh)]).await;
    eprintln!("{pending} pending in the dump, {} read after it, {lost} lost", fresh.reads().len());
    assert_eq!(lost, 0);
}

/// INV-1: a sequence that begins again at 1 stops the store with its code, until it is repaired, and
/// what was written meanwhile is delivered.
#[tokio::test]
async fn a_sequence_that_begins_again_stops_the_store_until_it_is_repaired() {
    let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
    let shop = Shop::open(&cluster.url(), 4).await;
    let record = Arc::new(Record::default());
    let mut relay = Relay::with("only", &shop, &record);
    // A tick needs its pause, and the cursors another event.
    while shop.number("select max(floor) from {outbox_cursor}").await < 50 {
        shop.events(60).await;
        relay.drain().await;
        // waits: ticks have a pause between them
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    relay.acquire(4).await;
    shop.run("alter sequence {outbox_seq} restart").await;
    shop.events(30).await;
    let before = shop.rows().await.len();
    assert_eq!(relay.turn(100).await, (0, false));
    let trouble = relay.facts().trouble;
    assert!(trouble.contains_key("fetch: Rewound"), "one that was there: {trouble:?}");
    let mut late = Relay::new("late", &shop);
    late.acquire(4).await;
    let trouble = late.facts().trouble;
    assert!(trouble.contains_key("acquire: Rewound"), "one that comes: {trouble:?}");
    assert_eq!(late.owns(), 0);
    // The relay gave its partitions up, and its leases end with it.
    shop.run("update {outbox_lease} set owner = null").await;
    shop.store().repair_sequence(&note()).await.expect("repair");
    shop.events(10).await;
    relay.drain().await;
    assert_eq!(missing(&shop, &[read(&record)]).await, 0);
    assert_eq!(shop.rows().await.len(), before + 10);
}
