//! Relays and servers that are killed and stopped, from an outbox in SQLite.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use postrider_testkit::proxy::{Proxy, Traffic};
use tokio::process::Child;

use crate::server::Server;
use crate::stage::{LEASE, PATIENCE, Stage, TAKEOVER_MAX, signal};

/// A relay is killed at each named moment, among them between fetch and publish and between publish and settle, and
/// the next one goes on, within the time of the fault matrix. What came twice is no more than what no save had passed.
pub(crate) async fn at_every_point<S: Server>() {
    let Some(server) = S::start().await else { return };
    let (mut stage, url) = (Stage::open(), server.url());
    let points =
        ["after_fetch", "before_publish", "after_publish", "before_settle", "after_settle"];
    let points = points.iter().flat_map(|point| [format!("{point}:1"), format!("{point}:3")]);
    let (mut unsaved, mut longest) = (0, Duration::ZERO);
    for point in points.chain(["after_acquire:1".to_owned()]) {
        let mut relay = stage.relay(&url, &[&point]);
        let begun = Instant::now();
        let ended = loop {
            stage.write(30);
            // waits: the relay meets its end by itself
            tokio::time::sleep(Duration::from_millis(30)).await;
            if let Some(ended) = relay.try_wait().unwrap() {
                break ended;
            }
            assert!(begun.elapsed() < TAKEOVER_MAX, "{point} is not reached: {}", stage.log());
        };
        longest = longest.max(begun.elapsed());
        unsaved += stage.unsaved();
        assert_eq!(ended.signal(), Some(9), "{point}: {ended}");
    }
    stage.finish(&url).await;
    let arrived = server.arrived().await;
    let committed = stage.judge(&arrived);
    let twice = (arrived.len() - committed) as u64;
    eprintln!(
        "11 kills, {committed} committed, {} arrived, {unsaved} unsaved at the kills; the longest way to one {longest:?}",
        arrived.len()
    );
    assert!(committed > 100);
    assert!(twice <= unsaved, "{twice} came twice, and only {unsaved} were not saved");
}

/// The server is killed, and relays are stopped for longer than their lease, again and again; all go on by
/// themselves. What came twice is no more than what was on its way at the faults.
pub(crate) async fn servers_and_relays<S: Server>() {
    let Some(mut server) = S::start().await else { return };
    let (mut stage, url) = (Stage::open(), server.url());
    let relays = [stage.relay(&url, &[]), stage.relay(&url, &[])];
    let (mut unsaved, mut hits, mut recoveries) = (0, 0, Vec::new());
    for round in 0..4 {
        let before = server.count().await;
        stage.write(1_500);
        // In the middle, unless they are very fast.
        server.holds(before + 200).await;
        unsaved += stage.unsaved();
        hits += u32::from(server.count().await < before + 1_500);
        match round {
            0 | 2 => server.crash().await,
            _ => {
                let stopped = &relays[round / 2];
                signal(stopped, "-STOP");
                // waits: for longer than its lease
                tokio::time::sleep(LEASE + LEASE / 2).await;
                signal(stopped, "-CONT");
            }
        }
        let goes_on = Instant::now();
        stage.write(200);
        server.holds(before + 1_700).await;
        recoveries.push(goes_on.elapsed());
    }
    drop(relays);
    stage.finish(&url).await;
    let arrived = server.arrived().await;
    let committed = stage.judge(&arrived);
    let twice = (arrived.len() - committed) as u64;
    eprintln!(
        "2 crashes, 2 stops, {hits} of them with events on their way, {committed} committed, {} arrived, {unsaved} unsaved at the faults, the rest \
         {recoveries:?} after them",
        arrived.len()
    );
    assert_eq!(committed, 6_800);
    assert!(hits >= 2, "only {hits} faults had work to hit");
    // Once by who took over, and once by who was woken and sent what it had in hand.
    assert!(twice <= 2 * unsaved, "{twice} came twice, and only {unsaved} were not saved");
}

/// What a relay has sent and nobody has got yet is on its way for as long as it is stopped, by a proxy at the address
/// `far`: what comes late is certain, and not a matter of the moment. Another relay takes over and delivers everything;
/// woken, the first one sends at most `window` events with what was on its way, and nothing of them for the first time.
/// Then it is woken while the other one is at it.
pub(crate) async fn woken<S: Server>(server: &S, way: &Proxy, far: &str, window: u64) {
    let (mut stage, near) = (Stage::open(), server.url());
    let mut relay = stage.relay(far, &[]);
    let mut late = Vec::new();
    for _ in 0..2 {
        let attempts = stop_with_events_on_their_way(server, way, &mut stage, &relay).await;
        stage.finish(&near).await;
        let before = server.count().await;
        way.set(Traffic::Open);
        signal(&relay, "-CONT");
        // waits: for longer than a client tries to deliver, so that what comes has come
        tokio::time::sleep(LEASE * 2).await;
        late.push(server.count().await - before);
        let most = window * attempts;
        assert!((1..=most).contains(late.last().unwrap()), "{late:?} came late, of {most}");
    }
    woken_beside_another(server, way, &mut stage, &relay).await;
    // Alive, it may take over from the other one first, and whoever delivers what is left would wait for it in vain.
    relay.kill().await.unwrap();
    stage.finish(&near).await;
    let arrived = server.arrived().await;
    let committed = stage.judge(&arrived);
    let twice = arrived.len() - committed;
    eprintln!("3 stops, {committed} committed, {twice} came twice, {late:?} of them late");
    assert_eq!(committed, 9_000);
}

/// Stops a relay in the middle, with events on their way. Returns how many times at most each of them may have been sent: an
/// attempt lasts longer than a tenth of a second.
async fn stop_with_events_on_their_way<S: Server>(
    server: &S,
    way: &Proxy,
    stage: &mut Stage,
    relay: &Child,
) -> u64 {
    let begun = server.count().await;
    stage.write(3_000);
    server.holds(begun + 300).await;
    let held = Instant::now();
    way.set(Traffic::RequestsHeld);
    // Nothing else that a client asks for is as long.
    let least = tokio::time::timeout(PATIENCE, way.holds(1_000)).await;
    least.expect("it sends events");
    stage.stop_between_writes(relay);
    let attempts = 1 + held.elapsed().as_millis() / 100;
    assert!(server.count().await < begun + 3_000, "it was stopped in the middle");
    attempts.try_into().unwrap()
}

/// The same relay is woken while another one has taken over and is in the middle of what is left: what both send, and what
/// was on its way, comes in an order in which nothing is passed over.
async fn woken_beside_another<S: Server>(
    server: &S,
    way: &Proxy,
    stage: &mut Stage,
    relay: &Child,
) {
    let begun = server.count().await;
    stop_with_events_on_their_way(server, way, stage, relay).await;
    let stopped = server.count().await;
    let another = stage.relay(&server.url(), &[]);
    server.holds(stopped + 100).await;
    assert!(server.count().await < begun + 3_000, "it was in the middle");
    way.set(Traffic::Open);
    signal(relay, "-CONT");
    server.holds(begun + 3_000).await;
    drop(another);
}
