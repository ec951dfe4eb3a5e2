//! Groups that are broken off: by the server, the network, each other, or whoever does not wait any longer.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{ErrorKind, EventId};
use postrider_postgres::{Inbox, Transactional};
use postrider_testkit::proxy::{Proxy, Traffic};
use tokio::sync::{Barrier, oneshot};

use super::groups::{
    acting, at_level, deliver, deliver_until_done, effects, events, grouped, once,
};
use super::receiver::{act, delivery};
use super::{handler, incoming, with_effects};
use crate::support::Fresh;

const TRANSACTIONS: &str = "select count(distinct xmin::text) from {inbox}";

/// R074: a group whose session is killed in the middle leaves nothing, and each of it is done alone.
#[tokio::test]
async fn a_session_that_is_killed_takes_nothing_along() {
    let Some(fresh) = with_effects().await else { return };
    let (names, killed) = (fresh.names.clone(), Arc::new(AtomicBool::new(false)));
    let receiver = grouped(&fresh, &fresh.url, move |tx, event| {
        let (names, killed) = (names.clone(), Arc::clone(&killed));
        Box::pin(async move {
            act(&names, tx, event).await?;
            if event.id == EventId::from_u128(5) && !killed.swap(true, Ordering::Relaxed) {
                // Says nothing of it, as where the server kills it between two statements.
                _ = tx.batch_execute("select pg_terminate_backend(pg_backend_pid())").await;
            }
            Ok(Verdict::Done)
        })
    });
    for verdict in deliver(&receiver, &events(0..16)).await {
        assert_eq!(verdict.unwrap(), Verdict::Done);
    }
    assert_eq!(effects(&fresh).await, once(0..16));
    assert_eq!(fresh.number(TRANSACTIONS).await, 16, "each by itself");
}

/// R074: a commit that the server refuses is nobody's but his for whom it does: here a constraint that is looked at in the end.
#[tokio::test]
async fn a_commit_that_is_refused_commits_the_others() {
    let Some(fresh) = with_effects().await else { return };
    fresh
        .run(
            "alter table {schema}.effects add column slot text,
                add unique (slot) deferrable initially deferred;
            insert into {schema}.effects values ('taken', 'taken')",
        )
        .await;
    let names = fresh.names.clone();
    let receiver = grouped(&fresh, &fresh.url, move |tx, event| {
        let names = names.clone();
        Box::pin(async move {
            act(&names, tx, event).await?;
            if event.id == EventId::from_u128(7) {
                let slot =
                    names.render("update {schema}.effects set slot = 'taken' where event = $1");
                tx.execute(&slot, &[&event.id.to_string()]).await?;
            }
            Ok(Verdict::Done)
        })
    });
    for (number, verdict) in deliver(&receiver, &events(0..16)).await.into_iter().enumerate() {
        match number {
            7 => assert!(!matches!(verdict, Ok(Verdict::Done | Verdict::Duplicate)), "{verdict:?}"),
            _ => assert_eq!(verdict.unwrap(), Verdict::Done, "{number}"),
        }
    }
    assert_eq!(fresh.number("select count(*) from {inbox}").await, 15);
    assert_eq!(fresh.number("select count(*) from {schema}.effects").await, 16);
}

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

/// A handler that changes two rows of the application's, in an order of its own.
fn crossing(fresh: &Fresh, meets: &Arc<Barrier>, rows: [i64; 2]) -> Transactional {
    let (names, meets) = (fresh.names.clone(), Arc::clone(meets));
    let (calls, first) = (Arc::new(AtomicU32::new(0)), Mutex::new(rows));
    grouped(fresh, &fresh.url, move |tx, event| {
        let (names, meets, rows) = (names.clone(), Arc::clone(&meets), *first.lock().unwrap());
        let call = calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let row = rows[usize::from(call % 2 == 1)];
            let change = names.render("update {schema}.sums set n = n + 1 where id = $1");
            tx.execute(&change, &[&row]).await?;
            if call == 0 {
                // Both groups have their first row.
                meets.wait().await;
            }
            act(&names, tx, event).await.map(|()| Verdict::Done)
        })
    })
}

/// R074: two groups that wait for each other: the server ends one of them, and all events of both are done once.
#[tokio::test]
async fn groups_that_deadlock_end_well() {
    let Some(fresh) = with_effects().await else { return };
    fresh
        .run(
            "create table {schema}.sums (id bigint, n bigint);
            insert into {schema}.sums values (1, 0), (2, 0)",
        )
        .await;
    let meets = Arc::new(Barrier::new(2));
    let (one, two) = (crossing(&fresh, &meets, [1, 2]), crossing(&fresh, &meets, [2, 1]));
    let (left, right) = (events(0..4), events(4..8));
    let both = async { tokio::join!(deliver(&one, &left), deliver(&two, &right)) };
    let both = tokio::time::timeout(Duration::from_secs(60), both).await.expect("an end");
    for verdict in both.0.into_iter().chain(both.1) {
        assert_eq!(verdict.unwrap(), Verdict::Done);
    }
    assert_eq!(effects(&fresh).await, once(0..8));
    assert_eq!(fresh.number("select sum(n)::bigint from {schema}.sums").await, 8);
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
    let (one, two) = (acting(&fresh), acting(&fresh));
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

/// R074, R080: a commit whose answer is lost: none of the group hears that it was done, nothing counts against
/// it, and all of it finds its markers when it comes again.
#[tokio::test]
async fn a_commit_without_an_answer_is_found_again() {
    let Some(fresh) = with_effects().await else { return };
    let port = fresh.url.rsplit(':').next().and_then(|rest| rest.split('/').next());
    let proxy = Arc::new(Proxy::to(port.and_then(|port| port.parse().ok()).unwrap()).await);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port);
    let (names, network) = (fresh.names.clone(), Arc::clone(&proxy));
    let mut options = fresh.options();
    (options.group_max, options.statement_deadline) = (16, Duration::from_secs(1));
    let receiver = Transactional::with(&url, &options, handler("billing"), move |tx, event| {
        let (names, network) = (names.clone(), Arc::clone(&network));
        Box::pin(async move {
            act(&names, tx, event).await?;
            if event.id == EventId::from_u128(15) {
                network.set(Traffic::AnswersLost);
            }
            Ok(Verdict::Done)
        })
    })
    .unwrap();
    for answer in deliver(&receiver, &events(0..16)).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Timeout);
    }
    proxy.set(Traffic::Open);
    assert_eq!(deliver_until_done(&receiver, &events(0..16)).await, 0, "all were done");
    assert_eq!(effects(&fresh).await, once(0..16));
    assert_eq!(fresh.number(TRANSACTIONS).await, 1);
}

/// INV-5: one whose commit takes longer than is waited for keeps its neighbours once, and goes alone from then on.
#[tokio::test]
async fn a_commit_without_an_end_is_not_shared_twice() {
    let Some(fresh) = with_effects().await else { return };
    fresh
        .run(
            "create function {schema}.hang() returns trigger language plpgsql as
                $$ begin perform pg_sleep(1.5); raise exception 'at last'; end $$;
            create constraint trigger hang after insert on {schema}.effects
                deferrable initially deferred for each row when (new.event like '%0007')
                execute function {schema}.hang()",
        )
        .await;
    let names = fresh.names.clone();
    let mut options = fresh.options();
    (options.group_max, options.statement_deadline) = (16, Duration::from_secs(1));
    let receiver =
        Transactional::with(&fresh.url, &options, handler("billing"), move |tx, event| {
            let names = names.clone();
            Box::pin(async move { act(&names, tx, event).await.map(|()| Verdict::Done) })
        })
        .unwrap();
    for answer in deliver(&receiver, &events(0..16)).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Timeout, "the control: they share it");
    }
    // The markers are locked until the server is through with that commit.
    for _ in 0..2 {
        _ = deliver(&receiver, &events(0..16)).await;
    }
    let mut others = once(0..16);
    others.remove(&7);
    assert_eq!(effects(&fresh).await, others);
}

/// A handler of which the first call for one event never ends, and says that it has begun.
fn hanging(fresh: &Fresh, number: u128, begun: oneshot::Sender<()>) -> Transactional {
    let (names, begun) = (fresh.names.clone(), Mutex::new(Some(begun)));
    grouped(fresh, &fresh.url, move |tx, event| {
        let hangs = event.id == EventId::from_u128(number);
        let (names, begun) = (names.clone(), hangs.then(|| begun.lock().unwrap().take()).flatten());
        Box::pin(async move {
            act(&names, tx, event).await?;
            if let Some(begun) = begun {
                _ = begun.send(());
                std::future::pending::<()>().await;
            }
            Ok(Verdict::Done)
        })
    })
}

/// R074: one whose engine does not wait for it any longer, in the middle of the group: the one that is at work, or one
/// that was not called yet. Nothing of it is left, and the others are done.
#[tokio::test]
async fn one_that_goes_away_is_not_done_and_the_others_are() {
    for goes in [1, 3] {
        let Some(fresh) = with_effects().await else { return };
        let (begun, has_begun) = oneshot::channel();
        let receiver = hanging(&fresh, 1, begun);
        let gone = incoming(goes);
        let delivery = delivery(&gone);
        let others: Vec<_> = events(0..4).into_iter().filter(|event| event.id != gone.id).collect();
        let leaves = async {
            tokio::select! {
                verdict = receiver.receive(&gone, &delivery) => panic!("{verdict:?}"),
                _ = has_begun => {}
            }
        };
        let all = async { tokio::join!(deliver(&receiver, &others), leaves).0 };
        let verdicts = tokio::time::timeout(Duration::from_secs(4), all).await.expect("an end");
        for verdict in verdicts {
            assert_eq!(verdict.unwrap(), Verdict::Done);
        }
        let mut expected = once(0..4);
        expected.remove(&goes);
        assert_eq!(effects(&fresh).await, expected);
        assert_eq!(deliver_until_done(&receiver, &[gone]).await, 1, "it comes again");
        assert_eq!(effects(&fresh).await, once(0..4));
    }
}

/// A handler that hangs holds its neighbours for as long as a group may take, and no longer.
#[tokio::test]
async fn a_handler_that_hangs_does_not_hold_its_neighbours_for_ever() {
    let Some(fresh) = with_effects().await else { return };
    let (begun, _has_begun) = oneshot::channel();
    let receiver = hanging(&fresh, 1, begun);
    let all = events(0..4);
    let all = deliver(&receiver, &all);
    let verdicts = tokio::time::timeout(Duration::from_secs(30), all).await.expect("an end");
    for verdict in verdicts {
        assert_eq!(verdict.unwrap(), Verdict::Done);
    }
    assert_eq!(effects(&fresh).await, once(0..4));
}

/// R074: a statement that hangs is ended with its group, and does not hold the markers of those who go alone.
#[tokio::test]
async fn a_statement_that_hangs_is_cancelled_with_its_group() {
    let Some(fresh) = with_effects().await else { return };
    let (names, hung) = (fresh.names.clone(), Arc::new(AtomicBool::new(false)));
    let receiver = grouped(&fresh, &fresh.url, move |tx, event| {
        let (names, hung) = (names.clone(), Arc::clone(&hung));
        Box::pin(async move {
            act(&names, tx, event).await?;
            if event.id == EventId::from_u128(1) && !hung.swap(true, Ordering::Relaxed) {
                tx.batch_execute("select pg_sleep(600)").await?;
            }
            Ok(Verdict::Done)
        })
    });
    let all = events(0..4);
    let all = deliver(&receiver, &all);
    let verdicts = tokio::time::timeout(Duration::from_secs(30), all).await.expect("an end");
    for verdict in verdicts {
        assert_eq!(verdict.unwrap(), Verdict::Done);
    }
    assert_eq!(effects(&fresh).await, once(0..4));
}

/// R074: one whose own commit need not wait for the disk does not speak for its neighbours; one that asks for more gets it.
#[tokio::test]
async fn a_group_is_as_durable_as_its_members_are_alone() {
    for (set, kept) in [("off", "on"), ("remote_apply", "remote_apply")] {
        let Some(fresh) = with_effects().await else { return };
        // At the commit itself.
        fresh
            .run(
                "create table {schema}.seen (setting text);
                create function {schema}.see() returns trigger language plpgsql as $$
                begin
                    execute format('insert into %I.seen values (current_setting(''synchronous_commit''))',
                        tg_table_schema);
                    return null;
                end $$;
                create constraint trigger see after insert on {schema}.effects
                    deferrable initially deferred for each row execute function {schema}.see()",
            )
            .await;
        let names = fresh.names.clone();
        let receiver = grouped(&fresh, &fresh.url, move |tx, event| {
            let names = names.clone();
            Box::pin(async move {
                act(&names, tx, event).await?;
                if event.id == EventId::from_u128(1) {
                    let set = format!("set local synchronous_commit = {set}");
                    tx.batch_execute(&set).await?;
                }
                Ok(Verdict::Done)
            })
        });
        for verdict in deliver(&receiver, &events(0..4)).await {
            assert_eq!(verdict.unwrap(), Verdict::Done);
        }
        assert_eq!(fresh.number(TRANSACTIONS).await, 1, "one for all");
        let other = format!("select count(*) from {{schema}}.seen where setting <> '{kept}'");
        assert_eq!((fresh.number(&other).await, effects(&fresh).await), (0, once(0..4)));
    }
}
