//! Saves of many partitions in one statement.

use futures_util::future::join_all;
use postrider_core::waiting::{Passed, Settlement};
use postrider_core::{ErrorKind, Lease, OutboxSource};
use postrider_postgres::PostgresStore;

use crate::relay::{pass, read, stands};
use crate::support::{Fresh, LONG, acquire, destination};

/// All of a partition's events that the cursor has not passed.
async fn rest(store: &PostgresStore, lease: &Lease) -> Settlement {
    let from = stands(store, lease, "a").await;
    let rows = read(store, lease, &from).await;
    pass(lease, &from, &rows, Passed::Acked)
}

async fn insert(fresh: &Fresh) {
    let many = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
        select 'order', n::text, 'order.placed', '{}' from generate_series(1, 200) n";
    fresh.run(many).await;
}

/// Saves of one moment are one transaction; where one of them is refused the others are written all the
/// same, and none is counted twice.
#[tokio::test]
async fn partitions_that_save_together_have_each_its_own_answer() {
    let Some(fresh) = Fresh::new(4).await else { return };
    let store = fresh.store();
    store.open().await.expect("open");
    store.register(&[destination("a")]).await.expect("register");
    let mut leases = Vec::new();
    for _ in 0..4 {
        leases.push(acquire(&store, LONG).await.expect("a partition is free").lease);
    }
    insert(&fresh).await;
    let all = join_all(leases.iter().map(|lease| rest(&store, lease))).await;
    let answers = join_all(all.iter().map(|settlement| store.settle(settlement))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let writers = "select count(distinct xmin::text) from {outbox_cursor} where destination = 'a'";
    assert_eq!(fresh.number(writers).await, 1, "one transaction wrote all of them");
    let counted = "select sum(count)::bigint from {outbox_settled}";
    assert_eq!(fresh.number(counted).await, 200);

    insert(&fresh).await;
    let all = join_all(leases.iter().map(|lease| rest(&store, lease))).await;
    let [fenced, moved] = [1, 2].map(|at: usize| leases[at].partition.0);
    fresh
        .run(&format!(
            "update {{outbox_lease}} set token = token + 1 where partition = {fenced};
            update {{outbox_cursor}} set position = position + 1 where partition = {moved}"
        ))
        .await;
    let answers = join_all(all.iter().map(|settlement| store.settle(settlement))).await;
    let kinds: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().err().map(|e| e.kind())).collect();
    assert_eq!(kinds, [None, Some(ErrorKind::Fenced), Some(ErrorKind::Conflict), None]);
    let written: usize = [0, 3].iter().map(|at: &usize| all[*at].parts[0].passed.len()).sum();
    assert_eq!(fresh.number(counted).await, 200 + i64::try_from(written).unwrap());
    let again = join_all([&all[0], &all[3]].map(|settlement| store.settle(settlement))).await;
    assert!(again.iter().all(Result::is_ok), "{again:?}");
    assert_eq!(fresh.number(counted).await, 200 + i64::try_from(written).unwrap());
}
