//! Groups that are broken off: by the server, the network, or whoever does not wait any longer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{ErrorKind, EventId};
use postrider_postgres::Transactional;
use postrider_testkit::proxy::{Proxy, Traffic};
use tokio::sync::oneshot;

use super::groups::{deliver, deliver_until_done, effects, events, grouped, once};
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
    (options.group_max, options.statement_deadline) = (16, Duration::from_secs(10));
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
                $$ begin perform pg_sleep(15); raise exception 'at last'; end $$;
            create constraint trigger hang after insert on {schema}.effects
                deferrable initially deferred for each row when (new.event like '%0007')
                execute function {schema}.hang()",
        )
        .await;
    let names = fresh.names.clone();
    let mut options = fresh.options();
    (options.group_max, options.statement_deadline) = (16, Duration::from_secs(10));
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

/// Less than a group may take by itself: then it was not that which ended it.
const AT_ONCE: Duration = Duration::from_secs(4);

/// R074: one whose engine does not wait for it any longer, in the middle of the group: the one that is at work, or one
/// that was not called yet. Nothing of it is left, and the others are done, at once where the machine is.
#[tokio::test]
async fn one_that_goes_away_is_not_done_and_the_others_are() {
    for goes in [1, 3] {
        let mut took = Vec::new();
        while took.last().is_none_or(|took| *took >= AT_ONCE) {
            assert!(took.len() < 5, "not before the group had no more time: {took:?}");
            let Some(fresh) = with_effects().await else { return };
            took.push(without_one_that_goes(&fresh, goes).await);
        }
    }
}

/// Delivers four, of which the first hangs and one goes away: how long the others took.
async fn without_one_that_goes(fresh: &Fresh, goes: u128) -> Duration {
    let (begun, has_begun) = oneshot::channel();
    let receiver = hanging(fresh, 1, begun);
    let gone = incoming(goes);
    let delivery = delivery(&gone);
    let others: Vec<_> = events(0..4).into_iter().filter(|event| event.id != gone.id).collect();
    let leaves = async {
        tokio::select! {
            verdict = receiver.receive(&gone, &delivery) => panic!("{verdict:?}"),
            _ = has_begun => {}
        }
    };
    let began = Instant::now();
    let all = async { tokio::join!(deliver(&receiver, &others), leaves).0 };
    let verdicts = tokio::time::timeout(Duration::from_secs(60), all).await.expect("an end");
    let took = began.elapsed();
    for verdict in verdicts {
        assert_eq!(verdict.unwrap(), Verdict::Done);
    }
    let mut expected = once(0..4);
    expected.remove(&goes);
    assert_eq!(effects(fresh).await, expected);
    assert_eq!(deliver_until_done(&receiver, &[gone]).await, 1, "it comes again");
    assert_eq!(effects(fresh).await, once(0..4));
    took
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
