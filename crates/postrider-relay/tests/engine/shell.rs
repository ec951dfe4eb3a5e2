//! The shell: the same machine on real tasks and real time, started, drained, aborted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{BoxFuture, Broker, OutboxSource};
use postrider_relay::{Ending, Observer, Point, Relay, Settings, Target};
use postrider_testkit::fault::{FaultySource, Gate, Operation, SourceAction};
use postrider_testkit::memory::{MemoryBroker, MemoryClock, MemoryStore};

use crate::world::{event, everything};

fn store_and_broker() -> (MemoryStore, MemoryBroker) {
    let clock = MemoryClock::running();
    (MemoryStore::new(2, clock.clone()), MemoryBroker::new(clock))
}

fn builder(store: &MemoryStore, broker: &MemoryBroker) -> postrider_relay::RelayBuilder {
    let source: Arc<dyn OutboxSource> = Arc::new(store.clone());
    let broker: Arc<dyn Broker> = Arc::new(broker.clone());
    Relay::builder(source).destination(everything("all"), broker)
}

/// R028: the relay runs inside any process.
#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_relay_delivers_and_drains() {
    let (store, broker) = store_and_broker();
    store.commit((0..500).map(|n| event(n % 50, n)).collect()).unwrap();
    let relay = builder(&store, &broker).start().await.unwrap();
    let mut health = relay.health();
    health.wait_for(|health| health.delivered == 500).await.unwrap();
    store.commit(vec![event(1, 501)]).unwrap();
    health.wait_for(|health| health.delivered == 501).await.unwrap();
    relay.drain();
    let report = relay.stopped().await;
    assert_eq!(report.ending, Some(Ending::Drained));
    assert_eq!(broker.published().len(), 501);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_one_shot_relay_ends_by_itself() {
    let (store, broker) = store_and_broker();
    store.commit((0..500).map(|n| event(n % 50, n)).collect()).unwrap();
    let relay = builder(&store, &broker).target(Target::Once).start().await.unwrap();
    let report = relay.stopped().await;
    assert_eq!(report.ending, Some(Ending::Done));
    assert!(report.waiting.values().all(|counts| counts.total() == 0));
    assert_eq!(broker.published().len(), 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_relay_stops_at_once_and_loses_nothing() {
    let (store, broker) = store_and_broker();
    store.commit((0..500).map(|n| event(n % 50, n)).collect()).unwrap();
    let settings = Settings::with_lease(Duration::from_millis(300));
    let relay = builder(&store, &broker).settings(settings).start().await.unwrap();
    let mut health = relay.health();
    health.wait_for(|health| health.delivered > 0).await.unwrap();
    relay.abort();
    assert_eq!(relay.stopped().await.ending, None);
    let relay =
        builder(&store, &broker).settings(settings).target(Target::Once).start().await.unwrap();
    assert_eq!(relay.stopped().await.ending, Some(Ending::Done));
    let ids: std::collections::BTreeSet<_> =
        broker.published().iter().map(|published| published.event.id).collect();
    assert_eq!(ids.len(), 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_handle_drains() {
    let (store, broker) = store_and_broker();
    let relay = builder(&store, &broker).start().await.unwrap();
    let mut health = relay.health();
    drop(relay);
    // The sender goes with the shell.
    while health.changed().await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_contradict_each_other_are_refused() {
    let (store, broker) = store_and_broker();
    let settings = Settings { lease: Duration::from_secs(2), ..Settings::default() };
    let refused = builder(&store, &broker).settings(settings).start().await.unwrap_err();
    assert_eq!(refused.kind(), postrider_core::ErrorKind::Config);
}

/// The task of each fetch, in the order in which they ended.
#[derive(Default)]
struct Tasks(Mutex<Vec<Option<tokio::task::Id>>>);

impl Observer for Tasks {
    fn reached(&self, point: Point) -> BoxFuture<'_, ()> {
        if point == Point::AfterFetch {
            self.0.lock().expect("nobody panicked").push(tokio::task::try_id());
        }
        Box::pin(async {})
    }
}

/// R034: what the store is asked at one moment it hears at one moment, so that it can answer all of it at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_all_partitions_is_one_task() {
    const PARTITIONS: u16 = 16;
    let clock = MemoryClock::running();
    let (store, broker) =
        (MemoryStore::new(PARTITIONS, clock.clone()), MemoryBroker::new(clock.clone()));
    let tasks = Arc::new(Tasks::default());
    let relay = builder(&store, &broker).observer(Arc::clone(&tasks) as Arc<_>).start();
    let relay = relay.await.unwrap();
    let mut health = relay.health();
    health.wait_for(|health| health.state == postrider_relay::State::Empty).await.unwrap();
    tasks.0.lock().unwrap().clear();
    store.commit((0..200).map(|n| event(n, n)).collect()).unwrap();
    health.wait_for(|health| health.delivered == 200).await.unwrap();
    relay.drain();
    assert_eq!(relay.stopped().await.ending, Some(Ending::Drained));
    let seen = tasks.0.lock().unwrap().clone();
    let most = seen.iter().map(|task| seen.iter().filter(|other| *other == task).count()).max();
    assert_eq!(most, Some(usize::from(PARTITIONS)), "one task for all of them: {seen:?}");
}

/// INV-8: a store that never answers a question is asked again, and named meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_never_answers_is_named_and_asked_again() {
    let (store, broker) = store_and_broker();
    let source = FaultySource::new(Arc::new(store.clone()));
    let never = SourceAction::Hold(Gate::new());
    for operation in [Operation::Fetch, Operation::Load, Operation::Renew, Operation::Settle] {
        source.script(operation).then([never.clone()]);
    }
    store.commit((0..50).map(|n| event(n, n)).collect()).unwrap();
    let settings = Settings {
        store_deadline: Duration::from_millis(300),
        ..Settings::with_lease(Duration::from_secs(3))
    };
    let broker: Arc<dyn Broker> = Arc::new(broker.clone());
    let relay = Relay::builder(Arc::new(source))
        .destination(everything("all"), broker)
        .settings(settings)
        .start()
        .await
        .unwrap();
    let mut health = relay.health();
    let named = |health: &postrider_relay::Health| {
        health.blockers.iter().any(|blocker| blocker.to_string().contains("did not answer"))
    };
    health.wait_for(named).await.unwrap();
    health.wait_for(|health| health.delivered == 50 && health.window_rows == 0).await.unwrap();
    relay.drain();
    assert_eq!(relay.stopped().await.ending, Some(Ending::Drained));
}

/// INV-8: a relay without a destination would leave a fresh store without one for ever, and of two with one name the first
/// would get nothing: both are refused before anything is written.
#[tokio::test]
async fn a_relay_needs_destinations_and_one_of_each_name() {
    let (store, broker) = store_and_broker();
    let none = Relay::builder(Arc::new(store.clone())).start().await.unwrap_err();
    assert!(none.to_string().contains("no destination"), "{none}");
    let two = builder(&store, &broker).destination(everything("all"), Arc::new(broker.clone()));
    let two = two.start().await.unwrap_err();
    assert!(two.to_string().contains("two destinations have the name `all`"), "{two}");
    assert_eq!(store.destinations().await.unwrap().rows.len(), 0, "nothing was written");
}
