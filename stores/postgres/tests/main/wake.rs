//! Hearing of commits: notifications, many as one, and a listener that is lost.

use std::time::Duration;

use futures_util::future::poll_fn;
use postrider_core::operate::{Note, RowKey, Submission, Verb};
use postrider_core::source::OutboxSource;
use postrider_core::{NewEvent, Operator};
use postrider_postgres::{Mapping, OwnTable, PostgresStore};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::support::{Fresh, id};

/// Longer than a notification takes on a busy machine.
const SOON: Duration = Duration::from_secs(10);

async fn is_woken(store: &PostgresStore) -> bool {
    timeout(SOON, store.wake()).await.is_ok()
}

/// Waits until the store listens and has heard nothing new. The session counts as news itself.
async fn settle(store: &PostgresStore) {
    assert!(is_woken(store).await, "a session that is new");
    while timeout(Duration::from_millis(300), store.wake()).await.is_ok() {}
}

/// R035: whoever waits is woken by a commit that is told of, also one between two waits, and nothing else
/// wakes him.
#[tokio::test]
async fn a_commit_that_is_told_of_wakes() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (store, other) = (fresh.store(), Fresh::new(1).await.expect("a server"));
    settle(&store).await;
    other.committed();
    let quiet = timeout(Duration::from_millis(300), store.wake()).await;
    assert!(quiet.is_err(), "another schema's commit, and our own examination, wake nobody");
    fresh.committed();
    assert!(is_woken(&store).await, "between two waits");
    let (woken, ()) = tokio::join!(is_woken(&store), async { fresh.committed() });
    assert!(woken, "while waiting");
}

/// R035: a thousand commits are a few notifications, and the last of them is told of.
#[tokio::test]
async fn many_commits_are_one_notification() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (client, mut wire) = tokio_postgres::connect(&fresh.url, NoTls).await.expect("connect");
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| wire.poll_message(context)).await {
            if let AsyncMessage::Notification(one) = message {
                _ = heard.send(one.payload().to_owned());
            }
        }
    });
    client.batch_execute(&fresh.sql("listen {channel}")).await.expect("listen");
    let began = std::time::Instant::now();
    for _ in 0..1_000 {
        fresh.committed();
        tokio::task::yield_now().await;
    }
    // One for each 3 ms that the commits took, the first one, and the one for what came after it.
    let most = began.elapsed().as_millis() / 3 + 2;
    timeout(SOON, hears.recv()).await.expect("one at least");
    let mut count = 1;
    while timeout(Duration::from_millis(300), hears.recv()).await.is_ok() {
        count += 1;
    }
    assert!(count <= most, "{count} notifications of 1000 commits, at most {most}");
}

/// R035: what operators ask for, and what they enqueue, is told of: an idle relay acts at once.
#[tokio::test]
async fn operators_wake_the_relay() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (store, _) = fresh.relay().await;
    settle(&store).await;
    let events = [NewEvent::new("order", "1", "order.placed").bytes(vec![1], "a/b")];
    fresh.store().stage(&events).await.expect("stage");
    assert!(is_woken(&store).await, "events");
    let verb = Verb::Redrive(vec![RowKey { destination: id("a"), seq: 1 }]);
    let note = Note::new("test", "a reason").expect("a note");
    fresh.store().submit(&Submission { verb, note }).await.expect("submit");
    assert!(is_woken(&store).await, "a request");
}

/// R035: a relay of an application's own table is woken by those who tell of a commit, in any language.
#[tokio::test]
async fn an_own_table_is_looked_at_when_a_commit_is_told_of() {
    let Some(fresh) = Fresh::new(1).await else { return };
    fresh
        .run(
            "create table {schema}.events (seq bigserial unique, id uuid primary key, aggregate_type text,
                aggregate_id text, event_type text, payload text, created_at timestamptz not null,
                published_at timestamptz)",
        )
        .await;
    let mapping = Mapping::published_at(format!("{}.events", fresh.names.schema()));
    let table = OwnTable::with(&fresh.url, fresh.options(), mapping).expect("a mapping");
    assert!(timeout(SOON, table.wake()).await.is_ok(), "a session that is new");
    while timeout(Duration::from_millis(300), table.wake()).await.is_ok() {}
    fresh.committed();
    assert!(timeout(SOON, table.wake()).await.is_ok(), "by the library");
    while timeout(Duration::from_millis(300), table.wake()).await.is_ok() {}
    fresh.run(&format!("select pg_notify('{}', '')", fresh.names.channel())).await;
    assert!(timeout(SOON, table.wake()).await.is_ok(), "by a statement");
}

/// F7: a listener whose session was cut off listens again by itself, and looks at what it missed.
#[tokio::test]
async fn a_listener_that_is_cut_off_comes_back() {
    let Some(mut fresh) = Fresh::made(1).await else { return };
    let name = format!("listener-{}", fresh.names.schema());
    fresh.store_url = fresh.url_with(&format!("application_name={name}"));
    let store = fresh.store();
    settle(&store).await;
    for _ in 0..3 {
        let killed = fresh
            .number(&format!(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                 where application_name = '{name}'"
            ))
            .await;
        assert!(killed >= 1, "the listener's session was there");
        assert!(is_woken(&store).await, "what may have been missed");
        settle(&store).await;
        fresh.committed();
        assert!(is_woken(&store).await, "and hears again");
    }
}
