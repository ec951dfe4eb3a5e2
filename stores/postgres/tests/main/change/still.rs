//! An operator's program that stands still with locks in its hands, as one that is stopped by a signal.
//!
//! It has asked for the locks, which somebody else has for a moment, and is not polled again: to the server that is a
//! client that sends nothing more.

use std::pin::pin;
use std::time::{Duration, Instant};

use postrider_core::operate::Operator;
use postrider_core::source::DefinitionChange;
use postrider_core::{ErrorKind, OutboxSource, Result};

use super::told;
use crate::operator::{Act, Play, everything, note, of_type};
use crate::support::id;

/// Longer than the server lets a transaction stand still, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets a work ask for cursors that are locked, leaves it alone when it waits for them, and gives them free. Then says how
/// long settlements of `destination` are kept back, and what the work says when it goes on.
async fn stands_still<T>(
    play: &Play,
    destination: &str,
    work: impl Future<Output = Result<T>>,
) -> (Duration, Result<T>) {
    let holder = play.fresh.connect().await;
    let lock = play.fresh.sql("begin; select from {outbox_cursor} for update");
    holder.batch_execute(&lock).await.expect("the cursors are locked");
    let mut work = pin!(work);
    let asks = "select count(*) from pg_stat_activity a where pg_backend_pid() <> a.pid
        and a.query like '%outbox_cursor%' and a.query like '%{schema}%'";
    let waits = format!("{asks} and a.wait_event_type = 'Lock'");
    let began = Instant::now();
    while play.fresh.number(&waits).await == 0 {
        assert!(began.elapsed() < PATIENCE, "it asks for no lock");
        // waits: the work goes on until it stands behind the lock
        let a_little = tokio::time::sleep(Duration::from_millis(10));
        tokio::select! {
            _ = &mut work => panic!("it waits for no lock"),
            () = a_little => {}
        }
    }
    let began = Instant::now();
    holder.batch_execute("rollback").await.expect("the cursors are free");
    // A row whose lock was given back goes to whoever asks next, not to who waited longest.
    // Where this test stands still as well, the server may have ended it by now: then nothing of it waits any more.
    let waits_yet = format!("{asks} and a.state = 'active'");
    while play.fresh.number(&waits_yet).await > 0 {
        assert!(began.elapsed() < PATIENCE, "it got no lock");
    }
    let save = play.fresh.sql(&format!(
        "set lock_timeout = '100ms';
        select from {{outbox_cursor}} where destination = '{destination}' for no key update"
    ));
    while holder.batch_execute(&save).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "settlements are kept back");
    }
    (began.elapsed(), work.await)
}

fn ended(kept: Duration, error: &postrider_core::Error) {
    assert!(kept > Duration::from_secs(2), "the control: it stood in their way, {kept:?}");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("stood still in a transaction"), "{error}");
}

/// R100: an erasure that stands still keeps settlements back for some seconds. Of the batch that it was at nothing was
/// done, it says so, and done again it finishes.
#[tokio::test]
async fn an_erasure_that_stands_still_is_ended_by_the_server() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    play.commit(&[of_type("order.placed", 1), of_type("order.placed", 2)]).await;
    let events = play.fetch("a").await;
    let key = events[0].event.as_ref().expect("an event").key();
    let note = note();
    let (kept, erased) = stands_still(&play, "a", play.store.erase(&key, &note)).await;
    ended(kept, &erased.expect_err("it was ended"));
    play.settle("a", &[Act::Ack]).await;
    let left = "select count(*) from {outbox} where erased_at is not null";
    assert_eq!(play.fresh.number(left).await, 0);
    assert_eq!(told(&play.audited().await), []);
    assert!(play.store.erase(&key, &note).await.expect("it is erased").outbox > 0);
}

/// R101: a removal that stands still keeps settlements back for some seconds, and the destination stays with its cursors.
#[tokio::test]
async fn a_removal_that_stands_still_is_ended_by_the_server() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    play.commit(&[of_type("order.placed", 1)]).await;
    let before = play.store.destinations().await.expect("the destinations");
    let remove = DefinitionChange { remove: vec![id("a")], ..DefinitionChange::default() };
    let removing = OutboxSource::apply(&play.store, &remove);
    let (kept, removed) = stands_still(&play, "a", removing).await;
    ended(kept, &removed.expect_err("it was ended"));
    assert_eq!(play.store.destinations().await.expect("the destinations"), before);
    play.settle("a", &[Act::Ack]).await;
    let cursors = "select count(*) from {outbox_cursor} where destination = 'a'";
    assert_eq!(play.fresh.number(cursors).await, 1);
    assert!(
        OutboxSource::apply(&play.store, &remove).await.expect("it is removed") > before.version
    );
}
