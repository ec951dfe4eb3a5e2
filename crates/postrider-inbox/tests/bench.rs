//! The bench: memory store and broker in virtual time, a payment provider, and faults of the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::{
    BoxFuture, Broker, Claim, ClaimLease, ClaimRequest, Error, ErrorKind, Event, EventId, Format,
    HandlerName, InboxStore, Outgoing, Payload, Result, Tried,
};
use postrider_inbox::{Consumer, ConsumerBuilder, Leased, LeasedHandler};
use postrider_testkit::memory::{MemoryBroker, MemoryClock, MemoryStore};

pub(crate) const TOPIC: &str = "orders";
pub(crate) const GROUP: &str = "billing";
pub(crate) const LEASE: Duration = Duration::from_secs(3);

pub(crate) struct Bench {
    pub(crate) clock: MemoryClock,
    pub(crate) store: Arc<Faulty>,
    pub(crate) broker: MemoryBroker,
    pub(crate) provider: Arc<Provider>,
}

impl Bench {
    /// Everything on one clock, which follows Tokio's paused one.
    pub(crate) fn new() -> Bench {
        let clock = MemoryClock::new();
        let follows = clock.clone();
        tokio::spawn(async move {
            const STEP: Duration = Duration::from_millis(10);
            loop {
                // waits: virtual time passes in steps
                tokio::time::sleep(STEP).await;
                follows.advance(STEP);
            }
        });
        Bench::on(clock)
    }

    /// Everything on the machine's clock.
    pub(crate) fn in_real_time() -> Bench {
        Bench::on(MemoryClock::running())
    }

    fn on(clock: MemoryClock) -> Bench {
        Bench {
            store: Arc::new(Faulty::new(MemoryStore::new(1, clock.clone()))),
            broker: MemoryBroker::new(clock.clone()),
            provider: Arc::default(),
            clock,
        }
    }

    /// A worker: a handler behind the leased inbox, as in a process of its own.
    pub(crate) fn worker(&self, handler: impl LeasedHandler + 'static) -> Leased {
        self.worker_on(self.inbox(), handler)
    }

    /// A worker with another view of the store.
    pub(crate) fn worker_on(
        &self,
        store: Arc<dyn InboxStore>,
        handler: impl LeasedHandler + 'static,
    ) -> Leased {
        Leased::builder(handler_name(), store, handler)
            .lease(LEASE)
            .clock(Arc::new(self.clock.clone()))
            .build()
            .unwrap()
    }

    pub(crate) fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::clone(&self.store) as Arc<dyn InboxStore>
    }

    /// Another way to the same rows, with faults of its own.
    pub(crate) fn other_view(&self) -> Arc<Faulty> {
        Arc::new(Faulty::new(self.store.inner.clone()))
    }

    pub(crate) fn consumer(&self, visibility: Duration) -> ConsumerBuilder {
        let subscription = self.broker.subscribe(TOPIC, GROUP, visibility);
        Consumer::builder(Arc::new(subscription)).clock(Arc::new(self.clock.clone())).seed(7)
    }

    pub(crate) async fn publish(&self, events: &[Arc<Event>]) {
        let outgoing = |event: &Arc<Event>| Outgoing {
            event: Arc::clone(event),
            topic: Arc::from(TOPIC),
            format: Format::default(),
            layout: None,
            marks: postrider_core::Marks::default(),
            attempt: 1,
        };
        let batch: Vec<Outgoing> = events.iter().map(outgoing).collect();
        self.broker.publish(&batch).await.unwrap();
    }

    pub(crate) fn dead_letters(&self) -> Vec<String> {
        let dead = self.broker.dead_letters(TOPIC, GROUP);
        dead.into_iter().map(|(_, fault)| fault.detail).collect()
    }

    /// A claim whose owner died at once.
    pub(crate) async fn orphan_claim(&self, event: &Event) -> ClaimLease {
        let request = ClaimRequest::new(event, &handler_name(), LEASE).unwrap();
        match self.store.claim(&request).await.unwrap() {
            Claim::Claimed(lease) => lease,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn handler_name() -> HandlerName {
    HandlerName::new("billing").unwrap()
}

pub(crate) fn event(id: u128, order: &str) -> Arc<Event> {
    let mut event = Event::new(EventId::from_u128(id), "order", order, "order.placed");
    event.source = Arc::from("/shop");
    event.payload = Payload::json(format!("{{\"order\":\"{order}\"}}")).unwrap();
    Arc::new(event)
}

/// A payment provider that honours idempotency keys, as real ones do.
#[derive(Debug, Default)]
pub(crate) struct Provider {
    calls: Mutex<BTreeMap<String, u32>>,
}

impl Provider {
    pub(crate) fn charge(&self, key: &str) -> Bytes {
        *self.calls.lock().unwrap().entry(key.to_owned()).or_default() += 1;
        Bytes::from(format!("receipt of {key}"))
    }

    /// Effects: one for each key, however often it was asked.
    pub(crate) fn charged(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// How often it was asked, in all.
    pub(crate) fn asked(&self) -> u32 {
        self.calls.lock().unwrap().values().sum()
    }
}

/// The memory store with faults.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: MemoryStore,
    /// Heartbeats are not answered well: the network is cut, the process is paused.
    pub(crate) deaf: AtomicBool,
    /// Heartbeats are answered well and do nothing: the owner never learns that it lost its claim.
    pub(crate) lying: AtomicBool,
    /// Nothing is answered well.
    pub(crate) down: AtomicBool,
    /// So many step results are lost on their way to the store.
    pub(crate) steps_lost: AtomicU32,
    pub(crate) claims: AtomicU32,
}

fn gone(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, operation).message("connection refused")
}

impl Faulty {
    fn new(inner: MemoryStore) -> Faulty {
        Faulty {
            inner,
            deaf: AtomicBool::new(false),
            lying: AtomicBool::new(false),
            down: AtomicBool::new(false),
            steps_lost: AtomicU32::new(0),
            claims: AtomicU32::new(0),
        }
    }

    async fn answer<T>(&self, name: &'static str, call: BoxFuture<'_, Result<T>>) -> Result<T> {
        if self.down.load(Ordering::SeqCst) {
            return Err(gone(name));
        }
        call.await
    }
}

impl InboxStore for Faulty {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        self.claims.fetch_add(1, Ordering::SeqCst);
        Box::pin(self.answer("claim", self.inner.claim(request)))
    }

    fn heartbeat<'a>(&'a self, lease: &'a ClaimLease, by: Duration) -> BoxFuture<'a, Result<()>> {
        if self.deaf.load(Ordering::SeqCst) {
            return Box::pin(async { Err(gone("heartbeat")) });
        }
        if self.lying.load(Ordering::SeqCst) {
            return Box::pin(async { Ok(()) });
        }
        Box::pin(self.answer("heartbeat", self.inner.heartbeat(lease, by)))
    }

    fn complete<'a>(
        &'a self,
        lease: &'a ClaimLease,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.answer("complete", self.inner.complete(lease, result)))
    }

    /// It takes a moment, as over a network.
    fn release<'a>(&'a self, lease: &'a ClaimLease, tried: Tried) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            // waits: what a way to a store takes
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.answer("release", self.inner.release(lease, tried)).await
        })
    }

    fn step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(self.answer("step", self.inner.step(lease, step)))
    }

    fn complete_step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        let less = |left: u32| left.checked_sub(1);
        if self.steps_lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return Box::pin(async { Err(gone("complete step")) });
        }
        Box::pin(self.answer("complete step", self.inner.complete_step(lease, step, result)))
    }

    fn record_horizon<'a>(
        &'a self,
        handler: &'a HandlerName,
        horizon: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.answer("record horizon", self.inner.record_horizon(handler, horizon)))
    }

    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.answer("purge", self.inner.purge(older_than, rows_max)))
    }
}
