//! Sidecars of a group with partitions, on a real server of NATS.

use std::time::{Duration, Instant};

use async_nats::jetstream::{self, stream};
use postrider_core::{Broker, Event, Format, Marks, Outcome, Outgoing, Template};
use postrider_nats::{NatsBroker, NatsSettings};
use postrider_testkit::nats::NatsServer;
use tokio::process::Command;

use crate::endpoint::{Endpoint, Plan};
use crate::history::{assert_one_effect_each, judge};
use crate::remote::{PATIENCE, Remote};
use crate::sidecar::Sidecar;
use crate::stage::Stage;

/// How many there are.
const COUNT: u16 = 4;

/// A server with a stream of orders in partitions and one for dead letters, and a stage.
struct Partitions {
    stage: Stage,
    server: NatsServer,
    jetstream: jetstream::Context,
    broker: NatsBroker,
}

impl Partitions {
    async fn start() -> Option<Partitions> {
        let server = match NatsServer::start("") {
            Ok(server) => server,
            Err(reason) => {
                println!("skipped: a server of NATS: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                return None;
            }
        };
        let client = async_nats::connect(server.address()).await.unwrap();
        let jetstream = jetstream::new(client);
        for (name, subject) in [("SHOP", "shop.>"), ("DEAD", "postrider.dead.>")] {
            let config = stream::Config {
                name: name.to_owned(),
                subjects: vec![subject.to_owned()],
                // Copies are delivered: the inbox has something to absorb.
                duplicate_window: Duration::from_millis(100),
                ..stream::Config::default()
            };
            jetstream.create_stream(config).await.unwrap();
        }
        let broker = NatsBroker::new(NatsSettings::new(server.address())).unwrap();
        Some(Partitions { stage: Stage::new(), server, jetstream, broker })
    }
}

impl Remote for Partitions {
    fn stage(&self) -> &Stage {
        &self.stage
    }

    fn broker(&self) -> &dyn Broker {
        &self.broker
    }

    fn topic(&self) -> &str {
        "shop.{partition:4}.{event_type}"
    }

    fn from(&self) -> String {
        format!("{}/SHOP/shop.{{partition:{COUNT}}}.>", self.server.address())
    }

    fn kind(&self) -> &str {
        "nats"
    }

    async fn settled(&self) {
        let begun = Instant::now();
        let stream = self.jetstream.get_stream("SHOP").await.unwrap();
        for partition in 0..COUNT {
            loop {
                let name = format!("billing-partition-{partition}");
                let group = stream.consumer_info(name).await.unwrap();
                if (group.num_pending, group.num_ack_pending) == (0, 0) {
                    break;
                }
                assert!(begun.elapsed() < PATIENCE, "{group:?}");
                // waits: the server tells nobody what is settled
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        }
    }

    async fn publish(&self, event: &Event) {
        let template: Template = self.topic().parse().unwrap();
        let outgoing = Outgoing {
            event: std::sync::Arc::new(event.clone()),
            topic: template.render(event).into(),
            format: Format::Structured,
            layout: None,
            marks: Marks::default(),
            attempt: 1,
        };
        let begun = Instant::now();
        // A server on a busy machine may not answer in time; of copies the inbox knows.
        loop {
            let said = self.broker.publish(std::slice::from_ref(&outgoing)).await;
            if matches!(said.as_deref(), Ok([Outcome::Acked])) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{said:?}");
        }
    }
}

/// R070, R076, INV-3, INV-4: whatever is killed, each order is acted on once, and each key in its order; and
/// partitions are worked on beside each other.
#[tokio::test]
async fn a_group_of_partitions_stays_in_order_whatever_is_killed() {
    let Some(nats) = Partitions::start().await else { return };
    let endpoint = nats.kill_again_and_again(12, &[]).await;
    assert!(endpoint.at_work_max() > 1, "partitions are worked on beside each other");
    assert_one_effect_each(&nats.stage, &endpoint).await;
    let verdict = judge(&nats.stage, &endpoint.effects()).await;
    assert!(verdict.judged(postrider_core::Invariant::KeyOrder) > 0);
}

/// R070: a sidecar that ends in good order gives back what it had not begun: another one goes on long before the
/// lease of the first would have ended.
#[tokio::test]
async fn a_sidecar_that_stops_gives_its_partitions_back() {
    let Some(nats) = Partitions::start().await else { return };
    let endpoint =
        Endpoint::start(|_, _| Plan::After(Duration::from_millis(20), Box::new(Plan::done())))
            .await;
    for number in 0..40_usize {
        nats.place(&(number % 11).to_string()).await;
    }
    let start = async |concurrency: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(["consume", "--inbox", "sqlite://billing.db", "--to", &endpoint.url()]);
        command.args(["--from", &nats.from(), "--group", "billing", "--lease", "10m"]);
        command.args(["--concurrency", concurrency]);
        let mut sidecar = Sidecar::start(nats.placed(command));
        sidecar.hear("receiving").await;
        sidecar
    };
    // One at a time: the other partitions wait in its hands.
    let first = start("1").await;
    endpoint.called(5).await;
    first.stop().await;
    let second = start("4").await;
    nats.settled().await;
    second.stop().await;
    assert_one_effect_each(&nats.stage, &endpoint).await;
}
