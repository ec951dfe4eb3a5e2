//! A standby takes over from the primary, under relays and writers.

use std::time::Instant;

use postrider_testkit::cluster::Cluster;
use tokio::task::JoinSet;

use crate::stage::{PATIENCE, Stage, TAKEOVER_MAX, connect};

const SETTINGS: [&str; 2] = ["fsync = off", "autovacuum = off"];

/// Writers beside, each with a key of its own.
const WRITERS: u32 = 6;

/// The first number of a writer beside: no other event has it.
const FIRST: u32 = 1_000_000;

/// Writes one event after the other until the server refuses; says of how many it had acknowledged the commit.
async fn write_on(url: String, insert: String) -> u32 {
    let client = connect(&url).await;
    let mut acknowledged = 0;
    while client
        .execute(&insert.replace("NUMBER", &(FIRST + acknowledged).to_string()), &[])
        .await
        .is_ok()
    {
        acknowledged += 1;
    }
    acknowledged
}

/// F3, F4, INV-1, INV-2, INV-3: the primary is ended while two relay processes and seven writers are at work, and a standby
/// that streams from it becomes the primary. The relays, whose address names both, go on by themselves. What a
/// producer was told is committed arrives, nothing arrives that the new primary lacks, and each key keeps its order.
#[tokio::test]
async fn relays_and_writers_may_go_through_a_promotion() {
    let Some(primary) = Cluster::start(&SETTINGS).await else { return };
    promoted(Stage::on(primary).await).await;
}

/// F3, F4, INV-1, INV-2, INV-3: the same where the relays read an application's own table.
#[tokio::test]
async fn relays_of_an_own_table_may_go_through_a_promotion() {
    let Some(primary) = Cluster::start(&SETTINGS).await else { return };
    promoted(Stage::own(primary).await).await;
}

async fn promoted(mut stage: Stage) {
    let standby = stage.cluster.standby("b").await;
    // Of the primary alone: the standby has a copy of its settings, and nobody follows it.
    let waits = stage.session("alter system set synchronous_standby_names = 'b'").await;
    waits.execute("select pg_reload_conf()", &[]).await.expect("it is told");
    let synced = "select count(*) from pg_stat_replication where sync_state = 'sync'";
    let began = Instant::now();
    while stage.number(synced).await == 0 {
        assert!(began.elapsed() < PATIENCE, "the standby follows");
        // waits: a standby that connects tells nobody
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write&connect_timeout=2",
        stage.cluster.port(),
        standby.port()
    );
    let mut relays = [stage.relay(&both, &[]), stage.relay(&both, &[])];
    stage.write(200).await;
    stage.all_arrive().await;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let insert = stage.named(&format!(
            "insert into {{outbox}} (aggregate_type, aggregate_id, event_type, event_version, payload)
             values ('account', 'writer {writer}', 'account.moved', NUMBER, 'null')"
        ));
        writers.spawn(write_on(stage.cluster.url(), insert));
    }
    let beside = format!("select count(*) from {{outbox}} where event_version >= {FIRST}");
    let began = Instant::now();
    while stage.number(&beside).await < i64::from(10 * WRITERS) {
        assert!(began.elapsed() < PATIENCE, "the writers write");
        stage.write(100).await;
    }
    let arrived = stage.arrived().len();
    let began = Instant::now();
    stage.cluster.stop("immediate");
    let told: Vec<u32> = writers.join_all().await;
    stage.write(200).await;
    standby.run("pg_ctl", &["-D", "DATA", "-w", "promote"]);
    let mut old = std::mem::replace(&mut stage.cluster, standby);
    assert!(stage.write(100).await, "producers go on");
    stage.all_arrive().await;
    let took = began.elapsed();
    for relay in &mut relays {
        assert_eq!(relay.try_wait().expect("a process"), None, "a relay outlives it");
    }
    let there = stage.number(&beside).await;
    let promised: u32 = told.iter().sum();
    assert!(there >= promised.into(), "{promised} were acknowledged, and {there} are there");
    let (committed, in_all) = stage.judge().await;
    eprintln!(
        "{arrived} arrived before, {committed} committed, {in_all} arrived; {promised} by writers beside; \
         everything there {took:?} after the primary's end"
    );
    assert!(took < TAKEOVER_MAX, "{took:?}");
    // The old one is back, as a server of its own: nobody goes there while it refuses to write.
    old.follow(&stage.cluster);
    old.launch().await;
    stage.write(100).await;
    stage.all_arrive().await;
    stage.judge().await;
}
