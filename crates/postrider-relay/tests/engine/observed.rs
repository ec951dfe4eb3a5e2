//! The shell's observers: several at once, each told of points and notices; and an archive, with a
//! process that dies between its answer and the deletion.

#![allow(clippy::unwrap_used, reason = "part of a test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{Archive, BoxFuture, Broker, Event, OutboxSource, Result};
use postrider_relay::{
    Ending, Notice, Observer, Observers, Point, Relay, RelayBuilder, Retention, Settings,
};
use postrider_testkit::fault::TestSignal;
use postrider_testkit::memory::{MemoryArchive, MemoryBroker, MemoryClock, MemoryStore};

use crate::world::{event, everything};

/// Collects what it hears.
#[derive(Default)]
struct Ear(Mutex<Vec<Notice>>);

impl Observer for Ear {
    fn noted(&self, notice: &Notice) {
        self.0.lock().unwrap().push(notice.clone());
    }
}

fn hears(ear: &Arc<Ear>) -> Arc<dyn Observer> {
    Arc::<Ear>::clone(ear)
}

/// Stops for ever at a point.
struct Hang(Point, TestSignal);

impl Observer for Hang {
    fn reached(&self, point: Point) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if point == self.0 {
                self.1.happened();
                std::future::pending::<()>().await;
            }
        })
    }
}

/// No relay loses its lease, whatever the machine: nobody waits for it to end.
const LEASE: Duration = Duration::from_secs(30);

fn builder(store: &MemoryStore, broker: &MemoryBroker, lease: Duration) -> RelayBuilder {
    let source: Arc<dyn OutboxSource> = Arc::new(store.clone());
    let broker: Arc<dyn Broker> = Arc::new(broker.clone());
    let retention = Retention::of(Duration::from_millis(1));
    let retention = Retention { every: Duration::from_millis(20), ..retention };
    let settings = Settings { retention: Some(retention), ..Settings::with_lease(lease) };
    Relay::builder(source).destination(everything("all"), broker).settings(settings)
}

/// R100: each of several observers hears of each delivery, with the time since its row was written.
#[tokio::test(flavor = "multi_thread")]
async fn every_observer_hears_of_every_delivery() {
    let clock = MemoryClock::running();
    let (store, broker) = (MemoryStore::new(1, clock.clone()), MemoryBroker::new(clock));
    let (first, second) = (Arc::new(Ear::default()), Arc::new(Ear::default()));
    let observers = Observers::new().and(hears(&first)).and(hears(&second));
    store.commit((0..20).map(|n| event(n, n)).collect()).unwrap();
    let relay =
        builder(&store, &broker, LEASE).observer(Arc::new(observers)).start().await.unwrap();
    relay.health().wait_for(|health| health.retired == 20).await.unwrap();
    relay.drain();
    assert_eq!(relay.stopped().await.ending, Some(Ending::Drained));
    for ear in [first, second] {
        let heard = ear.0.lock().unwrap();
        let lags: Vec<_> = heard
            .iter()
            .filter_map(|notice| match notice {
                Notice::Delivered { lag, .. } => Some(lag.is_some()),
                _ => None,
            })
            .collect();
        assert_eq!(lags, [true; 20], "the shell has a wall clock");
        let retired: u32 = heard
            .iter()
            .map(|notice| match notice {
                Notice::Retired { rows, .. } => *rows,
                _ => 0,
            })
            .sum();
        assert_eq!(retired, 20);
    }
}

/// R102: a process that dies when the archive has taken what is about to go has deleted nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_after_the_archive_has_deleted_nothing() {
    let clock = MemoryClock::running();
    let (store, broker) = (MemoryStore::new(1, clock.clone()), MemoryBroker::new(clock));
    let archive = MemoryArchive::new();
    // The second relay waits until the first one's has ended.
    let lease = Duration::from_secs(2);
    store.commit((0..20).map(|n| event(n, n)).collect()).unwrap();
    let reached = TestSignal::default();
    let waits = reached.wait();
    let hang = Arc::new(Hang(Point::AfterArchive, reached.clone()));
    let relay = builder(&store, &broker, lease)
        .archive(Arc::new(archive.clone()))
        .observer(hang)
        .start()
        .await
        .unwrap();
    waits.once().await;
    relay.abort();
    relay.stopped().await;
    assert!(!archive.events().is_empty() && store.retired().is_empty());
    let relay =
        builder(&store, &broker, lease).archive(Arc::new(archive.clone())).start().await.unwrap();
    relay.health().wait_for(|health| health.retired == 20).await.unwrap();
    relay.drain();
    relay.stopped().await;
    let archived: std::collections::BTreeSet<_> =
        archive.events().iter().map(|event| event.id).collect();
    assert!(store.retired().iter().all(|id| archived.contains(id)));
    assert!(archive.events().len() > 20, "what was archived first came again");
}

/// While it takes what is to go, more becomes as old.
struct Slow(MemoryArchive, MemoryStore);

impl Archive for Slow {
    fn append<'a>(&'a self, events: &'a [Arc<Event>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let first = self.0.events().is_empty();
            self.0.append(events).await?;
            if first {
                self.1.commit((100..110).map(|n| event(n, n)).collect())?;
                let settled = || {
                    let settled = self.1.settled(&everything("all").id);
                    let rows = self.1.committed();
                    rows[20..].iter().all(|row| settled.iter().any(|(other, _)| *other == row.row))
                };
                while !settled() {
                    tokio::time::sleep(Duration::from_millis(5)).await; // waits: for the relay
                }
                // Every destination has passed them by then: one settlement serves all.
            }
            Ok(())
        })
    }
}

/// R102: what became retirable while the archive took the rest is not deleted before it has been
/// archived as well.
#[tokio::test(flavor = "multi_thread")]
async fn what_became_old_meanwhile_is_archived_first() {
    let clock = MemoryClock::running();
    let (store, broker) = (MemoryStore::new(1, clock.clone()), MemoryBroker::new(clock));
    let archive = MemoryArchive::new();
    store.commit((0..20).map(|n| event(n, n)).collect()).unwrap();
    let slow = Arc::new(Slow(archive.clone(), store.clone()));
    let relay = builder(&store, &broker, LEASE).archive(slow).start().await.unwrap();
    relay.health().wait_for(|health| health.retired == 30).await.unwrap();
    relay.drain();
    relay.stopped().await;
    let archived: std::collections::BTreeSet<_> =
        archive.events().iter().map(|event| event.id).collect();
    assert_eq!(archived.len(), 30);
    assert!(store.retired().iter().all(|id| archived.contains(id)));
}

/// An archive that fails keeps everything, and is named.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_fails_is_named_and_nothing_is_deleted() {
    let clock = MemoryClock::running();
    let (store, broker) = (MemoryStore::new(1, clock.clone()), MemoryBroker::new(clock));
    let archive = MemoryArchive::new();
    archive.set_failing(true);
    store.commit((0..20).map(|n| event(n, n)).collect()).unwrap();
    let relay =
        builder(&store, &broker, LEASE).archive(Arc::new(archive.clone())).start().await.unwrap();
    let mut health = relay.health();
    let named = |health: &postrider_relay::Health| {
        health.blockers.iter().any(|blocker| blocker.to_string().contains("archive"))
    };
    health.wait_for(named).await.unwrap();
    assert!(store.retired().is_empty());
    archive.set_failing(false);
    health.wait_for(|health| health.retired == 20 && health.blockers.is_empty()).await.unwrap();
    relay.drain();
    relay.stopped().await;
    assert_eq!((archive.events().len(), store.retired().len()), (20, 20));
}
