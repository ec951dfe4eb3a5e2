//! Servers: one that most tests share, each with topics of its own, and one of a test's own where it is killed,
//! stopped, or set up in another way.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use postrider_core::EventId;
use postrider_kafka::KafkaSettings;
use postrider_testkit::kafka::KafkaServer;
pub(crate) use postrider_testkit::kafka::Stored;
use tokio::task::spawn_blocking;

pub(crate) struct Server(KafkaServer);

impl Deref for Server {
    type Target = KafkaServer;

    fn deref(&self) -> &KafkaServer {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut KafkaServer {
        &mut self.0
    }
}

/// Why there are no servers here.
pub(crate) fn unavailable() -> Option<String> {
    let reason = postrider_testkit::kafka::artifacts().err()?;
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    Some(reason)
}

impl Server {
    /// One of the test's own; `None`, with the reason printed, where there is none to be had.
    pub(crate) async fn own() -> Option<Server> {
        Server::with("", &[]).await
    }

    /// One of the test's own, with more properties and users.
    pub(crate) async fn with(properties: &str, users: &[&'static str]) -> Option<Server> {
        if let Some(reason) = unavailable() {
            println!("skipped: a server of Kafka: {reason}");
            return None;
        }
        let (properties, users) = (properties.to_owned(), users.to_vec());
        let server = spawn_blocking(move || KafkaServer::start(&properties, &users)).await;
        Some(Server(server.unwrap().unwrap()))
    }

    /// One of the test's own, and two more of its cluster, with the numbers 2 and 3. It is their controller.
    pub(crate) async fn with_two_more() -> Option<(Server, Vec<KafkaServer>)> {
        let first = Server::own().await?;
        let join = move || {
            let others = (2..4).map(|number| first.join(number).unwrap()).collect();
            (first, others)
        };
        Some(spawn_blocking(join).await.unwrap())
    }

    /// The one that tests share while any of them runs.
    pub(crate) async fn shared() -> Option<Arc<Server>> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        if let Some(reason) = unavailable() {
            println!("skipped: a server of Kafka: {reason}");
            return None;
        }
        let find = || {
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            shared.upgrade().unwrap_or_else(|| {
                let server = Arc::new(Server(KafkaServer::start("", &[]).unwrap()));
                *shared = Arc::downgrade(&server);
                server
            })
        };
        Some(spawn_blocking(find).await.unwrap())
    }

    /// With a deadline that a busy machine keeps. What has to find out soon that servers are away says how soon.
    pub(crate) fn settings(&self) -> KafkaSettings {
        let mut settings = KafkaSettings::new(&self.address());
        settings.deadline = Duration::from_secs(30);
        settings
    }

    /// With the deadline that nobody set.
    pub(crate) fn usual_settings(&self) -> KafkaSettings {
        KafkaSettings::new(&self.address())
    }

    /// A topic of a name that no other test has.
    pub(crate) async fn topic(
        &self,
        name: &str,
        partitions: i32,
        config: &[(&str, &str)],
    ) -> String {
        let name = unique(name);
        self.create(&name, partitions, config).await;
        name
    }

    pub(crate) async fn ids(&self, topic: &str) -> Vec<EventId> {
        self.stored(topic).await.iter().map(Stored::id).collect()
    }
}

/// A name that no other test has.
pub(crate) fn unique(name: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}
