//! The shop's file is locked, gone, read-only, too new, or holds rows that are no events: the relay
//! says so, lives on where it can, and loses nothing.

use std::time::Duration;

use rusqlite::TransactionBehavior;

use postrider_core::{Invariant, NewEvent};
use postrider_e2e::PLACED;
use postrider_sqlite::Outbox;

use crate::evidence::{OF_A_RELAY, Witness, assert_holds};
use crate::process::Process;
use crate::stage::{Stage, number, texts};

/// A lease that outlasts a locked database, so that the relay keeps it.
const LEASE: [&str; 2] = ["--lease-ms", "10000"];

async fn empty_relay(stage: &Stage, more: &[&str]) -> Process {
    let mut relay = stage.play("relay", &[&LEASE[..], more].concat()).await;
    relay.hear("that it is at work", |line| line.starts_with("health Empty")).await;
    relay
}

/// A transaction that stays open in the application makes the relay wait, name the store, and go on.
#[tokio::test]
async fn a_locked_database_is_waited_for() {
    let stage = Stage::new();
    let mut relay = empty_relay(&stage, &["--heartbeat-ms", "50"]).await;
    let mut shop = stage.shop();
    let tx = shop.transaction_with_behavior(TransactionBehavior::Exclusive).expect("the lock");
    let event = NewEvent::new("order", "1", PLACED);
    let id = event.event().id.to_string();
    tx.execute("insert into orders (key, event_id) values ('order/1', ?1)", [&id]).expect("a row");
    Outbox::new().enqueue(&tx, &event).expect("an event");
    let said = relay.hear("that the store is locked", |line| line.contains("locked")).await;
    assert!(said.contains("PR-1007"), "{said}");
    tx.commit().expect("committed");
    stage.until(&mut relay, "the event is saved", || stage.position() == 1).await;
    relay.hear("that all is well", |line| line.ends_with("| ")).await;
    assert_eq!(relay.finish().await.code, Some(0));
    assert_holds(&Witness::default().judge(&stage).await.1, &OF_A_RELAY);
}

/// The file goes away under a running relay: nothing is written to what is no longer there. When it is
/// back, the same process goes on.
#[tokio::test]
async fn a_file_that_vanished_is_missed_and_found_again() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(10, &[]).await);
    let mut relay = stage.play("relay", &[&LEASE[..], &["--heartbeat-ms", "50"]].concat()).await;
    stage.until(&mut relay, "the events are saved", || stage.position() == 10).await;
    let away = stage.folder.path().join("away.db");
    std::fs::rename(&stage.files.shop, &away).expect("it goes");
    let said = relay.hear("that the file is gone", |line| line.contains("PR-1008")).await;
    assert!(said.contains("no longer at its path"), "{said}");
    assert!(!stage.files.shop.exists(), "nothing was made in its place");
    std::fs::rename(&away, &stage.files.shop).expect("it comes back");
    witness.hear(&stage.produce(10, &["--seed", "2"]).await);
    stage.until(&mut relay, "the new events are saved", || stage.position() == 20).await;
    assert_eq!(relay.finish().await.code, Some(0));
    let (history, verdict) = witness.judge(&stage).await;
    assert_holds(&verdict, &OF_A_RELAY);
    assert_eq!(history.ledger().delivered, 20);
}

/// A relay on a path without a file refuses, and creates nothing.
#[tokio::test]
async fn a_missing_file_is_refused() {
    let stage = Stage::new();
    std::fs::remove_file(&stage.files.shop).expect("it goes");
    let ended = stage.start("relay", &[]).ended().await;
    assert_eq!(ended.code, Some(1));
    let refused = ended.all("refused").join("");
    assert!(refused.contains("NotFound") && refused.contains("postrider init"), "{refused}");
    assert!(!stage.files.shop.exists());
}

/// F41: a store made by a newer version is refused with its code, and left as it is.
#[tokio::test]
async fn a_newer_store_is_refused() {
    let stage = Stage::new();
    stage.produce(5, &[]).await;
    let own = texts(&stage.shop(), "select value from outbox_meta where key = 'schema'").join("");
    let set = "update outbox_meta set value = ?1 where key in ('schema', 'serves')";
    stage.shop().execute(set, ["99"]).expect("a newer store");
    let ended = stage.start("relay", &[]).ended().await;
    assert_eq!(ended.code, Some(1));
    let refused = ended.all("refused").join("");
    assert!(refused.starts_with("PR-1002 SchemaTooNew"), "{refused}");
    assert_eq!(stage.log().await.len(), 0, "nothing was read");
    stage.shop().execute(set, [own]).expect("a store as it was");
    stage.drain().await;
    assert_eq!(stage.log().await.len(), 5);
}

/// A file that may not be written to is refused at the start, and its events are there afterwards.
#[cfg(unix)]
#[tokio::test]
async fn a_read_only_file_is_refused_and_keeps_its_events() {
    use std::os::unix::fs::PermissionsExt as _;
    const NOBODY: u32 = 65_534;
    let stage = Stage::new();
    stage.produce(5, &[]).await;
    let mode = |mode| {
        let folder = std::fs::Permissions::from_mode(if mode == 0o444 { 0o555 } else { 0o755 });
        let file = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&stage.files.shop, file).expect("the mode");
        std::fs::set_permissions(stage.folder.path(), folder).expect("the mode");
    };
    // The broker's file is there before, so that it is the store that is refused.
    let queue = stage.queue();
    for file in std::fs::read_dir(stage.folder.path()).expect("the folder") {
        let path = file.expect("a file").path();
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(path, all).expect("the mode");
    }
    mode(0o444);
    let mut command = stage.command("relay", &[]);
    if rustix::process::geteuid().is_root() {
        // The superuser may write everything, so somebody else plays.
        command.uid(NOBODY);
    }
    if command.stdin(std::process::Stdio::null()).output().await.is_err() {
        println!("skipped: a_read_only_file: nobody may not run the test's program");
        mode(0o644);
        return;
    }
    let ended = Process::start(command, "relay of nobody".to_owned()).ended().await;
    assert_eq!(ended.code, Some(1), "{:?}", ended.heard);
    let refused = ended.all("refused").join("");
    assert!(refused.starts_with("PR-1003 ReadOnly"), "{refused}");
    mode(0o644);
    drop(queue);
    stage.drain().await;
    assert_eq!(stage.log().await.len(), 5);
}

/// F21, F29: rows that cannot be read as events become dead letters with their reason; events of other
/// keys flow, and the relay lives.
#[tokio::test]
async fn rows_that_are_no_events_become_dead_letters() {
    let stage = Stage::new();
    let mut relay = empty_relay(&stage, &[]).await;
    let shop = stage.shop();
    // A program that goes round the table's own checks, as a restored or older file may.
    shop.execute_batch(
        "pragma ignore_check_constraints = on;
         insert into outbox (aggregate_type, aggregate_id, event_type, payload, format)
            values ('order', 'newer', 'order.placed', 'null', 99);
         insert into outbox (aggregate_type, aggregate_id, event_type, payload, occurred_at)
            values ('order', 'untimely', 'order.placed', 'null', 'yesterday');
         insert into outbox (aggregate_type, aggregate_id, event_type, payload, id)
            values ('order', 'nameless', 'order.placed', 'null', 'not an id');
         insert into outbox (aggregate_type, aggregate_id, event_type, payload)
            values ('order', 'garbled', 'order.placed', cast(x'ff00fe' as text));
         pragma ignore_check_constraints = off;",
    )
    .expect("bad rows");
    stage.produce(20, &[]).await;
    stage.until(&mut relay, "all is saved", || stage.position() == 24).await;
    let dead = "select reason from outbox_waiting
        where destination = 'queue' and state = 'dead' order by seq";
    assert_eq!(texts(&shop, dead), ["unknown_format", "malformed", "malformed", "malformed"],);
    assert_eq!(number(&shop, "select count(*) from outbox_status where status = 'dead'"), 4);
    assert_eq!(stage.log().await.len(), 20, "the others arrived");
    assert_eq!(relay.finish().await.code, Some(0));
}

/// INV-8: the relay's own count of dead letters has those that were never tried as well.
#[tokio::test]
async fn health_counts_every_dead_letter() {
    let stage = Stage::new();
    let mut relay = empty_relay(&stage, &[]).await;
    stage
        .shop()
        .execute_batch(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload, format)
                values ('order', 'newer', 'order.placed', 'null', 99)",
        )
        .expect("a row of a newer format");
    stage.until(&mut relay, "it is a dead letter", || stage.position() == 1).await;
    relay.hear("of a dead letter", |line| line.contains("dead=1")).await;
}

/// F39: stopped gracefully, whatever it was doing, nothing comes twice.
#[tokio::test]
async fn stopped_gracefully_nothing_comes_twice() {
    let stage = Stage::new();
    let mut witness = Witness::default();
    witness.hear(&stage.produce(200, &[]).await);
    for _ in 0..3 {
        let relay = stage.play("relay", &LEASE).await;
        let begun = std::time::Instant::now();
        assert_eq!(relay.finish().await.code, Some(0));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    stage.drain().await;
    assert_eq!(stage.log().await.len(), 200);
    assert_holds(&witness.judge(&stage).await.1, &[Invariant::NoLoss, Invariant::KeyOrder]);
}
