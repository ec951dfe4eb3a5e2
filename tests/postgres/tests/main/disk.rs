//! The database's disk is full, with everything on it: tables, log, and the server's own files.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use postrider_postgres::Setup;
use postrider_testkit::cluster::Wanted;
use postrider_testkit::disk::Disk;
use postrider_testkit::suite::skip;

use uuid::Uuid;

use crate::stage::{PATIENCE, Row, Stage, connect};

/// Room for a cluster, its log, and some events.
const DISK_MIB: u32 = 256;

/// F23, R002: the database's disk is full under a writer and two relays. Producers fail cleanly, and nothing is
/// half written; with space again the relays go on by themselves, and every commit that was acknowledged is
/// delivered. A server that gives up for want of room for its log is started again, as its supervisor does.
#[tokio::test]
async fn the_disk_of_the_database_may_be_full() {
    let disk = match Disk::new(DISK_MIB) {
        Ok(disk) => disk,
        Err(reason) => return skip("a database whose disk is full", &reason),
    };
    let wanted = Wanted::default().below(disk.folder()).settings(&["max_wal_size = '64MB'"]);
    let cluster = match wanted.start().await {
        Ok(cluster) => cluster,
        Err(reason) => return skip("a database whose disk is full", &reason),
    };
    let mut stage = Stage::on(cluster).await;
    let url = stage.cluster.url();
    let mut relays = [stage.relay(&url, &[]), stage.relay(&url, &[])];
    stage.write(2_000).await;
    stage.all_arrive().await;
    for _ in 0..2 {
        disk.fill();
        let began = Instant::now();
        while stage.write(2_000).await {
            assert!(began.elapsed() < PATIENCE, "the disk is not full");
        }
        // The relays' own writes fail as well, for longer than a lease.
        let until = Instant::now() + Duration::from_secs(3);
        let mut refused = 0;
        while Instant::now() < until {
            refused += u32::from(!stage.write(2_000).await);
            // waits: the fault lasts
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        disk.relieve();
        let fell = !stage.cluster.is_running();
        if fell {
            stage.cluster.launch().await;
        }
        drop(connect(&url).await);
        let resumed = Instant::now();
        assert!(stage.write(100).await, "producers go on");
        stage.all_arrive().await;
        eprintln!(
            "{refused} more writes refused, the server fell: {fell}; everything arrived {:?} after there was \
             space",
            resumed.elapsed()
        );
        assert!(refused > 0);
    }
    for relay in &mut relays {
        assert_eq!(relay.try_wait().unwrap(), None, "a relay outlives the full disk");
    }
    let (committed, arrived) = stage.judge().await;
    eprintln!("{committed} committed, {arrived} arrived");
}

/// Events of one table: more than one bucket of the settled log, and some megabytes.
const TABLE_ROWS: u64 = 8_192;

/// The longest until old tables have gone from a full disk. To empty one takes a page for each index, which is not there, and
/// the server itself makes room at some time: after 52 s once.
const PURGE_MAX: Duration = Duration::from_secs(20);

/// F23, R101: a relay purges while the disk is full, which makes room. Nothing goes that is not delivered, producers are
/// refused cleanly, and with space it goes on by itself.
#[tokio::test]
async fn what_is_old_is_purged_beside_a_full_disk() {
    let disk = match Disk::new(DISK_MIB) {
        Ok(disk) => disk,
        Err(reason) => return skip("a purge beside a full disk", &reason),
    };
    let wanted = Wanted::default().below(disk.folder()).settings(&["max_wal_size = '64MB'"]);
    let cluster = match wanted.start().await {
        Ok(cluster) => cluster,
        Err(reason) => return skip("a purge beside a full disk", &reason),
    };
    let setup = Setup { table_rows: Some(TABLE_ROWS), ..Setup::default() };
    let mut stage = Stage::with(cluster, setup).await;
    let url = stage.cluster.url();
    let mut keeps = stage.relay(&url, &[]);
    for _ in 0..15 {
        assert!(stage.write(2_000).await);
    }
    stage.all_arrive().await;
    stage.all_settled().await;
    keeps.kill().await.expect("it ends");
    // What nobody has delivered yet must outlive the purge.
    assert!(stage.write(1_000).await);
    let kept: Vec<Row> = stage.rows().await;
    disk.fill();
    let mut relays = [stage.relay(&url, &["purge"]), stage.relay(&url, &["purge"])];
    let oldest = "select coalesce(min(seq), 0) from {outbox}";
    // Nobody writes, and there is no byte: whole tables go all the same, and that makes room.
    let began = Instant::now();
    while stage.number(oldest).await < 2 * TABLE_ROWS.cast_signed() {
        assert!(began.elapsed() < PURGE_MAX, "nothing is purged while the disk is full");
        // waits: another process purges
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let purged = began.elapsed();
    disk.fill_up();
    let until = Instant::now() + Duration::from_secs(6);
    let (mut refused, mut taken) = (0, 0);
    while Instant::now() < until {
        match stage.write(2_000).await {
            true => taken += 1,
            false => refused += 1,
        }
        // waits: the fault lasts
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    disk.relieve();
    let fell = !stage.cluster.is_running();
    if fell {
        stage.cluster.launch().await;
    }
    drop(connect(&url).await);
    let resumed = Instant::now();
    while !stage.write(100).await {
        assert!(resumed.elapsed() < PATIENCE, "producers go on");
    }
    stage.all_arrive().await;
    let arrived: BTreeSet<Uuid> = stage.arrived().into_iter().collect();
    let lost = kept.iter().filter(|row| !arrived.contains(&row.id)).count();
    assert_eq!(lost, 0, "what was purged had been delivered");
    for relay in &mut relays {
        assert_eq!(relay.try_wait().unwrap(), None, "a relay outlives the full disk");
    }
    eprintln!(
        "purged {purged:?} after the disk was full; {refused} writes refused and {taken} taken while it was full again, the \
         server fell: {fell}; everything there {:?} after there was space",
        resumed.elapsed()
    );
}
