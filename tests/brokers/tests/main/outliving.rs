//! A handler that works on in a rebalance, for longer than that waits, and an inbox that two instances share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Event, EventId, HandlerName, NewEvent, Outcome, Outgoing, Result,
};
use postrider_inbox::{Consumer, ConsumerHandle, Context, Leased};
use postrider_kafka::{KafkaSettings, KafkaSubscription, SubscriptionSettings};
use postrider_sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::sync::watch;

use crate::kafka::Kafka;
use crate::server::Server as _;
use crate::stage::PATIENCE;

/// How long a rebalance waits for handlers.
const VISIBILITY: Duration = Duration::from_secs(2);
const EVENTS: u32 = 20;

#[derive(Default)]
struct Ledger {
    /// How often each event came to an instance.
    came: BTreeMap<(&'static str, EventId), u32>,
    /// How often each had its effect.
    effects: BTreeMap<EventId, u32>,
}

/// An instance, with what it was given.
struct Told {
    inner: Leased,
    name: &'static str,
    ledger: Arc<Mutex<Ledger>>,
}

impl Receiver for Told {
    fn handler(&self) -> &HandlerName {
        self.inner.handler()
    }

    fn counts_tries(&self) -> bool {
        self.inner.counts_tries()
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        *self.ledger.lock().unwrap().came.entry((self.name, event.id)).or_default() += 1;
        self.inner.receive(event, delivery)
    }

    fn at_rest(&self) -> BoxFuture<'_, ()> {
        self.inner.at_rest()
    }
}

/// An instance whose handlers come to an end when they are let.
async fn instance(
    name: &'static str,
    url: &str,
    inbox: &str,
    ledger: &Arc<Mutex<Ledger>>,
    let_go: watch::Receiver<bool>,
) -> ConsumerHandle {
    let effects = Arc::clone(ledger);
    let act = move |event: Arc<Event>, _: Context| {
        let (mut let_go, effects) = (let_go.clone(), Arc::clone(&effects));
        async move {
            let_go.wait_for(|let_go| *let_go).await.unwrap();
            *effects.lock().unwrap().effects.entry(event.id).or_default() += 1;
            Ok(postrider_inbox::Outcome::done())
        }
    };
    let store = Arc::new(SqliteStore::new(inbox).unwrap());
    let inner = Leased::builder(HandlerName::new("ledger").unwrap(), store, act).build().unwrap();
    let mut settings = SubscriptionSettings::new("orders", "ledger");
    (settings.visibility, settings.session) = (VISIBILITY, VISIBILITY);
    let subscription = KafkaSubscription::open(KafkaSettings::new(url), settings).await.unwrap();
    let receiver = Arc::new(Told { inner, name, ledger: Arc::clone(ledger) });
    Consumer::builder(Arc::new(subscription)).receiver(receiver).start().unwrap()
}

/// F14, F39, INV-4: partitions move to another instance while the handlers of the first are at work, and go on for longer
/// than the rebalance waits. The other one gets their events, and asks the inbox; each event has one effect, and the group
/// has settled everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_may_outlive_a_rebalance() {
    let Some(kafka) = Kafka::start().await else { return };
    let folder = TempDir::with_prefix("postrider-outliving-").unwrap();
    let inbox = folder.path().join("inbox.db").display().to_string();
    postrider_sqlite::init(&inbox).unwrap();
    let events: Vec<Outgoing> = (0..EVENTS)
        .map(|n| {
            let new = NewEvent::new("order", n.to_string(), "order.changed").source("/shop");
            let new = new.json(&n).unwrap();
            Outgoing::new(Arc::new(new.event().clone()), "orders")
        })
        .collect();
    let sent = kafka.broker().publish(&events).await.unwrap();
    assert_eq!(sent, vec![Outcome::Acked; EVENTS as usize]);
    let (ledger, (let_go, heard)) = (Arc::<Mutex<Ledger>>::default(), watch::channel(false));
    let url = kafka.url();
    let open = |name| instance(name, &url, &inbox, &ledger, heard.clone());
    let first = open("first").await;
    first.reached(|stats, _| stats.in_work == u64::from(EVENTS)).await;
    let second = open("second").await;
    second.reached(|stats, _| stats.received > 0).await;
    let_go.send_replace(true);
    let begun = Instant::now();
    while !kafka.is_settled().await {
        assert!(begun.elapsed() < PATIENCE, "{}", kafka.standing().await);
        // waits: the server tells nobody what is committed
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (refused, absorbed) = (first.stats().settle_failed, second.stats().duplicates);
    for handle in [first, second] {
        handle.drain(PATIENCE);
        handle.stopped().await;
    }
    let ledger = ledger.lock().unwrap();
    let twice = |event: &&Outgoing| {
        let came = |name| ledger.came.contains_key(&(name, event.event.id));
        came("first") && came("second")
    };
    let both = events.iter().filter(twice).count();
    eprintln!(
        "{both} events came to both; {refused} settlements were refused, {absorbed} duplicates absorbed"
    );
    assert!(both > 0 && refused > 0, "{both} came to both, {refused} were refused");
    assert_eq!(ledger.effects.len(), EVENTS as usize);
    assert!(ledger.effects.values().all(|times| *times == 1), "{:?}", ledger.effects);
}
