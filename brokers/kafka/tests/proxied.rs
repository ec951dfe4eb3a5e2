//! A network between us and the server that loses answers, delays them, and leaves connections half open.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use postrider_core::{Broker, ErrorKind, EventId, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSettings, KafkaSubscription, SubscriptionSettings};
use postrider_testkit::carry::{event, until_acked};
use postrider_testkit::kafka::{KafkaServer, Stored};
use postrider_testkit::own_server::free_ports;
use postrider_testkit::proxy::{Proxy, Traffic};
use postrider_testkit::wire::{self, DEADLINE, Wired};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::server::unavailable;
use crate::subscribing::{ids, receive};

const TOPIC: &str = "orders";

/// A server that the broker reaches by a proxy alone, and a test's own client directly.
struct Kafka {
    server: KafkaServer,
    proxy: Proxy,
}

impl Kafka {
    async fn start() -> Option<Kafka> {
        if let Some(reason) = unavailable() {
            println!("skipped: a server of Kafka: {reason}");
            return None;
        }
        let port = free_ports(1).unwrap()[0];
        let proxy = Proxy::to(port).await;
        let advertised = proxy.port;
        let server = spawn_blocking(move || KafkaServer::behind(port, advertised)).await;
        let server = server.unwrap().unwrap();
        server.create(TOPIC, 1, &[]).await;
        Some(Kafka { server, proxy })
    }

    fn settings(&self) -> KafkaSettings {
        let mut settings = KafkaSettings::new(&format!("127.0.0.1:{}", self.proxy.port));
        settings.deadline = DEADLINE;
        settings
    }
}

impl Wired for Kafka {
    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::new(KafkaBroker::new(self.settings()).unwrap())
    }

    fn topic(&self) -> &str {
        TOPIC
    }

    async fn count(&self) -> u64 {
        self.server.count(TOPIC).await.unsigned_abs()
    }

    async fn ids(&self) -> Vec<EventId> {
        self.server.stored(TOPIC).await.iter().map(Stored::id).collect()
    }
}

/// F9, R061: a lost answer counts as not published.
#[tokio::test]
async fn a_lost_answer_counts_as_not_published() {
    let Some(kafka) = Kafka::start().await else { return };
    wire::a_lost_answer_counts_as_not_published(&kafka).await;
}

/// F8: an answer that is late counts within the deadline.
#[tokio::test]
async fn a_late_answer_counts_within_the_deadline() {
    let Some(kafka) = Kafka::start().await else { return };
    wire::a_late_answer_counts_within_the_deadline(&kafka).await;
}

/// F8: answers that all take longer than a call has for finding its topic: what it asks in vain is there for the next one.
#[tokio::test]
async fn a_topic_is_found_although_each_answer_is_late() {
    let Some(kafka) = Kafka::start().await else { return };
    kafka.proxy.set(Traffic::AnswersLate(DEADLINE / 2));
    until_acked(&*kafka.broker(), TOPIC, &event("1", 1, 10)).await;
}

/// F5, F9, INV-3: the way is cut and opened again and again in mid-batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_way_that_is_cut_keeps_the_order() {
    let Some(kafka) = Kafka::start().await else { return };
    wire::a_way_that_is_cut_keeps_the_order(&kafka, 6).await;
}

/// F6: a connection with nobody behind it is left.
#[tokio::test]
async fn a_half_open_connection_is_left() {
    let Some(kafka) = Kafka::start().await else { return };
    wire::a_half_open_connection_is_left(&kafka).await;
}

/// F6, F10: a consumer whose connections are half open comes back to what it did not settle, and what it settled
/// meanwhile is committed, or comes again.
#[tokio::test]
async fn a_consumer_outlives_a_half_open_connection() {
    let Some(kafka) = Kafka::start().await else { return };
    let mut settings = SubscriptionSettings::new(TOPIC, "billing");
    settings.session = Duration::from_secs(2);
    let mut connection = kafka.settings();
    connection.deadline = DEADLINE * 10;
    let subscription = KafkaSubscription::open(connection, settings).await.unwrap();
    let broker = KafkaBroker::new(KafkaSettings::new(&kafka.server.address())).unwrap();
    let sent = [event("1", 1, 10), event("2", 2, 10)];
    until_acked(&broker, TOPIC, &sent[0]).await;
    let deliveries = subscription.receive(1).await.unwrap();
    kafka.proxy.set(Traffic::Cut);
    // It is settled here; that it is committed, nobody can be told.
    subscription.ack(&deliveries[0]).await.unwrap();
    until_acked(&broker, TOPIC, &sent[1]).await;
    // waits: for longer than a member may be silent
    tokio::time::sleep(DEADLINE * 3).await;
    kafka.proxy.set(Traffic::Open);
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(60), "the next one does not come");
        let came = tokio::time::timeout(DEADLINE * 10, subscription.receive(10)).await;
        let Ok(Ok(deliveries)) = came else { continue };
        for delivery in &deliveries {
            // What went to nobody meanwhile may have been taken from us.
            let _ = subscription.ack(delivery).await;
        }
        if deliveries.iter().any(|it| it.event.as_ref().unwrap().id == sent[1].id) {
            return;
        }
    }
}

/// F6: closing waits for nobody without an end, and what was settled comes again where it could not be committed.
#[tokio::test]
async fn a_consumer_that_hears_nothing_is_closed_in_time() {
    let Some(kafka) = Kafka::start().await else { return };
    let mut connection = kafka.settings();
    connection.deadline = DEADLINE * 10;
    let settings = SubscriptionSettings::new(TOPIC, "billing");
    let subscription = KafkaSubscription::open(connection, settings).await.unwrap();
    let broker = KafkaBroker::new(KafkaSettings::new(&kafka.server.address())).unwrap();
    until_acked(&broker, TOPIC, &event("1", 1, 10)).await;
    let deliveries = subscription.receive(1).await.unwrap();
    kafka.proxy.set(Traffic::Cut);
    subscription.ack(&deliveries[0]).await.unwrap();
    let begun = Instant::now();
    let error = subscription.close().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(begun.elapsed() < DEADLINE * 20, "{:?}", begun.elapsed());
    kafka.proxy.set(Traffic::Open);
}

/// How a request begins that commits offsets.
const COMMIT: [u8; 2] = [0, 8];

/// Carries a connection request by request, but for so many that commit.
async fn without_commits(
    mut near: TcpStream,
    port: u16,
    swallows: Arc<AtomicU32>,
) -> io::Result<()> {
    let mut far = TcpStream::connect(("127.0.0.1", port)).await?;
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.split(), far.split());
    let requests = async {
        loop {
            let bytes = near_in.read_u32().await?;
            let mut request = vec![0; bytes as usize];
            near_in.read_exact(&mut request).await?;
            let fewer = |left: u32| left.checked_sub(1);
            let (set, order) = (&swallows, Ordering::SeqCst);
            if request.starts_with(&COMMIT) && set.fetch_update(order, order, fewer).is_ok() {
                continue;
            }
            far_out.write_u32(bytes).await?;
            far_out.write_all(&request).await?;
        }
    };
    tokio::select! {
        ended = requests => ended,
        ended = copy(&mut far_in, &mut near_out) => ended.map(drop),
    }
}

/// F6, R080: servers that answer everything and never that a group's beginning is written down are left with the deadline;
/// the group begins as soon as they do, with nothing of before and with all that came since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beginning_that_is_never_written_down_is_not_waited_for() {
    if let Some(reason) = unavailable() {
        println!("skipped: a server of Kafka: {reason}");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, advertised) = (free_ports(1).unwrap()[0], listener.local_addr().unwrap().port());
    let swallows = Arc::new(AtomicU32::new(1));
    tokio::spawn({
        let swallows = Arc::clone(&swallows);
        async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(without_commits(near, port, Arc::clone(&swallows)));
            }
        }
    });
    let server = spawn_blocking(move || KafkaServer::behind(port, advertised)).await;
    let server = server.unwrap().unwrap();
    server.create(TOPIC, 1, &[]).await;
    let broker = KafkaBroker::new(KafkaSettings::new(&server.address())).unwrap();
    until_acked(&broker, TOPIC, &event("1", 1, 10)).await;
    let mut connection = KafkaSettings::new(&format!("127.0.0.1:{advertised}"));
    connection.deadline = DEADLINE * 5;
    let mut settings = SubscriptionSettings::new(TOPIC, "billing");
    settings.from_now = true;
    let open = || KafkaSubscription::open(connection.clone(), settings.clone());
    let refused = timeout(DEADLINE * 40, open()).await.expect("its deadline ends it").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("where the group begins"), "{refused}");
    assert_eq!(swallows.load(Ordering::SeqCst), 0, "it came to that");
    let opened = open().await.unwrap();
    let since = event("2", 1, 10);
    until_acked(&broker, TOPIC, &since).await;
    assert_eq!(ids(&receive(&opened, 1).await), [since.id]);
}
