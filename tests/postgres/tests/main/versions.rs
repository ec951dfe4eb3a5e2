//! Tables of the next version under relays of this one: as long as there is none, it is the tests' own.

use std::time::{Duration, Instant};

use crate::stage::{ANOTHER_OWNER_MAX, LEASE, PATIENCE, Stage, TRIES_MAX};

/// What a next version could do without a program of this one noticing: it adds.
const NEXT: &str = "
    alter table {outbox} add column remark text;
    alter table {outbox_cursor} add column remark text;
    alter table {outbox_waiting} add column remark text;
    alter table {outbox_settled} add column remark text;
    create table {outbox_remark} (id bigint primary key);
    update {outbox_meta} set value = '2' where key = 'schema'";

/// And back.
const BACK: &str = "
    drop table {outbox_remark};
    alter table {outbox_settled} drop column remark;
    alter table {outbox_waiting} drop column remark;
    alter table {outbox_cursor} drop column remark;
    alter table {outbox} drop column remark;
    update {outbox_meta} set value = '1' where key in ('schema', 'serves')";

/// Says whom the tables serve.
const NOBODY_OLDER: &str = "update {outbox_meta} set value = '2' where key = 'serves'";

/// How many partitions somebody holds.
const HELD: &str = "select count(*) from {outbox_lease} l join {outbox_renewal} n using (partition)
    where l.owner is not null and n.expires_at > clock_timestamp()";

/// Tables that serve relays of this version no more: how long until they have let go of all that they held.
async fn let_go(stage: &Stage) -> Duration {
    stage.migrates(NEXT).await;
    stage.migrates(NOBODY_OLDER).await;
    let began = Instant::now();
    while stage.number(HELD).await > 0 {
        assert!(began.elapsed() < PATIENCE, "somebody goes on");
        // waits: the leases run out, which nobody is told of
        tokio::time::sleep(LEASE / 20).await;
    }
    began.elapsed()
}

/// They let go within a lease and some time. A machine that stands still gets another try, from where they hold again all
/// that there is.
async fn let_go_in_time(stage: &Stage) {
    let all = stage.number(HELD).await;
    for attempt in 1..=TRIES_MAX {
        let took = let_go(stage).await;
        if took < ANOTHER_OWNER_MAX {
            return;
        }
        assert!(attempt < TRIES_MAX, "somebody went on for {took:?}");
        stage.migrates(BACK).await;
        let began = Instant::now();
        while stage.number(HELD).await < all {
            assert!(began.elapsed() < PATIENCE, "nobody takes them back");
            // waits: relays that were refused look again, and tell nobody
            tokio::time::sleep(LEASE / 20).await;
        }
    }
}

/// F29, F41, R108: relays of this version go on, start, and take over on tables of the next one that serve them, and on the
/// way back; nothing is lost, and nothing comes twice but what a kill left unsaved. Where the tables serve them no more, they let go
/// within a lease, one that starts ends, and all goes on when the tables are taken back.
#[tokio::test]
async fn relays_roll_over_tables_of_the_next_version() {
    let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
    let url = stage.cluster.url();
    let (mut first, mut second) = (stage.relay(&url, &[]), stage.relay(&url, &[]));
    let mut unsaved = 0;
    for step in [NEXT, BACK] {
        stage.write(500).await;
        stage.migrates(step).await;
        stage.write(500).await;
        stage.all_arrive().await;
        first.kill().await.unwrap();
        unsaved += stage.unsaved().await;
        first = stage.relay(&url, &[]);
        stage.write(500).await;
        stage.all_arrive().await;
    }
    assert_eq!(second.try_wait().unwrap(), None, "it lives on");
    // Nor may who is refused save what has arrived: that would come twice as well.
    let began = Instant::now();
    while stage.unsaved().await > 0 {
        assert!(began.elapsed() < PATIENCE, "it is not saved");
        // waits: relays at rest save what they have sent, and tell nobody
        tokio::time::sleep(LEASE / 20).await;
    }
    let_go_in_time(&stage).await;
    stage.write(100).await;
    let mut third = stage.relay(&url, &[]);
    let ended = tokio::time::timeout(PATIENCE, third.wait()).await.expect("it is refused").unwrap();
    assert!(!ended.success(), "{ended}");
    assert_eq!(stage.number(HELD).await, 0, "and nobody took anything");
    stage.migrates(BACK).await;
    stage.all_arrive().await;
    for relay in [&mut first, &mut second] {
        assert_eq!(relay.try_wait().unwrap(), None, "it outlives that, too");
    }
    let (committed, arrived) = stage.judge().await;
    let twice = (arrived - committed) as u64;
    eprintln!("{committed} committed, {twice} came twice, {unsaved} unsaved at the kills");
    assert!(twice <= unsaved, "{twice} came twice, and only {unsaved} were not saved");
}
