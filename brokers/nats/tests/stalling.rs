//! A cluster of three of which one stands still or is gone: the leader of the stream, and whoever we are connected to.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, Info, Stream};
use async_nats::jetstream::{self, Context};
use postrider_core::EventId;
use postrider_nats::{NatsBroker, NatsSettings};
use postrider_testkit::carry::{assert_in_order, carry};
use tokio::time::{Instant, timeout};

use crate::publishing::stored;
use crate::server::Server;

/// An election, and a client that finds out: some 20 s, and a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long one question may take, before another server is asked.
const GLANCE: Duration = Duration::from_secs(2);

/// How often a leader fails; the last time it is killed.
const FAULTS: u32 = 3;
/// What has to come between a fault and its end, and until the next one.
const BETWEEN: u64 = 200;
/// Keys, and events of each: so many that the faults come before the end.
const KEYS: usize = 4;
const EACH: u32 = 5_000;

struct Cluster {
    servers: [Server; 3],
    /// Which one does not answer.
    away: Option<usize>,
}

impl Cluster {
    async fn start() -> Option<Cluster> {
        let cluster = Cluster { servers: Server::cluster()?, away: None };
        let config = Config {
            name: "orders".to_owned(),
            subjects: vec!["orders".to_owned()],
            num_replicas: 3,
            ..Config::default()
        };
        let begun = Instant::now();
        // A cluster takes its time until it has a leader.
        while let Err(error) = cluster.context(0).await.create_stream(config.clone()).await {
            assert!(begun.elapsed() < PATIENCE, "{error}");
        }
        Some(cluster)
    }

    async fn context(&self, number: usize) -> Context {
        self.servers[number].jetstream().await
    }

    /// The stream, as one that answers knows it, and has it up to date.
    async fn look(&self) -> (Stream, Info) {
        let begun = Instant::now();
        loop {
            for number in (0..3).filter(|number| Some(*number) != self.away) {
                let asked = timeout(GLANCE, async {
                    let client = async_nats::connect(self.servers[number].address()).await.ok()?;
                    let stream = jetstream::new(client).get_stream("orders").await.ok()?;
                    let info = stream.get_info().await.ok()?;
                    Some((stream, info))
                });
                if let Ok(Some(found)) = asked.await {
                    return found;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "nobody knows the stream");
        }
    }

    /// Waits until so many are there; who leads then, and how many there are.
    async fn holds(&self, least: u64) -> (usize, u64) {
        let begun = Instant::now();
        loop {
            let (_, info) = self.look().await;
            let leader = info.cluster.and_then(|cluster| cluster.leader);
            if info.state.messages >= least
                && let Some(leader) = leader
            {
                return (leader.trim_start_matches('n').parse().unwrap(), info.state.messages);
            }
            assert!(begun.elapsed() < PATIENCE, "{} of {least}", info.state.messages);
        }
    }
}

/// F6, F8: the server that leads the stream stands still, again and again, and once it is killed: as soon as another one
/// leads, it goes on, also where we were connected to the one that stands still; nothing that was acknowledged is
/// lost, and each key is in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_leader_keeps_the_order() {
    let Some(mut cluster) = Cluster::start().await else { return };
    // What a client does cannot be judged by servers that lose by themselves.
    if let Some(version) = cluster.servers[0].outdated().await {
        println!("skipped: a leader that stands still: NATS {version} loses what it acknowledged");
        return;
    }
    let mut settings = NatsSettings::new(cluster.servers[0].address());
    let others = cluster.servers[1..].iter().map(|server| server.address().as_str().into());
    settings.servers.extend(others);
    settings.deadline = Duration::from_secs(1);
    let broker = NatsBroker::new(settings).unwrap();
    let carrying = tokio::spawn(async move { carry(&broker, "orders", KEYS, EACH).await });
    let (mut faults, mut seen) = (0, 0);
    for round in 1..=FAULTS {
        let (leader, _) = cluster.holds(seen + BETWEEN).await;
        faults += usize::from(!carrying.is_finished());
        cluster.away = Some(leader);
        match round {
            FAULTS => cluster.servers[leader].kill(),
            _ => assert!(cluster.servers[leader].signal("-STOP")),
        }
        let before = cluster.look().await.1.state.messages;
        // Not after it is back: while it is away.
        let (next, there) =
            cluster.holds((before + BETWEEN).min(KEYS as u64 * u64::from(EACH))).await;
        seen = there;
        assert_ne!(next, leader);
        match round {
            FAULTS => cluster.servers[leader].run().unwrap(),
            _ => assert!(cluster.servers[leader].signal("-CONT")),
        }
        cluster.away = None;
    }
    let sent = carrying.await.unwrap();
    assert!(faults >= 2, "only {faults} faults fell into the run");
    let (stream, _) = cluster.look().await;
    let ids: Vec<EventId> = stored(&stream).await;
    assert_in_order(&ids, &sent);
}
