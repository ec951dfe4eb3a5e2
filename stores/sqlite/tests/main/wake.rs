//! Waking when somebody else commits.

use std::time::{Duration, Instant};

use postrider_core::OutboxSource;
use postrider_sqlite::SqliteStore;
use tokio::time::timeout;

use crate::support::{Fresh, event};

async fn wakes_within(store: &SqliteStore, span: Duration) -> bool {
    timeout(span, store.wake()).await.is_ok()
}

/// A commit through another connection wakes within milliseconds, whether it comes while somebody
/// waits or before; and where nothing is committed nobody is woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_another_connection_wakes() {
    let fresh = Fresh::new();
    let store = fresh.store();
    store.open().await.unwrap();
    assert!(wakes_within(&store, Duration::from_secs(10)).await, "the first call resolves at once");
    assert!(!wakes_within(&store, Duration::from_millis(100)).await, "nothing was committed");
    fresh.commit(&[event(1)]);
    assert!(wakes_within(&store, Duration::from_secs(10)).await, "committed while nobody waited");
    assert!(!wakes_within(&store, Duration::from_millis(100)).await, "and told once");
    let mut fastest = Duration::MAX;
    for n in 0..5 {
        let (woken, committed) = tokio::join!(
            async {
                assert!(wakes_within(&store, Duration::from_secs(10)).await, "commit {n}");
                Instant::now()
            },
            async {
                let fresh = &fresh;
                tokio::task::block_in_place(|| fresh.commit(&[event(n)]));
                Instant::now()
            }
        );
        fastest = fastest.min(woken.saturating_duration_since(committed));
    }
    assert!(fastest < Duration::from_millis(50), "{fastest:?}");
}

/// Two who wait are both woken by one commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_are_woken() {
    let fresh = Fresh::new();
    let store = fresh.store();
    store.open().await.unwrap();
    store.wake().await;
    let (one, two, ()) = tokio::join!(
        wakes_within(&store, Duration::from_secs(10)),
        wakes_within(&store, Duration::from_secs(10)),
        async {
            tokio::task::yield_now().await;
            let fresh = &fresh;
            tokio::task::block_in_place(|| fresh.commit(&[event(1)]));
        }
    );
    assert!(one && two);
}

/// What an operator asks for wakes as a commit does, and so does a change of the definitions, so that
/// nobody waits for the next poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_operator_asks_for_wakes() {
    let fresh = Fresh::new();
    let store = fresh.store();
    store.open().await.unwrap();
    store.wake().await;
    for change in [
        "insert into outbox_request (verb, who, created_at, total) values ('enable', 'anna', 0, 1)",
        "insert into outbox_audit (at, who, what) values (0, 'anna', 'destinations pause')",
        "update outbox_meta set value = '7' where key = 'definitions_version'",
    ] {
        assert!(!wakes_within(&store, Duration::from_millis(50)).await, "before: {change}");
        fresh.connect().execute(change, ()).unwrap();
        assert!(wakes_within(&store, Duration::from_secs(10)).await, "{change}");
    }
}
