//! Kills at the points that a relay comes by when it is asked for something, or ends: letting go, carrying out,
//! archiving.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Instant;

use postrider_core::DestinationId;
use postrider_core::operate::{Note, Operator as _, RowKey, Submission, Verb};
use postrider_postgres::{Layout, Options, PostgresStore, Setup};
use postrider_testkit::cluster::Cluster;
use uuid::Uuid;

use crate::stage::{PATIENCE, Stage};

/// Events of one run: in most of the partitions.
const EVENTS: u32 = 60;

/// Runs a relay until it kills itself at a point.
async fn killed(stage: &Stage, words: &[&str]) {
    let mut relay = stage.relay(&stage.cluster.url(), words);
    let ended = tokio::time::timeout(PATIENCE, relay.wait()).await.expect("it comes by").unwrap();
    assert_eq!(ended.signal(), Some(9), "{words:?}: {ended}");
}

/// Runs a relay until it is done.
async fn done(stage: &Stage, words: &[&str]) {
    let mut relay = stage.relay(&stage.cluster.url(), &[&["once"], words].concat());
    let ended = tokio::time::timeout(PATIENCE, relay.wait()).await.expect("it ends").unwrap();
    assert!(ended.success(), "{ended}");
}

/// F1, R008, R009: killed when it was about to let its leases go: all of it is settled, and nothing comes again.
#[tokio::test]
async fn a_relay_may_be_killed_before_it_lets_go() {
    let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
    stage.write(EVENTS).await;
    killed(&stage, &["once", "before_release:1"]).await;
    let held = stage.number("select count(*) from {outbox_lease} where owner is not null").await;
    assert!(held > 0, "it let go before it died");
    stage.all_settled().await;
    done(&stage, &[]).await;
    assert_eq!(stage.judge().await, (EVENTS as usize, EVENTS as usize), "nothing came again");
}

/// F1, R009, R098: killed when requests were carried out and it did not know yet: the next relay sends what was requeued, and
/// nothing is carried out twice.
#[tokio::test]
async fn a_relay_may_be_killed_behind_what_it_carried_out() {
    let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
    stage.write(EVENTS).await;
    done(&stage, &[]).await;
    let before = stage.arrived().len();
    let store = PostgresStore::with(&stage.cluster.url(), Options::default()).expect("a store");
    let destination = DestinationId::new("a").unwrap();
    let row = |seq| RowKey { destination: destination.clone(), seq };
    let asked: Vec<RowKey> = (1..=u64::from(EVENTS)).step_by(3).map(row).collect();
    let count = asked.len();
    let note = Note::new("anna@db1", "they are to come again").expect("a note");
    let request = Submission { verb: Verb::Requeue(asked), note };
    let request = store.submit(&request).await.expect("a request");
    killed(&stage, &["after_carry_out:1"]).await;
    let state = store.request(request).await.expect("the request");
    assert!(state.done > 0, "it died before anything was carried out: {state:?}");
    done(&stage, &[]).await;
    let state = store.request(request).await.expect("the request");
    assert!(state.finished && state.skipped == 0, "{state:?}");
    assert_eq!(state.done, count as u64, "each of them once");
    let (_, arrived) = stage.judge().await;
    assert_eq!(arrived - before, count, "what was requeued came once more");
}

/// F1, R101: killed when the archive had taken what was to be deleted next: nothing is deleted that is not in the archive,
/// also by the next relay, and what it finds again comes to the archive again.
#[tokio::test]
async fn a_relay_may_be_killed_between_archive_and_deletion() {
    let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
    // Row by row: tables that are emptied whole are for millions.
    let setup = Setup { layout: Some(Layout::Plain), ..Setup::default() };
    let mut stage = Stage::with(cluster, setup).await;
    stage.write(EVENTS).await;
    done(&stage, &[]).await;
    let (all, _) = stage.judge().await;
    let written: BTreeSet<Uuid> = stage.rows().await.iter().map(|row| row.id).collect();
    killed(&stage, &["purge", "archive", "after_archive:1"]).await;
    let taken = archived(&stage);
    assert!(!taken.is_empty(), "it died before the archive had anything");
    let left: BTreeSet<Uuid> = stage.rows().await.iter().map(|row| row.id).collect();
    assert!(taken.iter().all(|id| left.contains(id)), "it was deleted before it died");
    let _relay = stage.relay(&stage.cluster.url(), &["purge", "archive"]);
    let began = Instant::now();
    while stage.number("select count(*) from {outbox}").await > 0 {
        assert!(began.elapsed() < PATIENCE, "nothing is deleted");
        // waits: another process deletes
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let kept = archived(&stage);
    assert_eq!(kept.iter().copied().collect::<BTreeSet<Uuid>>(), written);
    assert!(kept.len() > all, "what the dead relay had archived came again");
}

/// What the archive has, in order.
fn archived(stage: &Stage) -> Vec<Uuid> {
    let path = stage.record().with_extension("archive");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| line.parse().expect("an id")).collect()
}
