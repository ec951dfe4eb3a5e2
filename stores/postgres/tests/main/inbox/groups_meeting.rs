//! Groups that meet in the same rows: they wait for each other, and each event is done once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::inbox::Verdict;
use postrider_postgres::{Inbox, Transactional};
use tokio::sync::Barrier;
use tokio_postgres::error::SqlState;

use super::groups::{at_level, deliver, deliver_until_done, effects, events, grouped, once};
use super::receiver::act;
use super::{handler, incoming, with_effects};
use crate::support::Fresh;

const TRANSACTIONS: &str = "select count(distinct xmin::text) from {inbox}";

/// R078: groups of two processes that count in the same rows, where the server refuses what does not serialize:
/// each event counts once in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_serialize_is_done_again() {
    let Some(fresh) = with_effects().await else { return };
    fresh.run("create table {schema}.sums (n bigint); insert into {schema}.sums values (0)").await;
    let counting = || {
        let names = fresh.names.clone();
        grouped(&fresh, &at_level(&fresh, "serializable"), move |tx, event| {
            let names = names.clone();
            Box::pin(async move {
                act(&names, tx, event).await?;
                let read = names.render("select n from {schema}.sums");
                let n: i64 = tx.query_one(&read, &[]).await?.get(0);
                let write = names.render("update {schema}.sums set n = $1");
                tx.execute(&write, &[&(n + 1)]).await?;
                Ok(Verdict::Done)
            })
        })
    };
    let (one, two) = (counting(), counting());
    let (left, right) = (events(0..16), events(16..32));
    let ended =
        async { tokio::join!(deliver_until_done(&one, &left), deliver_until_done(&two, &right)) };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("an end");
    assert_eq!(effects(&fresh).await, once(0..32));
    assert_eq!(fresh.number("select n from {schema}.sums").await, 32);
}

/// What the server said against the handlers' statements.
type Refusals = Arc<Mutex<Vec<Option<SqlState>>>>;

/// A handler that changes two rows of the application's, in an order of its own.
fn crossing(
    fresh: &Fresh,
    meets: &Arc<Barrier>,
    refusals: &Refusals,
    rows: [i64; 2],
) -> Transactional {
    let refusals = Arc::clone(refusals);
    let (names, meets) = (fresh.names.clone(), Arc::clone(meets));
    let (calls, first) = (Arc::new(AtomicU32::new(0)), Mutex::new(rows));
    grouped(fresh, &fresh.url, move |tx, event| {
        let (names, meets, rows) = (names.clone(), Arc::clone(&meets), *first.lock().unwrap());
        let refusals = Arc::clone(&refusals);
        let call = calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let row = rows[usize::from(call % 2 == 1)];
            let change = names.render("update {schema}.sums set n = n + 1 where id = $1");
            let changed = tx.execute(&change, &[&row]).await;
            if let Err(error) = &changed {
                refusals.lock().unwrap().push(error.code().cloned());
            }
            changed?;
            if call == 0 {
                // Both groups have their first row.
                meets.wait().await;
            }
            act(&names, tx, event).await.map(|()| Verdict::Done)
        })
    })
}

/// R074: two groups that wait for each other: they give up before the server looks for a deadlock, which it does after a second,
/// and all events of both are done once. Where the server stands still for that second it may look first; not each time.
#[tokio::test]
async fn groups_that_deadlock_end_well() {
    for _ in 0..5 {
        let Some(fresh) = with_effects().await else { return };
        let refusals = deadlocked(&fresh).await;
        assert!(!refusals.is_empty(), "the control: they met");
        let gave_up = |code: &Option<SqlState>| *code == Some(SqlState::LOCK_NOT_AVAILABLE);
        if refusals.iter().all(gave_up) {
            return;
        }
        let server = |code: &Option<SqlState>| *code == Some(SqlState::T_R_DEADLOCK_DETECTED);
        assert!(refusals.iter().all(|code| gave_up(code) || server(code)), "{refusals:?}");
    }
    panic!("the server looked for a deadlock each time");
}

/// Lets two groups wait for each other: what the server said against them.
async fn deadlocked(fresh: &Fresh) -> Vec<Option<SqlState>> {
    fresh
        .run(
            "create table {schema}.sums (id bigint, n bigint);
            insert into {schema}.sums values (1, 0), (2, 0)",
        )
        .await;
    let meets = Arc::new(Barrier::new(2));
    let refusals = Refusals::default();
    let crossing = |rows| crossing(fresh, &meets, &refusals, rows);
    let (one, two) = (crossing([1, 2]), crossing([2, 1]));
    let (left, right) = (events(0..4), events(4..8));
    let both = async { tokio::join!(deliver(&one, &left), deliver(&two, &right)) };
    let both = tokio::time::timeout(Duration::from_secs(60), both).await.expect("an end");
    for verdict in both.0.into_iter().chain(both.1) {
        assert_eq!(verdict.unwrap(), Verdict::Done);
    }
    assert_eq!(effects(fresh).await, once(0..8));
    assert_eq!(fresh.number("select sum(n)::bigint from {schema}.sums").await, 8);
    refusals.lock().unwrap().clone()
}

/// Waits until so many wait for another transaction of this schema's.
async fn until_so_many_wait(fresh: &Fresh, count: i64) {
    let waiting = format!(
        "select count(*) from pg_stat_activity
        where wait_event_type = 'Lock' and query like '%{}%' and pid <> pg_backend_pid()",
        fresh.names.schema()
    );
    while fresh.number(&waiting).await < count {
        tokio::task::yield_now().await;
    }
}

/// A group that waits for a lock for as long as it takes.
fn patient(fresh: &Fresh) -> Transactional {
    let names = fresh.names.clone();
    let url = fresh.url_with("options=-c%20lock_timeout%3D20s");
    grouped(fresh, &url, move |tx, event| {
        let names = names.clone();
        Box::pin(async move { act(&names, tx, event).await.map(|()| Verdict::Done) })
    })
}

/// R004: the same sixteen events in two groups at once, in opposite orders, with somebody in the way of both: no group
/// waits for one that waits for it, so none is broken off, and each event is done once.
#[tokio::test]
async fn the_same_events_in_two_groups_act_once() {
    let Some(fresh) = with_effects().await else { return };
    let mut client = fresh.connect().await;
    let tx = client.transaction().await.unwrap();
    let inbox = Inbox::named(&fresh.names);
    let _ = inbox.accept(&tx, &incoming(8), &handler("billing")).await.unwrap();
    let there = events(0..16);
    let back: Vec<_> = there.iter().rev().map(Arc::clone).collect();
    let (one, two) = (patient(&fresh), patient(&fresh));
    let both = tokio::join!(deliver(&one, &there), deliver(&two, &back), async {
        until_so_many_wait(&fresh, 2).await;
        tx.rollback().await.unwrap();
    });
    let all: Vec<_> = both.0.into_iter().chain(both.1).map(Result::unwrap).collect();
    let done = all.iter().filter(|verdict| **verdict == Verdict::Done).count();
    assert_eq!((done, all.len()), (16, 32), "{all:?}");
    assert!(all.iter().all(|verdict| matches!(verdict, Verdict::Done | Verdict::Duplicate)));
    assert_eq!(effects(&fresh).await, once(0..16));
    assert_eq!(fresh.number(TRANSACTIONS).await, 1);
}
