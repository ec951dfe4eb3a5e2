//! The faults: of relays that read the outbox, and the first ones of relays that read an application's own table.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use postrider_testkit::cluster::Cluster;
use postrider_testkit::proxy::Proxy;

use crate::stage::{
    ANOTHER_OWNER_MAX, LEASE, RESTART_MAX, Stage, TAKEOVER_MAX, TRIES_MAX, asked, signal,
};

/// F1: on the same host a relay that is started again takes all that the killed one had, and waits for no lease: the dead
/// gets no share. Everything that was committed meanwhile is delivered within the 5 s of the fault matrix.
#[tokio::test]
async fn a_restart_on_the_same_host_takes_everything_at_once() {
    let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
    let (url, lease) = (stage.cluster.url(), Duration::from_secs(60));
    let mut relay = stage.relay_for(&url, lease);
    // In all partitions.
    stage.write(200).await;
    stage.all_arrive().await;
    let (mut in_time, mut missed) = (0, 0);
    while in_time < 3 {
        // What two in a row left unsaved would be tried one by one, which takes its time.
        stage.all_settled().await;
        relay.kill().await.unwrap();
        stage.write(200).await;
        let began = Instant::now();
        relay = stage.relay_for(&url, lease);
        stage.all_arrive().await;
        let took = began.elapsed();
        eprintln!("after {took:?}");
        if took < Duration::from_secs(5) {
            in_time += 1;
            continue;
        }
        missed += 1;
        assert!(missed < TRIES_MAX, "it took {took:?}, and the dead one's lease runs on");
    }
    stage.judge().await;
}

/// F1, R001, R008, R036: a relay is killed at each named moment, among them between fetch and publish and between
/// publish and settle, and the next one goes on, and meets its own end within the time that the matrix has for a standby
/// on another host. What came twice is no more than what no save had passed. `POSTRIDER_TEST_ROUNDS=72` kills a thousand
/// times.
#[tokio::test]
async fn a_relay_may_be_killed_at_every_point() {
    let Some(stage) = Stage::open(&["fsync = off"]).await else { return };
    killed_at_every_point(stage).await;
}

/// F1, R001, R008, R036: the same of a relay that reads an application's own table. A row that was not marked is sent again.
#[tokio::test]
async fn a_relay_of_an_own_table_may_be_killed_at_every_point() {
    let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
    killed_at_every_point(Stage::own(cluster).await).await;
}

async fn killed_at_every_point(mut stage: Stage) {
    let points = [
        "after_acquire",
        "after_fetch",
        "before_publish",
        "after_publish",
        "before_settle",
        "after_settle",
        "before_renew",
    ];
    let (mut kills, mut unsaved, mut longest) = (0, 0, Duration::ZERO);
    // Whoever has a proof of death asks twice, and has everything then; of one partition it may have everything at once.
    let asks = if stage.whose.partitions() == 1 { 1 } else { 2 };
    let last = |point: &str| if point == "after_acquire" { asks } else { 3 };
    let round = points.iter().flat_map(|it| [format!("{it}:1"), format!("{it}:{}", last(it))]);
    for _ in 0..asked("POSTRIDER_TEST_ROUNDS", 1) {
        for point in round.clone() {
            let mut relay = stage.relay(&stage.cluster.url(), &[&point]);
            let began = Instant::now();
            let ended = loop {
                // Few: what stands where relays died is tried one by one.
                stage.write(10).await;
                // waits: the relay meets its end by itself
                tokio::time::sleep(Duration::from_millis(200)).await;
                if let Some(ended) = relay.try_wait().unwrap() {
                    break ended;
                }
                assert!(began.elapsed() < TAKEOVER_MAX, "{point} is not reached");
            };
            longest = longest.max(began.elapsed());
            assert_eq!(ended.signal(), Some(9), "{point}: {ended}");
            kills += 1;
            unsaved += stage.unsaved().await;
        }
        // Not until nothing is due: what is suspected of having killed the others waits between its attempts.
        let mut last = stage.relay(&stage.cluster.url(), &[]);
        stage.all_arrive().await;
        last.kill().await.unwrap();
        unsaved += stage.unsaved().await;
    }
    let (committed, arrived) = stage.judge().await;
    let twice = (arrived - committed) as u64;
    eprintln!(
        "{kills} kills, {committed} committed, {arrived} arrived, {unsaved} unsaved at the kills; the longest way to \
         one {longest:?}"
    );
    assert!(committed > 100);
    assert!(twice <= unsaved, "{twice} came twice, and only {unsaved} were not saved");
}

/// F3, R002: the server stops at once, four times (or `POSTRIDER_TEST_CRASHES`), under two relay processes and a writer;
/// they go on by themselves, within 10 s of its answering again, and no event is suspected of it. What came twice is no
/// more than what was written since everything had arrived.
#[tokio::test]
async fn a_server_may_stop_at_once_under_relays() {
    let Some(stage) = Stage::open(&["wal_writer_delay = '10s'"]).await else { return };
    stopped_at_once(stage, asked("POSTRIDER_TEST_CRASHES", 4)).await;
}

/// F3, R002: the same where they read an application's own table.
#[tokio::test]
async fn relays_of_an_own_table_outlive_a_server_that_stops_at_once() {
    let Some(cluster) = Cluster::start(&["wal_writer_delay = '10s'"]).await else { return };
    stopped_at_once(Stage::own(cluster).await, asked("POSTRIDER_TEST_CRASHES", 2)).await;
}

async fn stopped_at_once(mut stage: Stage, wanted: u32) {
    let url = stage.cluster.url();
    let mut relays = [stage.relay(&url, &[]), stage.relay(&url, &[])];
    let mut recoveries = Vec::new();
    let (mut crashes, mut missed) = (0, 0);
    while recoveries.len() < wanted as usize {
        stage.write(100).await;
        stage.all_arrive().await;
        stage.all_settled().await;
        stage.write(500).await;
        stage.cluster.crash().await;
        let answers = Instant::now();
        stage.write(20).await;
        stage.all_arrive().await;
        let recovery = answers.elapsed();
        crashes += 1;
        if recovery < RESTART_MAX {
            recoveries.push(recovery);
            continue;
        }
        missed += 1;
        assert!(missed < TRIES_MAX, "everything flows again after {recovery:?}");
    }
    for relay in &mut relays {
        assert_eq!(relay.try_wait().unwrap(), None, "a relay outlives the server's crash");
    }
    let (committed, arrived) = stage.judge().await;
    let twice = arrived - committed;
    eprintln!(
        "{crashes} crashes, {committed} committed, {arrived} arrived, everything {recoveries:?} after the server answered"
    );
    assert!(twice <= crashes * 500, "{twice} came twice");
}

/// F7: the network between a relay and the database is cut for longer than a lease; the other relay takes over,
/// what was under way comes late and is refused, and the first one is back when the network is. Every event that
/// is written meanwhile arrives within 20 s. `POSTRIDER_TEST_CUT=60` cuts for a minute.
#[tokio::test]
async fn a_relay_may_be_cut_off() {
    let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
    let proxy = Proxy::to(stage.cluster.port()).await;
    let far = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port);
    let (mut cut_off, near) = (stage.relay(&far, &[]), stage.relay(&stage.cluster.url(), &[]));
    let cut = Duration::from_secs(asked("POSTRIDER_TEST_CUT", LEASE.as_secs() as u32).into());
    let mut unsaved = 0;
    for _ in 0..2 {
        stage.write(200).await;
        stage.all_arrive().await;
        stage.write(1_000).await;
        proxy.cut(true);
        unsaved += stage.unsaved().await;
        let began = Instant::now();
        while began.elapsed() < cut {
            stage.write(10).await;
            // waits: the cut lasts, and nothing else is to be seen of it
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stage.all_arrive().await;
        proxy.cut(false);
        stage.write(200).await;
        stage.all_arrive().await;
        // To the store a relay that is cut off has died. What two deaths leave unsaved is tried one by one.
        stage.all_settled().await;
    }
    assert_eq!(cut_off.try_wait().unwrap(), None, "it outlives the cut");
    // Alone, it takes everything again.
    signal(&near, "-9");
    unsaved += stage.unsaved().await;
    stage.write(200).await;
    stage.all_arrive().await;
    let (committed, arrived) = stage.judge().await;
    let longest = stage.lags(|_| true).await.pop().expect("events arrived") / 1_000;
    eprintln!(
        "2 cuts of {cut:?}, {committed} committed, {arrived} arrived, {unsaved} unsaved at the cuts, after {longest} ms \
         at most"
    );
    assert!(longest < TAKEOVER_MAX.as_millis() as i64, "a takeover takes no longer than that");
    let twice = (arrived - committed) as u64;
    assert!(twice <= unsaved, "{twice} came twice, and only {unsaved} were not saved");
}

/// F11: a relay is stopped for longer than its lease and goes on then, believing to own what another has
/// taken over, which takes the lease and 5 s at most. What comes twice is no more than what was on its way at the stops.
/// `POSTRIDER_TEST_STILL=60` has it stand still for a minute.
#[tokio::test]
async fn a_relay_may_stand_still_and_go_on() {
    let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
    let url = stage.cluster.url();
    let (first, second) = (stage.relay(&url, &[]), stage.relay(&url, &[]));
    stage.write(200).await;
    stage.all_arrive().await;
    let still = Duration::from_secs(asked("POSTRIDER_TEST_STILL", 0).into());
    let (mut unsaved, mut takeovers, mut pauses, mut missed) = (0, Vec::new(), 0, 0);
    // In turns, also where a time is missed: each one has taken over what the other had.
    let mut turns = [&first, &second].into_iter().cycle();
    while takeovers.len() < 3 {
        let relay = turns.next().expect("it has no end");
        stage.write(1_000).await;
        signal(relay, "-STOP");
        let stopped = Instant::now();
        unsaved += stage.unsaved().await;
        stage.write(200).await;
        let takeover = stage.taken_over().await;
        pauses += 1;
        if takeover < ANOTHER_OWNER_MAX {
            takeovers.push(takeover);
        } else {
            missed += 1;
            assert!(missed < TRIES_MAX, "another owner after {takeover:?}");
        }
        stage.all_arrive().await;
        while stopped.elapsed() < still {
            stage.write(10).await;
            // waits: the pause lasts, and nothing else is to be seen of it
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        signal(relay, "-CONT");
        stage.write(200).await;
        stage.all_arrive().await;
    }
    let (committed, arrived) = stage.judge().await;
    let twice = (arrived - committed) as u64;
    let longest = stage.lags(|_| true).await.pop().expect("events arrived") / 1_000;
    // When the last of them arrived is not asserted: what two deaths in a row leave unsaved is tried one by one.
    eprintln!(
        "{pauses} pauses, {committed} committed, {arrived} arrived, {unsaved} unsaved at the stops, taken over after \
         {takeovers:?}, the last arrived after {longest} ms"
    );
    // Once by who took over, and once by who was woken and sent what it had in hand.
    assert!(twice <= 2 * unsaved, "{twice} came twice, and only {unsaved} were not saved");
}
