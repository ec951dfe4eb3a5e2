//! The consumer as a whole: broker, engine, inbox, and what goes wrong between them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Event, EventId, HandlerName, Result, RetryPolicy,
};
use postrider_inbox::{ConsumerOptions, Context, Health, LeasedHandler, Outcome};
use tokio::time::sleep;

use crate::bench::{Bench, GROUP, LEASE, TOPIC, event, handler_name};

pub(crate) const VISIBILITY: Duration = Duration::from_secs(30);

/// Which events were acted on, in order.
#[derive(Clone, Default)]
pub(crate) struct Effects(Arc<Mutex<Vec<EventId>>>);

impl Effects {
    fn add(&self, event: &Event) {
        self.0.lock().unwrap().push(event.id);
    }
    pub(crate) fn list(&self) -> Vec<EventId> {
        self.0.lock().unwrap().clone()
    }
    pub(crate) fn handler(&self) -> impl LeasedHandler + 'static {
        let effects = self.clone();
        move |event: Arc<Event>, _: Context| {
            let effects = effects.clone();
            async move {
                effects.add(&event);
                Ok(Outcome::done())
            }
        }
    }
}

/// The negative control: a handler without an inbox.
struct Bare(HandlerName, Effects);

impl Receiver for Bare {
    fn handler(&self) -> &HandlerName {
        &self.0
    }
    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        _: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(async {
            self.1.add(event);
            Ok(Verdict::Done)
        })
    }
}

/// Publishes 20 events, each one to five times, and says how often the most frequent was acted on.
async fn most_effects(bench: &Bench, effects: &Effects, receiver: Arc<dyn Receiver>) -> usize {
    let mut copies = Vec::new();
    for id in 1..=20u128 {
        let event = event(id, &format!("{}", id % 4));
        copies.extend((0..=id % 5).map(|_| Arc::clone(&event)));
    }
    bench.publish(&copies).await;
    let consumer = bench.consumer(VISIBILITY).receiver(receiver).start().unwrap();
    let all = copies.len() as u64;
    let stats = consumer.reached(|stats, _| stats.done + stats.duplicates == all).await;
    assert_eq!((stats.rejected, stats.retried), (0, 0));
    let list = effects.list();
    let most = list.iter().map(|id| list.iter().filter(|other| *other == id).count()).max();
    assert!((1..=20).all(|id| list.contains(&EventId::from_u128(id))), "all were acted on");
    most.unwrap()
}

/// INV-4, F10: a broker that delivers 1 to 5 times, one effect.
#[tokio::test(start_paused = true)]
async fn a_message_that_comes_five_times_has_one_effect() {
    let (bench, effects) = (Bench::new(), Effects::default());
    let worker = Arc::new(bench.worker(effects.handler()));
    assert_eq!(most_effects(&bench, &effects, worker).await, 1);
}

/// The same on several threads and in real time, with order kept within each key.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_keep_order_and_one_effect() {
    let bench = Bench::in_real_time();
    let effects = Effects::default();
    let events: Vec<_> = (0..600).map(|id| event(id, &format!("{}", id % 30))).collect();
    let twice: Vec<_> =
        events.iter().flat_map(|event| [Arc::clone(event), Arc::clone(event)]).collect();
    bench.publish(&twice).await;
    let worker: Arc<dyn Receiver> = Arc::new(bench.worker(effects.handler()));
    let consumer = bench.consumer(VISIBILITY).receiver(worker).start().unwrap();
    let stats = consumer.reached(|stats, _| stats.done + stats.duplicates == 1_200).await;
    assert_eq!((stats.done, stats.duplicates), (600, 600));
    let list: Vec<u128> = effects.list().iter().map(|id| id.as_u128()).collect();
    for key in 0..30 {
        let of_key: Vec<u128> = list.iter().copied().filter(|id| id % 30 == key).collect();
        assert!(of_key.len() == 20 && of_key.is_sorted(), "{of_key:?}");
    }
}

/// Negative control: without the inbox it sees the effect as often as the message came.
#[tokio::test(start_paused = true)]
async fn without_the_inbox_the_same_test_sees_five_effects() {
    let (bench, effects) = (Bench::new(), Effects::default());
    let bare = Arc::new(Bare(handler_name(), effects.clone()));
    assert_eq!(most_effects(&bench, &effects, bare).await, 5);
}

/// F19: a panic is caught, counted, and ends as a dead letter; everything else flows.
#[tokio::test(start_paused = true)]
async fn a_panicking_handler_becomes_a_dead_letter_and_the_process_lives() {
    let (bench, effects) = (Bench::new(), Effects::default());
    bench.publish(&[event(1, "poison"), event(2, "poison"), event(3, "fine")]).await;
    let good = effects.clone();
    let worker = bench.worker(move |event: Arc<Event>, _: Context| {
        let good = good.clone();
        async move {
            assert!(event.id != EventId::from_u128(1), "cannot read the order");
            good.add(&event);
            Ok(Outcome::done())
        }
    });
    let retry = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
    let consumer = bench
        .consumer(VISIBILITY)
        .options(ConsumerOptions { retry, ..ConsumerOptions::default() })
        .receiver(Arc::new(worker))
        .start()
        .unwrap();
    let stats = consumer.reached(|stats, _| stats.done == 2).await;
    assert_eq!((stats.panicked, stats.retried, stats.rejected), (3, 2, 1));
    let dead = bench.dead_letters();
    assert!(dead.len() == 1 && dead[0].contains("cannot read the order"), "{dead:?}");
    assert_eq!(effects.list(), [EventId::from_u128(3), EventId::from_u128(2)]);
}

/// A worker died after its claim; the broker's visibility and the lease race. What the inbox was
/// asked, and the consumer's statistics.
async fn converge(visibility: Duration) -> (u32, Vec<EventId>, Vec<String>) {
    let (bench, effects) = (Bench::new(), Effects::default());
    let event = event(1, "a");
    bench.publish(&[Arc::clone(&event)]).await;
    let dead = bench.broker.subscribe(TOPIC, GROUP, visibility);
    assert_eq!(dead.poll(1).len(), 1, "the dead worker had it");
    bench.orphan_claim(&event).await;
    let worker = Arc::new(bench.worker(effects.handler()));
    let consumer = bench.consumer(visibility).receiver(worker).start().unwrap();
    let stats = consumer.reached(|stats, _| stats.done == 1).await;
    assert_eq!(stats.retried, 0, "R079: nothing counts against the message");
    (stats.busy as u32, effects.list(), bench.dead_letters())
}

/// R079, R082: visibility shorter than the lease: the message comes back early, is left on the queue
/// for the rest of the lease, and then acted on.
#[tokio::test(start_paused = true)]
async fn a_visibility_shorter_than_the_lease_converges() {
    let (busy, effects, dead) = converge(LEASE / 6).await;
    assert_eq!((busy, effects.len(), dead.len()), (1, 1, 0));
}

/// R082: visibility longer than the lease: the row is free before the message comes back.
#[tokio::test(start_paused = true)]
async fn a_visibility_longer_than_the_lease_converges() {
    let (busy, effects, dead) = converge(LEASE * 6).await;
    assert_eq!((busy, effects.len(), dead.len()), (0, 1, 0));
}

/// R081, R082: a handler that works for longer than visibility and lease keeps both.
#[tokio::test(start_paused = true)]
async fn a_slow_handler_keeps_its_message_and_delays_nobody() {
    let (bench, effects) = (Bench::new(), Effects::default());
    bench.publish(&[event(1, "slow"), event(2, "a"), event(3, "b")]).await;
    let acted = effects.clone();
    let worker = Arc::new(bench.worker(move |event: Arc<Event>, _: Context| {
        let acted = acted.clone();
        async move {
            if event.id == EventId::from_u128(1) {
                // waits: virtual time passes
                sleep(LEASE * 3).await;
            }
            acted.add(&event);
            Ok(Outcome::done())
        }
    }));
    let start = |worker: &Arc<_>| {
        let worker = Arc::clone(worker) as Arc<dyn Receiver>;
        bench.consumer(LEASE / 2).receiver(worker).start().unwrap()
    };
    let (first, second) = (start(&worker), start(&worker));
    let done = |consumer: &postrider_inbox::ConsumerHandle| consumer.stats().done;
    while done(&first) + done(&second) < 3 {
        // waits: virtual time passes
        sleep(Duration::from_millis(50)).await;
    }
    let ids: Vec<u128> = effects.list().iter().map(|id| id.as_u128()).collect();
    assert_eq!((ids.len(), ids[2]), (3, 1), "the slow one is last, and once: {ids:?}");
    assert_eq!(first.stats().received + second.stats().received, 3, "none came twice");
}

/// A failed message is tried again before those behind it in its key.
#[tokio::test(start_paused = true)]
async fn a_failed_message_is_not_overtaken_by_its_key() {
    let (bench, effects) = (Bench::new(), Effects::default());
    let events: Vec<_> = (1..=5).map(|id| event(id, "a")).collect();
    bench.publish(&events).await;
    let (acted, tries) = (effects.clone(), Arc::new(AtomicU32::new(0)));
    let worker = bench.worker(move |event: Arc<Event>, _: Context| {
        let (acted, tries) = (acted.clone(), Arc::clone(&tries));
        async move {
            if event.id == EventId::from_u128(2) && tries.fetch_add(1, Ordering::SeqCst) < 3 {
                return Ok(Outcome::retry("not yet"));
            }
            acted.add(&event);
            Ok(Outcome::done())
        }
    });
    let consumer = bench.consumer(VISIBILITY).receiver(Arc::new(worker)).start().unwrap();
    let stats = consumer.reached(|stats, _| stats.done == 5).await;
    assert_eq!(stats.retried, 3);
    let ids: Vec<u128> = effects.list().iter().map(|id| id.as_u128()).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}

/// A store that is down pauses the consumer, counts against no message, and the pause ends by itself.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_kills_no_message() {
    let (bench, effects) = (Bench::new(), Effects::default());
    bench.store.down.store(true, Ordering::SeqCst);
    let events: Vec<_> = (1..=50).map(|id| event(id, &id.to_string())).collect();
    bench.publish(&events).await;
    let options = ConsumerOptions { in_flight_max: 8, ..ConsumerOptions::default() };
    let worker = Arc::new(bench.worker(effects.handler()));
    let consumer = bench.consumer(VISIBILITY).options(options).receiver(worker).start().unwrap();
    consumer.reached(|_, health| matches!(health, Health::StoreDown { .. })).await;
    // waits: virtual time passes
    sleep(Duration::from_secs(600)).await;
    let asked = bench.store.claims.load(Ordering::SeqCst);
    assert!((10..120).contains(&asked), "probes, no storm, and it does not give up: {asked}");
    let Health::StoreDown { detail } = consumer.health() else { panic!("still down") };
    assert!(detail.contains("connection refused"), "{detail}");
    bench.store.down.store(false, Ordering::SeqCst);
    let stats = consumer.reached(|stats, _| stats.done == 50).await;
    assert_eq!((stats.rejected, stats.retried), (0, 0));
    assert_eq!((effects.list().len(), bench.dead_letters().len()), (50, 0));
    assert_eq!(consumer.health(), Health::Ready);
}

/// An inbox of which the rows of the first three events are locked, or all of it is.
struct Locked {
    handler: HandlerName,
    rows: AtomicBool,
    store: AtomicBool,
}

impl Receiver for Locked {
    fn handler(&self) -> &HandlerName {
        &self.handler
    }
    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        _: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        let busy = || Error::new(ErrorKind::Busy, "receive").message("locked by another writer");
        Box::pin(async move {
            match event.id.as_u128() {
                _ if self.store.load(Ordering::SeqCst) => Err(busy().of_store()),
                1..=3 if self.rows.load(Ordering::SeqCst) => Err(busy()),
                _ => Ok(Verdict::Done),
            }
        })
    }
}

/// INV-5: rows that others have locked are tried again, uncounted, and hold up nobody else; a store that is locked as a whole
/// is not asked by everybody.
#[tokio::test(start_paused = true)]
async fn rows_that_are_locked_hold_up_no_other() {
    let bench = Bench::new();
    let (rows, store) = (AtomicBool::new(true), AtomicBool::new(false));
    let locked = Arc::new(Locked { handler: handler_name(), rows, store });
    let receiver = Arc::clone(&locked) as Arc<dyn Receiver>;
    let consumer = bench.consumer(VISIBILITY).receiver(receiver).start().unwrap();
    bench.publish(&[event(1, "a"), event(2, "b"), event(3, "c")]).await;
    consumer.reached(|stats, _| stats.busy + stats.store_failed == 3).await;
    assert_eq!(consumer.health(), Health::Ready, "three in a row, and the inbox answers");
    for id in 4..104u128 {
        bench.publish(&[event(id, &id.to_string())]).await;
        let flows = consumer.reached(|stats, _| stats.done == id as u64 - 3);
        let soon = Duration::from_millis(100);
        tokio::time::timeout(soon, flows).await.expect("it waits for nobody's row");
        assert_eq!(consumer.health(), Health::Ready);
        // waits: virtual time passes
        sleep(Duration::from_millis(200)).await;
    }
    let stats = consumer.stats();
    assert!(stats.busy > 3 && stats.busy < 300, "tried again, after pauses: {stats:?}");
    assert_eq!((stats.store_failed, stats.retried, stats.rejected), (0, 0, 0));
    locked.store.store(true, Ordering::SeqCst);
    consumer.reached(|_, health| matches!(health, Health::StoreDown { .. })).await;
    locked.store.store(false, Ordering::SeqCst);
    locked.rows.store(false, Ordering::SeqCst);
    consumer.reached(|stats, _| stats.done == 103).await;
}

#[tokio::test(start_paused = true)]
async fn a_consumer_without_room_or_receiver_is_not_started() {
    let bench = Bench::new();
    assert!(bench.consumer(VISIBILITY).start().is_err(), "no receiver");
    let start = |visibility, options| {
        let worker = Arc::new(bench.worker(Effects::default().handler()));
        bench.consumer(visibility).options(options).receiver(worker).start().map(drop)
    };
    assert!(start(Duration::ZERO, ConsumerOptions::default()).is_err(), "no visibility");
    let none = ConsumerOptions { in_flight_max: 0, ..ConsumerOptions::default() };
    let error = start(VISIBILITY, none).unwrap_err();
    assert!(error.to_string().contains("in_flight_max"), "{error}");
    assert!(start(VISIBILITY, ConsumerOptions::default()).is_ok());
}
