//! NATS JetStream.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, stream};
use postrider_core::{EventId, cloudevents};
use postrider_testkit::nats::NatsServer;

use crate::stage::{LEASE, PATIENCE, Stage, signal};

/// A server, and the stream `orders`.
pub(crate) struct Nats {
    pub(crate) server: NatsServer,
    pub(crate) stream: stream::Stream,
}

impl Nats {
    pub(crate) async fn start() -> Option<Nats> {
        let server = match NatsServer::start("") {
            Ok(server) => server,
            Err(reason) => {
                println!("skipped: a server of NATS: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                return None;
            }
        };
        let client = async_nats::connect(server.address()).await.unwrap();
        let config = stream::Config {
            name: "orders".to_owned(),
            subjects: vec!["orders".to_owned()],
            // Copies are kept, so that the order is judged with all of them.
            duplicate_window: Duration::from_millis(100),
            ..stream::Config::default()
        };
        let stream = jetstream::new(client).create_stream(config).await.unwrap();
        Some(Nats { server, stream })
    }

    pub(crate) async fn jetstream(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(self.server.address()).await.unwrap())
    }

    async fn count(&self) -> u64 {
        // It may be away at this moment.
        self.stream.get_info().await.map_or(0, |info| info.state.messages)
    }

    /// Waits until so many are there, copies included.
    async fn holds(&self, least: u64) {
        let begun = Instant::now();
        while self.count().await < least {
            assert!(begun.elapsed() < PATIENCE, "{} of {least} arrive", self.count().await);
            // waits: the server tells nobody what it stores
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// What arrived, in the order of the stream, copies included.
    async fn arrived(&self) -> Vec<EventId> {
        let state = self.stream.get_info().await.unwrap().state;
        let mut ids = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = self.stream.get_raw_message(sequence).await.unwrap();
            ids.push(cloudevents::parse(&message.payload).unwrap().0.id);
        }
        ids
    }
}

/// F1, R001, R008, R036: a relay is killed at each named moment, among them between fetch and publish and between
/// publish and settle, and the next one goes on.
#[tokio::test]
async fn a_relay_may_be_killed_at_every_point() {
    let Some(nats) = Nats::start().await else { return };
    let (mut stage, url) = (Stage::open(), nats.server.address());
    let points =
        ["after_fetch", "before_publish", "after_publish", "before_settle", "after_settle"];
    let points = points.iter().flat_map(|point| [format!("{point}:1"), format!("{point}:3")]);
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
            assert!(begun.elapsed() < PATIENCE, "{point} is not reached: {}", stage.log());
        };
        assert_eq!(ended.signal(), Some(9), "{point}: {ended}");
    }
    stage.finish(&url).await;
    let arrived = nats.arrived().await;
    let committed = stage.judge(&arrived);
    eprintln!("11 kills, {committed} committed, {} arrived", arrived.len());
    assert!(committed > 100);
}

/// F5, F6, F11, R002: the server is killed, and relays are stopped for longer than their lease, again and again; all
/// go on by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_and_its_relays_may_be_killed_and_stopped() {
    let Some(mut nats) = Nats::start().await else { return };
    let (mut stage, url) = (Stage::open(), nats.server.address());
    let relays = [stage.relay(&url, &[]), stage.relay(&url, &[])];
    for round in 0..4 {
        let before = nats.count().await;
        stage.write(3_000);
        // In the middle, unless they are very fast.
        nats.holds(before + 200).await;
        match round {
            0 | 2 => {
                nats.server.kill();
                nats.server.run().unwrap();
            }
            _ => {
                let stopped = &relays[round / 2];
                signal(stopped, "-STOP");
                // waits: for longer than its lease
                tokio::time::sleep(LEASE + LEASE / 2).await;
                signal(stopped, "-CONT");
            }
        }
        stage.write(200);
        nats.holds(before + 3_200).await;
    }
    drop(relays);
    stage.finish(&url).await;
    let arrived = nats.arrived().await;
    let committed = stage.judge(&arrived);
    eprintln!("2 crashes, 2 stops, {committed} committed, {} arrived", arrived.len());
    assert_eq!(committed, 12_800);
}
