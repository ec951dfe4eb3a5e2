//! A leased handler without a runtime: all that it waits for is its clock.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Poller, Poll, Waker};
use std::time::Duration;

use postrider_core::{Claim, ClaimRequest, Clock, ErrorKind, Event, InboxStore, Result};
use postrider_inbox::{Context, Heartbeat, Leased, LeasedHandler, Outcome, Performed};
use postrider_testkit::memory::{MemoryClock, MemoryStore};

use crate::bench::{LEASE, event, handler_name};

/// Polls until it ends; whenever it does not, a little time passes.
fn run<F: Future>(clock: &MemoryClock, future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..10_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Poller::from_waker(Waker::noop())) {
            return output;
        }
        clock.advance(Duration::from_millis(10));
    }
    panic!("it does not end")
}

fn worker(store: &MemoryStore, handler: impl LeasedHandler + 'static) -> Leased {
    Leased::builder(handler_name(), Arc::new(store.clone()), handler)
        .lease(LEASE)
        .heartbeat(Heartbeat::Within)
        .clock(Arc::new(store.clock().clone()))
        .build()
        .unwrap()
}

fn claim(store: &MemoryStore) -> Claim {
    let request = ClaimRequest::new(&event(1, "a"), &handler_name(), LEASE).unwrap();
    run(store.clock(), store.claim(&request)).unwrap()
}

/// R081: the heartbeat within the handler's own task keeps a claim for three leases.
#[test]
fn without_a_runtime_a_slow_handler_keeps_its_claim() {
    let store = MemoryStore::new(1, MemoryClock::new());
    let (rival, clock) = (store.clone(), store.clock().clone());
    let slow = worker(&store, move |_: Arc<Event>, context: Context| {
        let (rival, clock) = (rival.clone(), clock.clone());
        async move {
            clock.sleep(LEASE * 3).await;
            assert!(matches!(claim(&rival), Claim::Leased { .. }));
            let effect = |_| async { Ok::<_, Infallible>("receipt") };
            Ok(Outcome::Ack(context.step("charge", effect).await?))
        }
    });
    let performed = run(store.clock(), slow.perform(&event(1, "a"))).unwrap();
    assert!(matches!(performed, Performed::Now(_)), "{performed:?}");
}

/// The limit that `Heartbeat::Within` states: who blocks the thread blocks the heartbeat. The claim
/// is lost, and nothing is done under it.
#[test]
fn a_handler_that_blocks_its_thread_loses_its_claim_and_makes_no_effect() {
    let store = MemoryStore::new(1, MemoryClock::new());
    let clock = store.clock().clone();
    let blocking = worker(&store, move |_: Arc<Event>, context: Context| {
        clock.advance(LEASE * 2);
        async move {
            let effect = |_| async { panic!("no effect without a claim") };
            let refused: Result<_> = context.step::<_, _, &str, Infallible>("charge", effect).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Fenced);
            assert!(context.is_cancelled());
            Ok(Outcome::retry("too late"))
        }
    });
    let performed = run(store.clock(), blocking.perform(&event(1, "a"))).unwrap();
    assert!(matches!(performed, Performed::Retry { .. }), "{performed:?}");
}

/// A handler that is dropped where nobody can let its claim go leaves it to expire.
#[test]
fn without_a_runtime_a_dropped_handlers_claim_expires() {
    let store = MemoryStore::new(1, MemoryClock::new());
    let hanging = worker(&store, |_: Arc<Event>, _: Context| std::future::pending());
    {
        let event = event(1, "a");
        let mut dropped = pin!(hanging.perform(&event));
        let polled = dropped.as_mut().poll(&mut Poller::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    assert!(matches!(claim(&store), Claim::Leased { .. }), "nobody let it go");
    store.clock().advance(LEASE);
    assert!(matches!(claim(&store), Claim::Claimed(_)));
}
