//! How a consumer stops: what is in work is finished or let go, what came is given back, and whoever hears that it
//! stopped may end the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::subscription::SubscriptionCapabilities;
use postrider_core::{BoxFuture, Delivery, Event, EventId, Fault, Result, Subscription};
use postrider_inbox::{Consumer, ConsumerOptions, Context, Health, LeasedHandler, Outcome};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::bench::{Bench, event};
use crate::consumer::{Effects, VISIBILITY};

/// A handler that works until it is let go on, and says when it started.
fn gated(started: &Arc<Notify>, gate: &Arc<Notify>) -> impl LeasedHandler + 'static {
    let (started, gate) = (Arc::clone(started), Arc::clone(gate));
    move |_: Arc<Event>, context: Context| {
        let (started, gate) = (Arc::clone(&started), Arc::clone(&gate));
        async move {
            started.notify_one();
            tokio::select! {
                () = gate.notified() => Ok(Outcome::Ack(Bytes::from_static(b"finished"))),
                () = context.cancelled() => Ok(Outcome::retry("told to stop")),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_finishes_what_is_in_work_and_gives_back_the_rest() {
    let bench = Bench::new();
    let (started, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    bench.publish(&[event(1, "a"), event(2, "b")]).await;
    let worker = Arc::new(bench.worker(gated(&started, &gate)));
    let options = ConsumerOptions { in_flight_max: 1, ..ConsumerOptions::default() };
    let consumer = bench.consumer(VISIBILITY).options(options).receiver(worker).start().unwrap();
    started.notified().await;
    consumer.drain(Duration::from_secs(10));
    consumer.reached(|_, health| *health == Health::Draining).await;
    gate.notify_one();
    consumer.stopped().await;
    let stats = consumer.stats();
    assert_eq!((stats.done, stats.returned, stats.held), (1, 1, 0), "{stats:?}");
    let effects = Effects::default();
    let next = Arc::new(bench.worker(effects.handler()));
    let next = bench.consumer(VISIBILITY).receiver(next).start().unwrap();
    next.reached(|stats, _| stats.done == 1).await;
    assert_eq!(effects.list(), [EventId::from_u128(2)], "at once, not after its visibility");
}

#[tokio::test(start_paused = true)]
async fn an_abort_tells_the_handler_and_another_consumer_goes_on() {
    let bench = Bench::new();
    let (started, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    bench.publish(&[event(1, "a")]).await;
    let worker = Arc::new(bench.worker(gated(&started, &gate)));
    let consumer = bench.consumer(VISIBILITY).receiver(worker).start().unwrap();
    started.notified().await;
    consumer.abort();
    consumer.stopped().await;
    let stats = consumer.stats();
    assert_eq!((stats.retried, stats.returned), (0, 1), "to stop when told is no failure");
    let effects = Effects::default();
    let next = Arc::new(bench.worker(effects.handler()));
    let next = bench.consumer(VISIBILITY).receiver(next).start().unwrap();
    next.reached(|stats, _| stats.done == 1).await;
}

/// A handler that does not listen is dropped after the grace, its message and its claim are free at
/// once, and the try does not count.
#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_stop_is_dropped() {
    let bench = Bench::new();
    let started = Arc::new(Notify::new());
    bench.publish(&[event(1, "a")]).await;
    let starts = Arc::clone(&started);
    let worker = bench.worker(move |_: Arc<Event>, _: Context| {
        let starts = Arc::clone(&starts);
        async move {
            starts.notify_one();
            std::future::pending().await
        }
    });
    let consumer = bench.consumer(VISIBILITY).receiver(Arc::new(worker)).start().unwrap();
    started.notified().await;
    consumer.drain(Duration::from_secs(1));
    consumer.stopped().await;
    assert_eq!((consumer.stats().returned, consumer.stats().retried), (1, 0));
    let effects = Effects::default();
    let next = Arc::new(bench.worker(effects.handler()));
    let next = bench.consumer(VISIBILITY).receiver(next).start().unwrap();
    let stats = next.reached(|stats, _| stats.done == 1).await;
    assert_eq!(stats.busy, 0, "the claim was let go");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_handle_stops_it() {
    let bench = Bench::new();
    let effects = Effects::default();
    let worker = Arc::new(bench.worker(effects.handler()));
    let weak = Arc::downgrade(&worker);
    drop(bench.consumer(VISIBILITY).receiver(worker).start().unwrap());
    while weak.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
    bench.publish(&[event(1, "a")]).await;
    // waits: virtual time passes
    sleep(Duration::from_secs(1)).await;
    assert!(effects.list().is_empty());
}

/// A broker that never delivers, and is slow to take back what it was about to deliver.
#[derive(Default)]
struct SlowToClose {
    is_closed: AtomicBool,
}

impl Subscription for SlowToClose {
    fn capabilities(&self) -> SubscriptionCapabilities {
        SubscriptionCapabilities::least(VISIBILITY)
    }
    fn receive(&self, _: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(std::future::pending())
    }
    fn ack<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::pending())
    }
    fn nack<'a>(&'a self, _: &'a Delivery, _: Duration, _: bool) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::pending())
    }
    fn reject<'a>(&'a self, _: &'a Delivery, _: &'a Fault) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::pending())
    }
    fn extend<'a>(&'a self, _: &'a Delivery, _: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(std::future::pending())
    }
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            // waits: virtual time passes
            sleep(Duration::from_secs(1)).await;
            self.is_closed.store(true, Ordering::SeqCst);
            Ok(())
        })
    }
}

/// Whoever hears that it stopped may end the process: by then the subscription is closed.
#[tokio::test(start_paused = true)]
async fn it_has_stopped_when_its_subscription_is_closed() {
    let (bench, subscription) = (Bench::new(), Arc::new(SlowToClose::default()));
    let worker = Arc::new(bench.worker(Effects::default().handler()));
    let consumer = Consumer::builder(Arc::clone(&subscription) as Arc<dyn Subscription>);
    let consumer = consumer.receiver(worker).start().unwrap();
    consumer.drain(Duration::from_secs(5));
    consumer.stopped().await;
    assert!(subscription.is_closed.load(Ordering::SeqCst));
}

/// A handler that does not stop is dropped with the engine, and its claim is let go before the engine says that it has stopped: who
/// ends the process then leaves none that would look like a try that ended with it.
#[tokio::test(start_paused = true)]
async fn who_stops_leaves_no_claim_behind() {
    let bench = Bench::new();
    let event = event(1, "a");
    bench.publish(&[Arc::clone(&event)]).await;
    let started = Arc::new(Notify::new());
    let begins = Arc::clone(&started);
    let worker = bench.worker(move |_: Arc<Event>, _: Context| {
        begins.notify_one();
        std::future::pending::<Result<Outcome>>()
    });
    let consumer = bench.consumer(VISIBILITY).receiver(Arc::new(worker)).start().unwrap();
    started.notified().await;
    consumer.drain(Duration::from_millis(20));
    consumer.stopped().await;
    let next = bench.orphan_claim(&event).await;
    assert_eq!((next.tries, next.lost), (1, 0));
}
