//! Planted bugs of the store, where the simulator's probes are built in: each is seen at once by the ledger, or by what it does.

#![cfg(postrider_sim)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[allow(dead_code, reason = "shared with the tests of the kinds")]
#[path = "../kinds/line.rs"]
mod line;
#[allow(dead_code, reason = "shared with the tests of the kinds")]
#[path = "../kinds/relay.rs"]
mod relay;

use std::sync::Arc;
use std::task::{Context, Waker};

use postrider_core::operate::{Note, RowKey, Submission, Verb};
use postrider_core::probe::{Mutant, plant};
use postrider_core::source::{CarryOutRequest, DueRequest, FetchRequest, FetchedRow};
use postrider_core::waiting::{Attempted, NewWaiting, Placement, Reason, Settlement};
use postrider_core::{
    Claim, ClaimRequest, Cursor, Destination, HandlerName, InboxStore, Lease, OutboxSource,
};
use postrider_testkit::memory::{Kind, MemoryStore};

use line::Plain;
use relay::{LEASE, Relay, a, acquire, event, settlement, store};

/// Runs a test on this thread with a bug planted.
fn with<F: Future>(mutant: Mutant, test: F) -> F::Output {
    plant(Some(mutant));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let output = runtime.block_on(test);
    plant(None);
    output
}

/// A relay that was taken over settles all the same.
async fn settles_late(store: &MemoryStore) {
    let late = Relay::take(store.on(Arc::new(Plain)), "late").await;
    store.commit(vec![event("1", 1)]).unwrap();
    let start = late.load().await;
    let page = late.fetch(&start, 100).await.unwrap();
    let settlement = settlement(&late.lease, &start, &page.rows);
    let settle = late.source.settle(&settlement);
    let take = async {
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
        store.clock().advance(LEASE);
        acquire(store, "next").await
    };
    _ = tokio::join!(settle, take);
    _ = late.source.settle(&settlement).await;
}

#[test]
fn a_fence_without_a_token_is_told() {
    for kind in Kind::ALL {
        let told = with(Mutant::LeaseWithoutToken, async {
            let store = store(kind).await;
            settles_late(&store).await;
            store.misdeeds()
        });
        assert!(told.iter().any(|what| what.contains("settle")), "{kind:?}: {told:?}");
    }
}

#[test]
fn a_token_that_is_only_read_is_told() {
    for kind in Kind::ALL {
        let told = with(Mutant::TokenReadNotLocked, async {
            let store = store(kind).await;
            settles_late(&store).await;
            store.misdeeds()
        });
        assert!(told.iter().any(|what| what.contains("settle")), "{kind:?}: {told:?}");
    }
}

#[test]
fn a_token_that_stands_is_told() {
    let told = with(Mutant::TokenStandsForSameOwner, async {
        let store = store(Kind::ChangeLog).await;
        acquire(&store, "same").await.unwrap();
        store.clock().advance(LEASE);
        acquire(&store, "same").await.unwrap();
        store.misdeeds()
    });
    assert!(told.iter().any(|what| what.contains("granted twice")), "{told:?}");
}

#[test]
fn a_lock_over_a_round_trip_keeps_others_out() {
    with(Mutant::LockOverRoundTrip, async {
        let store = store(Kind::ChangeLog).await;
        let dies = Relay::take(store.on(Arc::new(Plain)), "dies").await;
        store.commit(vec![event("1", 1)]).unwrap();
        let start = dies.load().await;
        let page = dies.fetch(&start, 100).await.unwrap();
        let settlement = settlement(&dies.lease, &start, &page.rows);
        {
            let mut settle = dies.source.settle(&settlement);
            for _ in 0..3 {
                let mut context = Context::from_waker(Waker::noop());
                assert!(settle.as_mut().poll(&mut context).is_pending());
            }
        }
        store.clock().advance(LEASE * 2);
        assert_eq!(acquire(&store, "next").await, None, "the lock stands");
        store.clock().advance(LEASE * 100);
        assert!(acquire(&store, "next").await.is_some(), "the server noticed");
    });
}

#[test]
fn a_claim_that_is_only_looked_at_is_told() {
    let told = with(Mutant::ClaimThenCheck, async {
        let store = store(Kind::ChangeLog).await;
        let mut sent = event("1", 1).event().clone();
        sent.source = "/shop".into();
        let handler = HandlerName::new("billing").unwrap();
        let request = ClaimRequest::new(&sent, &handler, LEASE).unwrap();
        let (a, b) = (store.on(Arc::new(Plain)), store.on(Arc::new(Plain)));
        let (a, b) = tokio::join!(a.claim(&request), b.claim(&request));
        assert!(matches!((a, b), (Ok(Claim::Claimed(_)), Ok(Claim::Claimed(_)))));
        store.misdeeds()
    });
    assert!(told.iter().any(|what| what.contains("claimed while")), "{told:?}");
}

/// A settlement that passes rows and leaves the last of them as a dead letter.
fn leaves_dead(lease: &Lease, from: &Cursor, rows: &[FetchedRow], holds_key: bool) -> Settlement {
    let mut settlement = settlement(lease, from, rows);
    let row = rows.last().unwrap();
    let attempted = Attempted { attempts: 9, reason: Reason::GaveUp, detail: String::new() };
    settlement.parts[0].waiting.push(NewWaiting {
        row: row.row,
        key_hash: row.key_hash,
        event: row.event.clone().ok(),
        placement: Placement::Dead { attempted, holds_key },
    });
    settlement
}

#[test]
fn a_dead_letter_that_is_written_apart_can_be_lost() {
    for kind in Kind::ALL {
        with(Mutant::DeadOutsideTransaction, async {
            let store = store(kind).await;
            let dies = Relay::take(store.on(Arc::new(Plain)), "dies").await;
            store.commit(vec![event("1", 1)]).unwrap();
            let start = dies.load().await;
            let page = dies.fetch(&start, 100).await.unwrap();
            let settlement = leaves_dead(&dies.lease, &start, &page.rows, true);
            {
                let mut settle = dies.source.settle(&settlement);
                let mut context = Context::from_waker(Waker::noop());
                for _ in 0..3 {
                    assert!(settle.as_mut().poll(&mut context).is_pending());
                }
            }
            assert_eq!(dies.drain().await, [], "{kind:?}: it is passed");
            assert_eq!(store.waiting(&a()), [], "{kind:?}: and stands nowhere");
        });
    }
}

#[test]
fn what_is_redriven_in_no_order_does_not_say_so() {
    let late = |mutant| async move {
        plant(mutant);
        let store = store(Kind::ChangeLog).await;
        let relay = Relay::take(store.clone(), "relay").await;
        store.commit(vec![event("1", 1)]).unwrap();
        let start = relay.load().await;
        let page = relay.fetch(&start, 100).await.unwrap();
        let settlement = leaves_dead(&relay.lease, &start, &page.rows, false);
        store.settle(&settlement).await.unwrap();
        let rows = vec![RowKey { destination: a(), seq: page.rows[0].row.seq }];
        let note = Note::new("tests", "to see it come out").unwrap();
        store.submit(&Submission { verb: Verb::Redrive(rows), note }).unwrap();
        let leases = vec![relay.lease.clone()];
        let request = CarryOutRequest { leases, rows_max: 10 };
        assert_eq!(store.carry_out(&request).await.unwrap().rows, 1);
        let request = DueRequest {
            lease: relay.lease.clone(),
            destination: a(),
            except: Vec::new(),
            rows_max: 10,
            bytes_max: u64::MAX,
        };
        store.due(&request).await.unwrap().rows[0].late
    };
    let planted = Mutant::RedriveOutOfOrder;
    assert!(with(planted, late(None)));
    assert!(!with(planted, late(Some(planted))));
}

#[test]
fn one_cursor_for_two_moves_both() {
    for kind in Kind::ALL {
        with(Mutant::OneCursorForTwo, async {
            let store = store(kind).await;
            let relay = Relay::take(store.clone(), "relay").await;
            store.commit(vec![event("1", 1), event("1", 2)]).unwrap();
            assert_eq!(relay.drain().await.len(), 2);
            let other = Destination::unrouted().id;
            let after = store.load(&relay.lease, &other).await.unwrap().cursor;
            let request = FetchRequest {
                lease: relay.lease.clone(),
                destinations: vec![other],
                after,
                until: None,
                rows_max: 10,
                bytes_max: u64::MAX,
            };
            let read = store.fetch(&request).await.unwrap().rows;
            assert_eq!(read, [], "{kind:?}: it was another's to pass");
        });
    }
}
