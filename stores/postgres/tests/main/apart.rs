//! How far apart saves of cursors should be: more beside a snapshot that somebody holds, and no more than ever without it.

use std::time::{Duration, Instant};

use postrider_core::source::{OutboxSource, RenewRequest};
use postrider_core::{Lease, RelayId};
use postrider_postgres::{Names, PostgresStore, Setup, saves_apart};

use crate::database::Database;
use crate::support::{Fresh, LONG};

/// Longer than two looks at the versions are apart.
const LOOKS_MAX: Duration = Duration::from_secs(60);

/// So many saves of each cursor.
const SAVES: u64 = 200;

async fn asked(store: &PostgresStore, lease: &Lease) -> Duration {
    let (owner, leases): (RelayId, _) = (lease.owner.clone(), vec![lease.clone()]);
    let request = RenewRequest { owner, leases, lease_duration: LONG, current: true };
    store.renew(&request).await.expect("a renewal").saves_apart
}

/// Renews until the store asks for something that will do.
async fn wait_for(
    store: &PostgresStore,
    lease: &Lease,
    does: impl Fn(Duration) -> bool,
) -> Duration {
    let end = Instant::now() + LOOKS_MAX;
    loop {
        let apart = asked(store, lease).await;
        if does(apart) {
            return apart;
        }
        assert!(Instant::now() < end, "it asks for {apart:?}");
        // waits: the look goes beside a renewal, each 20 seconds, and only the next renewal tells of it.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until statistics know of all cursors.
async fn wait_for_rows(fresh: &Fresh) {
    let end = Instant::now() + LOOKS_MAX;
    let rows = fresh.number("select count(*) from {outbox_cursor}").await;
    let known = "select pg_stat_get_live_tuples({text:outbox_cursor}::regclass)";
    while fresh.number(known).await != rows {
        assert!(Instant::now() < end, "statistics do not know of {rows} cursors");
        // waits: statistics arrive when they do, and nobody is told.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Updates each cursor as saves do, each in a transaction of its own, and tells the statistics.
async fn save(fresh: &Fresh, times: u64) {
    fresh
        .run(&format!(
            "do $$ begin
                for i in 1..{times} loop
                    update {{outbox_cursor}} set position = position;
                    commit;
                end loop;
            end $$"
        ))
        .await;
    // In the same session, which alone has counted them; and beside no statement that commits.
    fresh.run("select pg_stat_force_next_flush()").await;
}

/// Saves as often, with nobody's snapshot beside: autovacuum has one while it analyzes any table of this database, and then
/// it is done once more.
async fn save_alone(fresh: &Fresh) {
    let end = Instant::now() + LOOKS_MAX;
    let dead = "select pg_stat_get_dead_tuples({text:outbox_cursor}::regclass)";
    loop {
        // Saves prune what is left; what they cannot, as they leave the place in the index, a vacuum takes.
        fresh.run("vacuum {outbox_cursor}").await;
        save(fresh, SAVES).await;
        let left = fresh.number(dead).await;
        if left < i64::try_from(SAVES).expect("few") / 4 {
            return;
        }
        assert!(Instant::now() < end, "{left} versions are left, and nobody holds them");
    }
}

/// A save that finds its row behind versions that a stranger's snapshot keeps is dear, and the store says so; without the
/// snapshot, and with as many saves, it does not. In a database of its own: a snapshot of any test beside it would do the same.
#[tokio::test]
async fn saves_are_spread_beside_a_held_snapshot() {
    let setup = Setup { partitions: Some(4), ..Setup::default() };
    let Some(database) = Database::new(&setup).await else { return };
    let fresh = Fresh::at(&database.url, Names::default());
    let (store, lease) = fresh.relay().await;
    assert_eq!(asked(&store, &lease).await, Duration::ZERO);
    // What the session says that wrote the rows it says when it ends, or has been idle for 10 seconds. A vacuum before
    // that counts them too, and then they are twice as many, until the next.
    fresh.run("alter table {outbox_cursor} set (autovacuum_enabled = off)").await;
    drop(store);
    wait_for_rows(&fresh).await;
    let mut holder = fresh.connect().await;
    let held = holder
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .start()
        .await
        .unwrap();
    held.batch_execute("select 1").await.unwrap();
    save(&fresh, SAVES).await;
    let store = fresh.store();
    let apart = wait_for(&store, &lease, |apart| !apart.is_zero()).await;
    let expected = saves_apart(SAVES - 20)..=saves_apart(SAVES + 20);
    assert!(expected.contains(&apart), "{SAVES} versions of each row, and it asks for {apart:?}");
    held.rollback().await.unwrap();
    save_alone(&fresh).await;
    wait_for(&store, &lease, |apart| apart.is_zero()).await;
    drop(fresh);
    database.drop().await;
}
