//! NATS JetStream.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context, stream};
use postrider_core::{Broker, EventId, cloudevents};
use postrider_nats::{NatsBroker, NatsSettings};
use postrider_testkit::nats::NatsServer;
use postrider_testkit::proxy::Proxy;

use crate::killing;
use crate::late::{self, Line};
use crate::server::Server;
use crate::stage::{DEADLINE, KEYS};

/// A server, and the stream `orders` with that subject and `audit`.
pub(crate) struct Nats {
    server: NatsServer,
    stream: stream::Stream,
}

impl Nats {
    async fn jetstream(&self) -> Context {
        jetstream::new(async_nats::connect(self.server.address()).await.unwrap())
    }

    /// What arrived at one of the stream's subjects, copies included.
    pub(crate) async fn arrived_at(&self, subject: &str) -> Vec<EventId> {
        let state = self.stream.get_info().await.unwrap().state;
        let mut ids = Vec::new();
        for sequence in state.first_sequence..=state.last_sequence {
            let message = self.stream.get_raw_message(sequence).await.unwrap();
            if *message.subject == *subject {
                ids.push(cloudevents::parse(&message.payload).unwrap().0.id);
            }
        }
        ids
    }
}

impl Server for Nats {
    const NAME: &'static str = "nats";
    const WRONG_CLOCKS_ARE_BORNE: bool = true;

    async fn start() -> Option<Nats> {
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
            subjects: vec!["orders".to_owned(), "audit".to_owned()],
            // Copies are kept, so that the order is judged with all of them.
            duplicate_window: Duration::from_millis(100),
            ..stream::Config::default()
        };
        let stream = jetstream::new(client).create_stream(config).await.unwrap();
        Some(Nats { server, stream })
    }

    fn url(&self) -> String {
        self.server.address()
    }

    fn broker(&self) -> Arc<dyn Broker> {
        let mut settings = NatsSettings::new(self.url());
        settings.deadline = DEADLINE;
        Arc::new(NatsBroker::new(settings).unwrap())
    }

    async fn limit(&self, bytes: u32) {
        let mut config = self.stream.get_info().await.unwrap().config;
        config.max_message_size = bytes.try_into().unwrap();
        self.jetstream().await.update_stream(config).await.unwrap();
    }

    async fn crash(&mut self) {
        self.server.kill();
        self.server.run().unwrap();
    }

    fn signal(&self, name: &str) {
        assert!(self.server.signal(name));
    }

    async fn count(&self) -> u64 {
        // It may be away at this moment.
        self.stream.get_info().await.map_or(0, |info| info.state.messages)
    }

    async fn arrived(&self) -> Vec<EventId> {
        self.arrived_at("orders").await
    }

    async fn copy(&self, count: usize) {
        let jetstream = self.jetstream().await;
        for sequence in 1..=count as u64 {
            let message = self.stream.get_raw_message(sequence).await.unwrap();
            let mut headers: HeaderMap = message.headers;
            headers.insert("Nats-Msg-Id", format!("copy-{sequence}"));
            let sent = jetstream.publish_with_headers("orders", headers, message.payload).await;
            sent.unwrap().await.unwrap();
        }
    }

    async fn is_settled(&self) -> bool {
        let group = self.stream.consumer_info("ledger").await;
        group.is_ok_and(|group| (group.num_pending, group.num_ack_pending) == (0, 0))
    }

    async fn standing(&self) -> String {
        format!("{:?}", self.stream.consumer_info("ledger").await)
    }
}

/// F1, R001, R008, R036: a relay is killed at each named moment, and the next one goes on.
#[tokio::test]
async fn a_relay_may_be_killed_at_every_point() {
    killing::at_every_point::<Nats>().await;
}

/// F5, F6, F11, R002: servers and relays are killed and stopped, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_and_its_relays_may_be_killed_and_stopped() {
    killing::servers_and_relays::<Nats>().await;
}

/// F11: woken, a relay that was stopped sends at most what its client had under way, one event of a key, and nothing
/// of it for the first time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_woken_relay_sends_no_more_than_it_had_under_way() {
    let Some(nats) = Nats::start().await else { return };
    let way = Proxy::to(nats.server.port()).await;
    let far = format!("nats://127.0.0.1:{}", way.port);
    killing::woken(&nats, &way, &far, u64::from(KEYS)).await;
}

/// F8, INV-1, INV-3: answers that are late by less than a publish may take, and by twice the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_may_be_late() {
    let Some(nats) = Nats::start().await else { return };
    let line = Line::to(nats.server.port()).await;
    let broker = |port, deadline| -> Arc<dyn Broker> {
        let mut settings = NatsSettings::new(format!("nats://127.0.0.1:{port}"));
        settings.deadline = deadline;
        Arc::new(NatsBroker::new(settings).unwrap())
    };
    late::answers(&nats, &line, broker).await;
}
