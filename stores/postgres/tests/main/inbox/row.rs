//! One row and many workers: who acts, who is refused, and by which clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::{Claim, Code, ErrorKind, Event, InboxStore, Payload, Tried};
use postrider_postgres::Inbox;

use super::{accept_once, claim, claimed, handler, incoming};
use crate::support::{Fresh, LONG};

/// R078, F10: eight workers with connections of their own get every event one to five times, each in
/// another order, all at once; each event is claimed once, and done once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_race_for_every_event() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let fresh = Arc::new(fresh);
    let start = Arc::new(tokio::sync::Barrier::new(8));
    let workers: Vec<_> = (0..8u128)
        .map(|worker| {
            let (fresh, start) = (Arc::clone(&fresh), Arc::clone(&start));
            tokio::spawn(async move {
                let store = fresh.store();
                start.wait().await;
                let mut done = Vec::new();
                for turn in 0..200u128 {
                    // 40 events, five times each, by a step that has no divisor in common with 40.
                    let number =
                        (turn * [1, 3, 7, 9, 11, 13, 17, 19][worker as usize] + worker) % 40;
                    match claim(&store, &incoming(number), LONG).await {
                        Claim::Claimed(lease) => {
                            store.complete(&lease, b"done").await.expect("its own claim");
                            done.push(number);
                        }
                        Claim::Leased { .. } | Claim::Processed { .. } => {}
                        Claim::Mismatch => panic!("one payload"),
                    }
                }
                done
            })
        })
        .collect();
    let mut times = BTreeMap::new();
    for worker in workers {
        for number in worker.await.expect("a worker ends") {
            *times.entry(number).or_insert(0) += 1;
        }
    }
    assert_eq!(times, (0..40).map(|number| (number, 1)).collect());
}

/// F14, F15: workers that vanish after their effect leave a claim that ends by the database's clock; of
/// those that take over at once one acts, finds the step, and the late one is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_that_take_over_one_acts_and_finds_the_step() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let event = incoming(1);
    let store = fresh.store();
    let mut last = claimed(&store, &event, LONG).await;
    store.complete_step(&last, "charge", b"ch_1").await.unwrap();
    for _ in 0..5 {
        fresh.run("update {inbox} set expires_at = clock_timestamp()").await;
        let all: Vec<_> = (0..8)
            .map(|_| {
                let (store, event) = (fresh.store(), Arc::clone(&event));
                tokio::spawn(async move { claim(&store, &event, LONG).await })
            })
            .collect();
        let mut won = Vec::new();
        for one in all {
            match one.await.unwrap() {
                Claim::Claimed(lease) => won.push(lease),
                Claim::Leased { remaining } => assert!(remaining <= LONG),
                other => panic!("{other:?}"),
            }
        }
        let lease = won.pop().expect("it is free");
        assert!(won.is_empty(), "two have it: {lease:?} {won:?}");
        assert!(lease.token > last.token);
        let step = store.step(&lease, "charge").await.unwrap();
        assert_eq!(step.as_deref(), Some(&b"ch_1"[..]), "the charge is not made twice");
        for refused in [
            store.complete(&last, b"late").await,
            store.complete_step(&last, "mail", b"late").await,
            store.heartbeat(&last, LONG).await,
            store.release(&last, Tried::Failed).await,
            store.step(&last, "charge").await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Fenced);
        }
        last = lease;
    }
    store.complete(&last, b"done").await.unwrap();
}

/// R078: claims and transactions at once on the same rows: one of them acts, nobody waits for ever, and
/// no deadlock is met by anybody who takes one row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_and_transactions_race_for_one_row() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let fresh = Arc::new(fresh);
    for number in 0..20 {
        let start = Arc::new(tokio::sync::Barrier::new(8));
        let all: Vec<_> = (0..8)
            .map(|n| {
                let (fresh, start) = (Arc::clone(&fresh), Arc::clone(&start));
                tokio::spawn(async move {
                    let (event, store) = (incoming(number), fresh.store());
                    start.wait().await;
                    if n % 2 == 0 {
                        return match claim(&store, &event, LONG).await {
                            Claim::Claimed(lease) => {
                                store.complete(&lease, b"").await.expect("its own claim");
                                true
                            }
                            _ => false,
                        };
                    }
                    match accept_once(&fresh, &event, "billing").await {
                        Ok(accepted) => accepted == Accepted::FirstTime,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                            false
                        }
                    }
                })
            })
            .collect();
        let mut acted = 0;
        for one in all {
            acted += u32::from(one.await.unwrap());
        }
        assert_eq!(acted, 1, "event {number}");
    }
}

/// A worker's lease stands in the way of a transaction for the same handler, until it ends; then its
/// token is stale.
#[tokio::test]
async fn a_claim_and_a_transaction_exclude_each_other() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let event = incoming(1);
    let lease = claimed(&store, &event, LONG).await;
    let refused = accept_once(&fresh, &event, "billing").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    fresh.run("update {inbox} set expires_at = clock_timestamp()").await;
    assert_eq!(accept_once(&fresh, &event, "billing").await.unwrap(), Accepted::FirstTime);
    let refused = store.complete(&lease, b"late").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    assert_eq!(accept_once(&fresh, &event, "billing").await.unwrap(), Accepted::Duplicate);
}

/// While a transaction holds the row a claim waits only so long, and says `Busy`; the session goes on.
#[tokio::test]
async fn a_claim_does_not_wait_for_a_transaction_that_is_open() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let inbox = Inbox::named(&fresh.names);
    let mut client = fresh.connect().await;
    let tx = client.transaction().await.unwrap();
    let first = inbox.accept(&tx, &incoming(1), &handler("billing")).await.unwrap();
    assert_eq!(first, Accepted::FirstTime);
    let request =
        postrider_core::ClaimRequest::new(&incoming(1), &handler("billing"), LONG).unwrap();
    let busy = store.claim(&request).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    claimed(&store, &incoming(2), LONG).await;
    tx.rollback().await.unwrap();
    claimed(&store, &incoming(1), LONG).await;
}

/// F34: a worker slept from before its claim was forgotten until after the next one. Its token is not the
/// next one's, so it writes nothing.
#[tokio::test]
async fn tokens_go_on_where_a_forgotten_row_ended() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let event = incoming(1);
    let slept = claimed(&store, &event, LONG).await;
    fresh
        .run(
            "insert into {inbox_tombstone} (source, event_id, handler, event_type, was, token, attempts,
                received_at, who, why)
            select source, event_id, handler, event_type, status, token, attempts, received_at, 'w', 'y'
            from {inbox};
            delete from {inbox}",
        )
        .await;
    let next = claimed(&store, &event, LONG).await;
    assert!(next.token > slept.token, "{next:?} after {slept:?}");
    let refused = store.complete(&slept, b"late").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    store.complete(&next, b"done").await.unwrap();
}

/// R115: a worker's own clock decides nothing: leases are written and judged by the database's.
#[tokio::test]
async fn the_databases_clock_decides() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let lease = claimed(&store, &incoming(1), Duration::from_secs(60)).await;
    let off =
        "select abs(extract(epoch from expires_at - clock_timestamp() - interval '60 s'))::bigint
        from {inbox}";
    assert!(fresh.number(off).await < 30);
    store.heartbeat(&lease, Duration::from_secs(600)).await.unwrap();
    match claim(&store, &incoming(1), LONG).await {
        Claim::Leased { remaining } => {
            assert!(remaining > Duration::from_secs(500) && remaining <= Duration::from_secs(600));
        }
        other => panic!("{other:?}"),
    }
}

/// The same id with another payload is an error with a code, and the handler is not called; a row that a
/// person marked is any payload's.
#[tokio::test]
async fn the_same_id_with_another_payload_is_a_conflict() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let event = incoming(1);
    assert_eq!(accept_once(&fresh, &event, "billing").await.unwrap(), Accepted::FirstTime);
    let mut forged = Event::clone(&event);
    forged.payload = Payload::bytes("other");
    let refused = accept_once(&fresh, &forged, "billing").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(refused.operator_code(), Some(Code::PayloadMismatch));
    assert_eq!(claim(&fresh.store(), &forged, LONG).await, Claim::Mismatch);
    fresh.run("update {inbox} set payload_hash = decode(repeat('00', 32), 'hex')").await;
    assert_eq!(accept_once(&fresh, &forged, "billing").await.unwrap(), Accepted::Duplicate);
    let done = claim(&fresh.store(), &forged, LONG).await;
    assert!(matches!(done, Claim::Processed { .. }), "{done:?}");
}

/// What is larger than its column is refused by the table, and the claim stands.
#[tokio::test]
async fn a_result_that_is_too_large_is_refused() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let lease = claimed(&store, &incoming(1), LONG).await;
    let large = vec![0; 1_048_577];
    for refused in
        [store.complete_step(&lease, "s", &large).await, store.complete(&lease, &large).await]
    {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
    store.complete(&lease, &large[1..]).await.unwrap();
}

/// A heartbeat changes the row and no index, or each would leave an entry in all of them.
#[tokio::test]
async fn a_heartbeat_writes_to_no_index() {
    let Some(fresh) = Fresh::new(1).await else { return };
    claimed(&fresh.store(), &incoming(1), LONG).await;
    let client = fresh.connect().await;
    let beats = "begin;
        select {inbox_heartbeat}(source, event_id, handler, token, 60000000)
        from {inbox}, generate_series(1, 5)";
    client.batch_execute(&fresh.sql(beats)).await.expect("heartbeats");
    let count = "select n_tup_upd, n_tup_hot_upd from pg_stat_xact_user_tables
        where relid = '{inbox}'::regclass";
    let row = client.query_one(&fresh.sql(count), &[]).await.expect("what was counted");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (5, 5));
}
