//! A server of a test's own, with the streams that it needs.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use async_nats::jetstream::{self, Context, stream};
use postrider_core::{Delivery, ErrorKind, Subscription};
use postrider_nats::NatsSettings;
use postrider_testkit::nats::NatsServer;
use tokio::time::{Instant, timeout};

/// How long something may take to come on a machine that stands still at times.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a group is given. A server that does not answer in time is asked again, as a consumer does.
pub(crate) async fn received(subscription: &dyn Subscription, most: usize) -> Vec<Delivery> {
    let begun = Instant::now();
    loop {
        match timeout(PATIENCE, subscription.receive(most)).await.expect("it comes") {
            Err(error) if error.kind() == ErrorKind::Unavailable && begun.elapsed() < PATIENCE => {}
            received => return received.expect("deliveries"),
        }
    }
}

pub(crate) struct Server(NatsServer);

impl Deref for Server {
    type Target = NatsServer;

    fn deref(&self) -> &NatsServer {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut NatsServer {
        &mut self.0
    }
}

impl Server {
    /// Starts one with JetStream; `None`, with the reason printed, where there is no program.
    pub(crate) fn start() -> Option<Server> {
        Server::with("")
    }

    /// Starts one with more lines of configuration.
    pub(crate) fn with(config: &str) -> Option<Server> {
        Server::within(config, "")
    }

    /// Starts one with more lines of configuration, and of JetStream's.
    pub(crate) fn within(config: &str, jetstream: &str) -> Option<Server> {
        Server::started(NatsServer::start_within(config, jetstream))
    }

    /// Starts one whose files are all in a folder there.
    pub(crate) fn below(folder: &std::path::Path) -> Option<Server> {
        Server::started(NatsServer::start_below(folder, "", ""))
    }

    fn started(server: Result<NatsServer, String>) -> Option<Server> {
        match server {
            Ok(server) => Some(Server(server)),
            Err(reason) => {
                println!("skipped: a server of NATS: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                None
            }
        }
    }

    /// Starts three that know each other: only a cluster has streams of three replicas.
    pub(crate) fn cluster() -> Option<[Server; 3]> {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // Held until all are known, so that they are three.
        let ports = [free(), free(), free()].map(|held| held.local_addr().unwrap().port());
        let routes = ports.map(|port| format!("nats-route://127.0.0.1:{port}")).join(", ");
        let start = |number: usize| {
            Server::with(&format!(
                "server_name: n{number}\ncluster {{ name: c, listen: \"127.0.0.1:{}\", routes: [{routes}] }}",
                ports[number]
            ))
        };
        Some([start(0)?, start(1)?, start(2)?])
    }

    pub(crate) fn settings(&self) -> NatsSettings {
        NatsSettings::new(self.address())
    }

    /// A client of the test's own, that reads what is really there.
    /// Its version, where that is one before 2.10: such clusters lose what they acknowledged.
    pub(crate) async fn outdated(&self) -> Option<String> {
        let version = async_nats::connect(self.address()).await.unwrap().server_info().version;
        ["2.8.", "2.9."].iter().any(|old| version.starts_with(old)).then_some(version)
    }

    pub(crate) async fn jetstream(&self) -> Context {
        jetstream::new(async_nats::connect(self.address()).await.unwrap())
    }

    /// A stream that takes a subject.
    pub(crate) async fn stream(&self, name: &str, subject: &str) -> stream::Stream {
        self.stream_of(stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            ..stream::Config::default()
        })
        .await
    }

    pub(crate) async fn stream_of(&self, config: stream::Config) -> stream::Stream {
        self.jetstream().await.get_or_create_stream(config).await.unwrap()
    }
}
