//! Transactions that accept one event at once, at every isolation level.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::{ErrorKind, Result};
use postrider_postgres::Inbox;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::{handler, incoming, with_effects};
use crate::support::{Fresh, LONG, until_one_waits};

const LEVELS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

/// Begins, with the snapshot taken before anything else happens.
async fn begin(client: &mut Client, level: IsolationLevel) -> Transaction<'_> {
    let tx = client.build_transaction().isolation_level(level).start().await.expect("begin");
    tx.batch_execute("select 1").await.expect("a snapshot");
    tx
}

async fn accept(fresh: &Fresh, tx: &Transaction<'_>) -> Result<Accepted> {
    Inbox::named(&fresh.names).accept(tx, &incoming(1), &handler("billing")).await
}

/// R004, R078: the second of two waits for the first. A commit makes it a duplicate, or at the levels that
/// keep a snapshot a serialization failure that is `Busy` and a duplicate when it is tried again; a rollback
/// makes it the first.
#[tokio::test]
async fn the_second_of_two_transactions_waits_for_the_first() {
    for level in LEVELS {
        for commits in [true, false] {
            let Some(fresh) = with_effects().await else { return };
            let (mut one, mut two) = (fresh.connect().await, fresh.connect().await);
            let first = begin(&mut one, level).await;
            let second = begin(&mut two, level).await;
            assert_eq!(accept(&fresh, &first).await.unwrap(), Accepted::FirstTime);
            let (answer, ()) = tokio::join!(accept(&fresh, &second), async {
                until_one_waits(&fresh).await;
                match commits {
                    true => first.commit().await.expect("commit"),
                    false => first.rollback().await.expect("roll back"),
                }
            });
            match (commits, level) {
                (false, _) => {
                    assert_eq!(answer.unwrap(), Accepted::FirstTime);
                    second.commit().await.expect("commit");
                }
                (true, IsolationLevel::ReadCommitted) => {
                    assert_eq!(answer.unwrap(), Accepted::Duplicate);
                }
                (true, _) => {
                    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Busy);
                    second.rollback().await.expect("roll back");
                    let again = begin(&mut two, level).await;
                    assert_eq!(accept(&fresh, &again).await.unwrap(), Accepted::Duplicate);
                }
            }
            assert_eq!(fresh.number("select count(*) from {inbox}").await, 1);
        }
    }
}

/// A marker that was committed after this transaction's snapshot is not overlooked.
#[tokio::test]
async fn what_the_snapshot_does_not_show_is_not_the_first_time() {
    for level in LEVELS {
        let Some(fresh) = with_effects().await else { return };
        let (mut one, mut two) = (fresh.connect().await, fresh.connect().await);
        let late = begin(&mut two, level).await;
        let first = begin(&mut one, level).await;
        assert_eq!(accept(&fresh, &first).await.unwrap(), Accepted::FirstTime);
        first.commit().await.unwrap();
        match accept(&fresh, &late).await {
            Ok(accepted) => assert_eq!(
                (accepted, matches!(level, IsolationLevel::ReadCommitted)),
                (Accepted::Duplicate, true)
            ),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
    }
}

/// R004: eight transactions at each level at once, each tried until it hears first or duplicate, and one
/// effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_eight_transactions_one_acts_at_every_level() {
    for level in LEVELS {
        let Some(fresh) = with_effects().await else { return };
        let fresh = Arc::new(fresh);
        let start = Arc::new(tokio::sync::Barrier::new(8));
        let all: Vec<_> = (0..8)
            .map(|_| {
                let (fresh, start) = (Arc::clone(&fresh), Arc::clone(&start));
                tokio::spawn(async move {
                    let mut client = fresh.connect().await;
                    let effect = fresh.sql("insert into {schema}.effects values ('done')");
                    start.wait().await;
                    loop {
                        let tx = begin(&mut client, level).await;
                        match accept(&fresh, &tx).await {
                            Ok(Accepted::Duplicate) => return,
                            Ok(Accepted::FirstTime) => {
                                tx.batch_execute(&effect).await.expect("the effect");
                                if tx.commit().await.is_ok() {
                                    return;
                                }
                            }
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                        }
                    }
                })
            })
            .collect();
        for one in all {
            one.await.unwrap();
        }
        assert_eq!(fresh.number("select count(*) from {schema}.effects").await, 1, "{level:?}");
    }
}

/// A transaction that meets a claim at a level that keeps its snapshot never acts beside it.
#[tokio::test]
async fn a_claim_after_the_snapshot_is_in_the_way() {
    for level in LEVELS {
        let Some(fresh) = with_effects().await else { return };
        let store = fresh.store();
        let old = super::claimed(&store, &incoming(1), LONG).await;
        fresh.run("update {inbox} set expires_at = clock_timestamp()").await;
        let mut client = fresh.connect().await;
        let tx = begin(&mut client, level).await;
        let new = super::claimed(&store, &incoming(1), LONG).await;
        assert!(new.token > old.token);
        assert_eq!(accept(&fresh, &tx).await.unwrap_err().kind(), ErrorKind::Busy);
    }
}

/// A wait is bounded by what the session says, and what the session says is as it was afterwards.
#[tokio::test]
async fn the_wait_is_bounded_by_the_sessions_own_limit() {
    let Some(fresh) = with_effects().await else { return };
    let (mut one, mut two) = (fresh.connect().await, fresh.connect().await);
    let first = begin(&mut one, IsolationLevel::ReadCommitted).await;
    assert_eq!(accept(&fresh, &first).await.unwrap(), Accepted::FirstTime);
    let limit: String = first.query_one("show lock_timeout", &[]).await.unwrap().get(0);
    assert_eq!(limit, "0", "the wait of accept is not left behind");
    two.batch_execute("set lock_timeout = '50ms'").await.unwrap();
    let second = begin(&mut two, IsolationLevel::ReadCommitted).await;
    let answer = tokio::time::timeout(Duration::from_secs(8), accept(&fresh, &second)).await;
    let busy = answer.expect("below the 10 s of a session without a limit").unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    second.rollback().await.unwrap();
    first.rollback().await.unwrap();
    let again = begin(&mut two, IsolationLevel::ReadCommitted).await;
    assert_eq!(accept(&fresh, &again).await.unwrap(), Accepted::FirstTime);
}

/// Two transactions that accept two events in opposite orders: the server ends one of them, which is
/// `Busy`, and both events are acted on once.
#[tokio::test]
async fn a_deadlock_is_busy() {
    let Some(fresh) = with_effects().await else { return };
    let inbox = Inbox::named(&fresh.names);
    let billing = handler("billing");
    let (mut one, mut two) = (fresh.connect().await, fresh.connect().await);
    let first = one.transaction().await.unwrap();
    let second = two.transaction().await.unwrap();
    let (a, b) = (incoming(1), incoming(2));
    assert_eq!(inbox.accept(&first, &a, &billing).await.unwrap(), Accepted::FirstTime);
    assert_eq!(inbox.accept(&second, &b, &billing).await.unwrap(), Accepted::FirstTime);
    // Whoever is refused rolls back, so that the other goes on.
    let (of_first, of_second) = tokio::join!(
        async {
            match inbox.accept(&first, &b, &billing).await {
                Ok(accepted) => first.commit().await.map(|()| Some(accepted)).unwrap(),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                    first.rollback().await.map(|()| None).unwrap()
                }
            }
        },
        async {
            match inbox.accept(&second, &a, &billing).await {
                Ok(accepted) => second.commit().await.map(|()| Some(accepted)).unwrap(),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                    second.rollback().await.map(|()| None).unwrap()
                }
            }
        }
    );
    let both = [of_first, of_second];
    assert!(both.contains(&Some(Accepted::FirstTime)) && both.contains(&None), "{both:?}");
    assert_eq!(fresh.number("select count(*) from {inbox}").await, 2);
}
