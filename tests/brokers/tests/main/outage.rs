//! An endpoint that is away for long, at NATS, which counts each delivery, also of what was given back.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::inbox::{DELIVERIES_MAX, Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Event, EventId, Format, HandlerName, Marks, Outgoing, Result,
};
use postrider_inbox::{Consumer, ConsumerHandle, Context, Health, Leased, Outcome, Stats};
use postrider_nats::{NatsSettings, NatsSubscription, SubscriptionSettings};
use postrider_testkit::memory::{MemoryClock, MemoryStore};

use crate::nats::Nats;
use crate::server::Server;

/// A receiver beside which stands how often the broker says that it has delivered.
struct Watched {
    inner: Leased,
    most: AtomicU32,
    is_believed: bool,
}

impl Receiver for Watched {
    fn handler(&self) -> &HandlerName {
        self.inner.handler()
    }

    fn counts_tries(&self) -> bool {
        self.is_believed && self.inner.counts_tries()
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        self.most.fetch_max(delivery.count, Ordering::Relaxed);
        self.inner.receive(event, delivery)
    }
}

/// A consumer as a process of its own, whose endpoint answers what `outcomes` say, and then that all is well.
async fn process(
    server: &Nats,
    store: &MemoryStore,
    outcomes: Vec<Outcome>,
    is_believed: bool,
) -> (ConsumerHandle, Arc<Watched>) {
    let outcomes = Arc::new(Mutex::new(outcomes));
    let act = move |_: Arc<Event>, _: Context| {
        let outcome = outcomes.lock().unwrap().pop().unwrap_or_else(Outcome::done);
        async move { Ok(outcome) }
    };
    let name = HandlerName::new("ledger").unwrap();
    let inner = Leased::builder(name, Arc::new(store.clone()), act).build().unwrap();
    let watched = Arc::new(Watched { inner, most: AtomicU32::new(0), is_believed });
    let receiver = Arc::clone(&watched) as Arc<dyn Receiver>;
    let settings = SubscriptionSettings::new("orders", "ledger");
    let opened = NatsSubscription::open(NatsSettings::new(server.url()), settings).await.unwrap();
    (Consumer::builder(Arc::new(opened)).receiver(receiver).start().unwrap(), watched)
}

/// How the second process ends, after an outage of the endpoint that the first one met so often, and one failure.
async fn after_an_outage(is_believed: bool) -> Option<(Stats, u32)> {
    let server = Nats::start().await?;
    let mut event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    let outgoing = Outgoing {
        event: Arc::new(event),
        topic: Arc::from("orders"),
        format: Format::default(),
        layout: None,
        marks: Marks::default(),
        attempt: 1,
    };
    server.broker().publish(&[outgoing]).await.unwrap();
    let store = MemoryStore::new(1, MemoryClock::running());
    let away = vec![Outcome::Later { after: Duration::ZERO }; 1_000];
    let (first, _) = process(&server, &store, away, true).await;
    first.reached(|stats: &Stats, _: &Health| stats.busy > u64::from(DELIVERIES_MAX)).await;
    first.drain(Duration::from_secs(5));
    first.stopped().await;
    let (second, watched) =
        process(&server, &store, vec![Outcome::retry("not today")], is_believed).await;
    let ended = |stats: &Stats, _: &Health| stats.done + stats.rejected > 0;
    let stats = tokio::time::timeout(Duration::from_secs(30), second.reached(ended)).await.unwrap();
    Some((stats, watched.most.load(Ordering::Relaxed)))
}

/// INV-1, R079: what an endpoint that was away has cost in deliveries is held against no event by a process that
/// knows nothing of it; nor is a failure after that the last one.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_endpoint_and_a_restart_kill_no_event() {
    let Some((stats, most)) = after_an_outage(true).await else { return };
    assert_eq!((stats.done, stats.retried, stats.rejected), (1, 1, 0), "{stats:?}");
    assert!(most > DELIVERIES_MAX, "the control: {most} deliveries by the server's count");
}

/// The control: by the server's count alone the event is dead, unasked.
#[tokio::test(flavor = "multi_thread")]
async fn by_the_brokers_count_alone_an_outage_and_a_restart_kill_an_event() {
    let Some((stats, _)) = after_an_outage(false).await else { return };
    assert_eq!((stats.done, stats.rejected), (0, 1), "{stats:?}");
}
