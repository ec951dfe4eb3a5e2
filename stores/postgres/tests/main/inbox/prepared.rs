//! The statement for the marker is prepared on a handler's connections, where they keep what is prepared on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{Code, ErrorKind};
use postrider_postgres::{Pooler, Transactional};

use super::receiver::delivery;
use super::{handler, incoming, with_effects};
use crate::support::Fresh;

/// A handler that notes how many statements are prepared on its connection, and then says `after`.
fn counting(fresh: &Fresh, pooler: Pooler, after: &'static str) -> (Transactional, Arc<AtomicI64>) {
    let count = Arc::new(AtomicI64::new(-1));
    let seen = Arc::clone(&count);
    let mut options = fresh.options();
    options.pooler = pooler;
    let receiver = Transactional::with(&fresh.url, &options, handler("billing"), move |tx, _| {
        let seen = Arc::clone(&seen);
        Box::pin(async move {
            let all = "select count(*) from pg_prepared_statements where not from_sql";
            let rows = tx.query_typed(all, &[]).await?;
            seen.store(rows[0].get(0), Ordering::SeqCst);
            tx.batch_execute(after).await?;
            Ok(Verdict::Done)
        })
    });
    (receiver.expect("a receiver"), count)
}

/// A session of one's own is found out, and then the statement is there before each delivery; what is said to lie
/// behind a pooler has none.
#[tokio::test]
async fn the_marker_is_prepared_where_sessions_are_ones_own() {
    let Some(fresh) = with_effects().await else { return };
    for (pooler, expected) in [(Pooler::Auto, 1), (Pooler::None, 1), (Pooler::Transaction, 0)] {
        let (receiver, count) = counting(&fresh, pooler, "select 1");
        for number in 1..=3 {
            let event = incoming(u128::from(pooler as u8) * 10 + number);
            let verdict = receiver.receive(&event, &delivery(&event)).await.expect("a verdict");
            assert_eq!(verdict, Verdict::Done);
            assert_eq!(count.load(Ordering::SeqCst), expected, "{pooler:?}, delivery {number}");
        }
    }
}

/// Where a pooler came in between, or a handler took the statement away: nothing is done, it is said, it does not
/// count against the event, and from then on nothing is prepared.
#[tokio::test]
async fn a_statement_that_is_gone_is_done_without() {
    let Some(fresh) = with_effects().await else { return };
    let (receiver, count) = counting(&fresh, Pooler::Auto, "deallocate all");
    let deliver = async |number| {
        let event = incoming(number);
        receiver.receive(&event, &delivery(&event)).await
    };
    assert_eq!(deliver(1).await.expect("a verdict"), Verdict::Done);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let lost = deliver(2).await.expect_err("it is gone");
    assert_eq!(
        (lost.kind(), lost.operator_code()),
        (ErrorKind::Unavailable, Some(Code::SessionsShared))
    );
    assert_eq!(fresh.number("select count(*) from {inbox}").await, 1, "nothing was done");
    for number in 2..=4 {
        assert_eq!(deliver(number).await.expect("a verdict"), Verdict::Done);
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }
    assert_eq!(fresh.number("select count(*) from {inbox}").await, 4);
}
