//! Retention: what goes, what stays, and who is not kept waiting.

use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::{Claim, ErrorKind, InboxStore};

use super::{accept_once, claim, claimed, handler, incoming};
use crate::support::{Fresh, LONG};

const DAY: Duration = Duration::from_secs(86_400);

/// R087: whatever a purge is asked, no row goes before the longest recorded time for which a message may
/// come again has passed.
#[tokio::test]
async fn a_purge_does_not_go_below_the_horizon() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    assert_eq!(accept_once(&fresh, &incoming(1), "billing").await.unwrap(), Accepted::FirstTime);
    fresh.age(DAY * 3).await;
    store.record_horizon(&handler("billing"), DAY * 7).await.unwrap();
    store.record_horizon(&handler("mail"), DAY).await.unwrap();
    for older_than in [Duration::ZERO, DAY, DAY * 2] {
        assert_eq!(store.purge(older_than, 100).await.unwrap(), 0);
    }
    assert_eq!(accept_once(&fresh, &incoming(1), "billing").await.unwrap(), Accepted::Duplicate);
    store.record_horizon(&handler("billing"), DAY * 2).await.unwrap();
    assert_eq!(store.purge(DAY * 4, 100).await.unwrap(), 0, "the retention is longer");
    assert_eq!(store.purge(DAY, 100).await.unwrap(), 1);
    assert_eq!(accept_once(&fresh, &incoming(1), "billing").await.unwrap(), Accepted::FirstTime);
}

/// Results and steps may go before the ledger does: it is still known that it was done. Steps of what is
/// not done yet stay.
#[tokio::test]
async fn results_expire_before_the_ledger() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    for number in 1..=3 {
        let lease = claimed(&store, &incoming(number), LONG).await;
        store.complete_step(&lease, "charge", b"ch").await.unwrap();
        if number < 3 {
            store.complete(&lease, b"paid").await.unwrap();
        }
    }
    assert_eq!(store.purge_results(DAY, 10).await.unwrap(), 0, "they are young");
    fresh.age(DAY * 2).await;
    assert_eq!(store.purge_results(DAY, 1).await.unwrap(), 2, "one of each");
    assert_eq!(store.purge_results(DAY, 10).await.unwrap(), 2);
    assert_eq!(store.purge_results(DAY, 10).await.unwrap(), 0);
    for number in 1..=2 {
        let done = claim(&store, &incoming(number), LONG).await;
        assert_eq!(done, Claim::Processed { result: bytes::Bytes::new() });
    }
    let taken = claimed(&store, &incoming(3), LONG).await;
    assert_eq!(store.step(&taken, "charge").await.unwrap().as_deref(), Some(&b"ch"[..]));
}

/// R087 R121: without a record of it a purge leaves rows for the 35 days for which a message of a cloud's queue
/// may come again.
#[tokio::test]
async fn a_purge_without_a_record_leaves_a_row_for_five_weeks() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    assert_eq!(accept_once(&fresh, &incoming(1), "billing").await.unwrap(), Accepted::FirstTime);
    fresh.age(DAY * 34).await;
    assert_eq!(store.purge(Duration::ZERO, 100).await.unwrap(), 0);
    assert_eq!(accept_once(&fresh, &incoming(1), "billing").await.unwrap(), Accepted::Duplicate);
    fresh.age(DAY).await;
    assert_eq!(store.purge(Duration::ZERO, 100).await.unwrap(), 1);
}

/// A purge takes result and steps with the row, and nothing of any other.
#[tokio::test]
async fn a_purge_takes_everything_of_a_row() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    for number in 1..=2 {
        let lease = claimed(&store, &incoming(number), LONG).await;
        store.complete_step(&lease, "charge", b"ch").await.unwrap();
        store.complete(&lease, b"paid").await.unwrap();
        if number == 1 {
            fresh.age(DAY).await;
        }
    }
    store.record_horizon(&handler("billing"), Duration::ZERO).await.unwrap();
    assert_eq!(store.purge(DAY / 2, 10).await.unwrap(), 1);
    for table in ["{inbox}", "{inbox_result}", "{inbox_step}"] {
        let left = fresh.number(&format!("select count(*) from {table}")).await;
        assert_eq!(left, 1, "{table}");
    }
    let done = claim(&store, &incoming(2), LONG).await;
    assert_eq!(done, Claim::Processed { result: bytes::Bytes::from_static(b"paid") });
}

/// INV-4: who stood still until a purge took its claim is refused, as after every other claim.
#[tokio::test]
async fn a_claim_of_before_a_purge_is_refused() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    let stood_still = claimed(&store, &incoming(1), LONG).await;
    fresh.age(DAY * 36).await;
    assert_eq!(store.purge(Duration::ZERO, 10).await.unwrap(), 1);
    let at_work = claimed(&store, &incoming(1), LONG).await;
    assert!(at_work.token > stood_still.token, "{at_work:?} after {stood_still:?}");
    let refused = store.complete(&stood_still, b"paid").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    store.heartbeat(&at_work, LONG).await.expect("the claim of now stands");
}

/// A purge passes by rows that somebody holds, and nobody who claims or accepts waits for one that is
/// still open.
#[tokio::test]
async fn a_purge_and_claims_do_not_wait_for_each_other() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let store = fresh.store();
    for number in 1..=4 {
        let accepted = accept_once(&fresh, &incoming(number), "billing").await.unwrap();
        assert_eq!(accepted, Accepted::FirstTime);
    }
    fresh.age(DAY).await;
    store.record_horizon(&handler("billing"), Duration::ZERO).await.unwrap();
    let mut client = fresh.connect().await;
    let tx = client.transaction().await.unwrap();
    let held = fresh.sql("select 1 from {inbox} order by event_id limit 1 for update");
    tx.execute(&held, &[]).await.unwrap();
    assert_eq!(store.purge(Duration::ZERO, 10).await.unwrap(), 3);
    tx.rollback().await.unwrap();
    // A purge of another program that is still open: the rows are locked, and are asked for.
    let tx = client.transaction().await.unwrap();
    tx.execute(&fresh.sql("delete from {inbox}"), &[]).await.unwrap();
    let asked = tokio::time::timeout(Duration::from_secs(10), async {
        let done = claim(&store, &incoming(1), LONG).await;
        assert!(matches!(done, Claim::Processed { .. }), "{done:?}");
        claimed(&store, &incoming(9), LONG).await;
    });
    asked.await.expect("nobody waits");
    tx.commit().await.unwrap();
    claimed(&store, &incoming(1), LONG).await;
}

/// Retention finds its rows by their indexes, however many there are.
#[tokio::test]
async fn a_purge_follows_its_index() {
    let Some(fresh) = Fresh::made(1).await else { return };
    fresh
        .run(
            "insert into {inbox} (source, event_id, handler, event_type, status, payload_hash, processed_at)
            select '/shop', gen_random_uuid(), 'billing', 't', 'processed', decode(repeat('01', 32), 'hex'),
                clock_timestamp() - n * interval '1 s'
            from generate_series(1, 20000) n;
            analyze {inbox}",
        )
        .await;
    let client = fresh.connect().await;
    let statement = fresh.sql(include_str!("../../../sql/inbox/purge.sql"));
    let explain = statement
        .replace("$1::bigint", "10000000000")
        .replace("$2", "100")
        .replace("$3::bigint", "10000000000")
        .trim_end_matches([';', '\n'])
        .to_owned();
    let rows = client.query(&format!("explain {explain}"), &[]).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let plan = plan.join("\n");
    assert!(plan.contains("inbox_processed") && plan.contains("inbox_claimed"), "{plan}");
    assert!(!plan.contains("Seq Scan on inbox "), "{plan}");
}
