//! Clocks that are wrong: a relay's, and the database's. Both jump while events are written and delivered.

use std::path::Path;
use std::time::Duration;

use postrider_testkit::cluster::Wanted;
use postrider_testkit::suite::skip;
use postrider_testkit::wall_clock::WallClock;

use crate::stage::{Stage, signal};

const MINUTE: i64 = 60_000_000;

/// Writes while a clock does what it was told to.
async fn write_for(stage: &mut Stage, span: Duration) {
    let began = std::time::Instant::now();
    while began.elapsed() < span {
        stage.write(20).await;
        // waits: a clock takes a second to see that it was set
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// F12, R114, R115: the clocks of two relays are ten minutes apart from the database's on either side, then one
/// steps back by an hour and the other forward, one has a leap second, and relays die meanwhile. Leases go by
/// the database's clock and the owner's monotonic one: nothing is lost, and each key keeps its order.
#[tokio::test]
async fn clocks_of_relays_may_jump() {
    let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
    let (Some(ahead), Some(behind)) = (
        WallClock::new(stage.folder.path(), "ahead"),
        WallClock::new(stage.folder.path(), "behind"),
    ) else {
        return;
    };
    ahead.set("+10m");
    behind.set("-10m");
    let url = stage.cluster.url();
    let start = |stage: &Stage, clock: &WallClock| {
        let set = clock.variables();
        let set: Vec<(&str, &str)> = set.iter().map(|(name, value)| (*name, &**value)).collect();
        stage.relay_with(&url, &[], &set)
    };
    let (first, mut second) = (start(&stage, &ahead), start(&stage, &behind));
    write_for(&mut stage, Duration::from_secs(2)).await;
    stage.all_arrive().await;
    ahead.set("-50m");
    behind.set("+50m");
    write_for(&mut stage, Duration::from_secs(3)).await;
    signal(&first, "-9");
    let third = start(&stage, &ahead);
    write_for(&mut stage, Duration::from_secs(2)).await;
    // A leap second: one that is had twice.
    behind.set("+2999");
    write_for(&mut stage, Duration::from_secs(2)).await;
    stage.all_arrive().await;
    assert_eq!(second.try_wait().unwrap(), None, "a relay outlives the steps of its clock");
    drop(third);
    let (committed, arrived) = stage.judge().await;
    let lags = stage.lags(|_| true).await;
    let seen = |low: i64, high: i64| {
        lags.iter().filter(|lag| (low * MINUTE..high * MINUTE).contains(*lag)).count()
    };
    let steps = [seen(-70, -40), seen(-40, -8), seen(8, 40), seen(40, 70)];
    eprintln!("{committed} committed, {arrived} arrived; by the relays' clocks {steps:?}");
    assert!(
        steps.iter().filter(|seen| **seen > 0).count() >= 3,
        "the clocks were wrong: {steps:?}"
    );
}

/// F13, R114: the database's clock steps forward by ten minutes, so that every lease looks expired, back by an
/// hour, and by a leap second, under two relays of which one dies. Leases end early or late by the step; the
/// fence keeps what was taken over from the one who had it.
#[tokio::test]
async fn the_clock_of_the_database_may_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(clock) = WallClock::new(folder.path(), "server") else { return };
    readable(folder.path());
    let wanted = clock
        .variables()
        .iter()
        .fold(Wanted::default(), |wanted, (name, value)| wanted.variable(name, value));
    let cluster = match wanted.settings(&["fsync = off"]).start().await {
        Ok(cluster) => cluster,
        Err(reason) => return skip("a database whose clock steps", &reason),
    };
    let mut stage = Stage::on(cluster).await;
    let url = stage.cluster.url();
    let (mut first, second) = (stage.relay(&url, &[]), stage.relay(&url, &[]));
    write_for(&mut stage, Duration::from_secs(2)).await;
    stage.all_arrive().await;
    // The last is a leap second: one that is had twice.
    for step in ["+10m", "-50m", "+0", "-1"] {
        clock.set(step);
        write_for(&mut stage, Duration::from_secs(3)).await;
        stage.all_arrive().await;
    }
    // Early, by a step: whoever died is followed at once.
    signal(&second, "-9");
    clock.set("+10m");
    write_for(&mut stage, Duration::from_secs(2)).await;
    stage.all_arrive().await;
    assert_eq!(first.try_wait().unwrap(), None, "a relay outlives the steps");
    let (committed, arrived) = stage.judge().await;
    let lags = stage.lags(|_| true).await;
    let (behind, ahead) = (
        lags.iter().filter(|lag| **lag < -8 * MINUTE).count(),
        lags.iter().filter(|lag| **lag > 8 * MINUTE).count(),
    );
    eprintln!(
        "{committed} committed, {arrived} arrived; {behind} while the database was ahead, {ahead} while behind"
    );
    assert!(behind > 0 && ahead > 0, "the database's clock was wrong");
}

/// The account of the server reads the clock's offset.
fn readable(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, all).expect("permissions");
}
