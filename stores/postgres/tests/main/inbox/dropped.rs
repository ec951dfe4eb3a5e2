//! Handlers that are dropped while the server is at their statement, as the engine does with one that works too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{Delivery, Event};
use postrider_postgres::{Options, Pooler, Transactional};

use super::receiver::{act, delivery};
use super::{handler, incoming, with_effects};
use crate::support::Fresh;

/// Less than a session waits for a marker: of these sessions, 60 s.
const SOON: Duration = Duration::from_secs(45);

/// Counts the receiver's sessions, of which something is true.
fn count(fresh: &Fresh) -> String {
    format!(
        "select count(*) from pg_stat_activity where application_name = 'receiver of {}' and",
        fresh.names.schema()
    )
}

async fn sessions(fresh: &Fresh, condition: &str) -> i64 {
    fresh.number(&format!("{} {condition}", count(fresh))).await
}

async fn until(fresh: &Fresh, condition: &str, count: i64) {
    while sessions(fresh, condition).await != count {
        tokio::task::yield_now().await;
    }
}

fn at(fresh: &Fresh) -> (String, Options) {
    let name = format!("receiver%20of%20{}", fresh.names.schema());
    let mut options = fresh.options();
    // Known, so that no second session looks what is in between.
    (options.transactions_max, options.pooler) = (1, Pooler::None);
    // A statement of theirs must not end before one that waits for its marker would be told from it.
    options.statement_deadline = SOON * 2;
    let of = format!("application_name={name}&options=-c%20lock_timeout%3D60s");
    (fresh.url_with(&of), options)
}

/// Drops a delivery when its statement sleeps.
async fn drop_asleep(fresh: &Fresh, receiver: &Transactional, of: (&Arc<Event>, &Delivery)) {
    tokio::select! {
        answer = receiver.receive(of.0, of.1) => panic!("it sleeps: {answer:?}"),
        () = until(fresh, "wait_event = 'PgSleep'", 1) => {}
    }
}

/// R074, INV-5: a handler that is dropped takes its statement along: no session of it is left beside the next one's, and its
/// event does not wait for its own marker.
#[tokio::test]
async fn a_statement_is_ended_with_its_handler() {
    for begun_before in [false, true] {
        let Some(fresh) = with_effects().await else { return };
        let (url, mut options) = at(&fresh);
        options.group_max = if begun_before { 1 } else { 16 };
        let (names, sleeps) = (fresh.names.clone(), Arc::new(AtomicBool::new(true)));
        let sleep = Arc::clone(&sleeps);
        let receiver = Transactional::with(&url, &options, handler("billing"), move |tx, event| {
            let (names, sleeps) = (names.clone(), sleep.load(Ordering::Relaxed));
            Box::pin(async move {
                act(&names, tx, event).await?;
                if sleeps {
                    tx.batch_execute("select pg_sleep(600)").await?;
                }
                Ok(Verdict::Done)
            })
        })
        .unwrap();
        let event = incoming(1);
        let mut delivery = delivery(&event);
        delivery.begun_before = begun_before;
        let all = async {
            for _ in 0..3 {
                drop_asleep(&fresh, &receiver, (&event, &delivery)).await;
                receiver.at_rest().await;
                assert_eq!(sessions(&fresh, "xact_start is not null").await, 0, "at rest");
            }
            drop_asleep(&fresh, &receiver, (&event, &delivery)).await;
            sleeps.store(false, Ordering::Relaxed);
            assert_eq!(receiver.receive(&event, &delivery).await.unwrap(), Verdict::Done);
            until(&fresh, "true", 1).await;
        };
        tokio::time::timeout(SOON, all).await.expect("nothing waits for a statement of before");
        assert_eq!(fresh.number("select count(*) from {schema}.effects").await, 1);
    }
}

/// INV-5: the permit of a handler that was dropped is nobody's before its statement has ended: there are never more
/// transactions than the options say.
#[tokio::test]
async fn a_statement_that_lasts_keeps_its_place() {
    let Some(fresh) = with_effects().await else { return };
    let (url, options) = at(&fresh);
    let count = format!("{} xact_start is not null", count(&fresh));
    let receiver = Transactional::with(&url, &options, handler("billing"), move |tx, event| {
        let count = count.clone();
        let sleeps = event.id == incoming(1).id;
        Box::pin(async move {
            if sleeps {
                tx.batch_execute("select pg_sleep(600)").await?;
            }
            let open: i64 = tx.query_one(&count, &[]).await?.get(0);
            assert_eq!(open, 1, "its own alone");
            Ok(Verdict::Done)
        })
    })
    .unwrap();
    let all = async {
        for number in 2..8 {
            let (sleeper, other) = (incoming(1), incoming(number));
            drop_asleep(&fresh, &receiver, (&sleeper, &delivery(&sleeper))).await;
            let answer = receiver.receive(&other, &delivery(&other)).await;
            assert_eq!(answer.unwrap(), Verdict::Done);
        }
    };
    tokio::time::timeout(SOON, all).await.expect("nothing waits for a statement of before");
}

/// INV-5: a commit is not cancelled, whoever is dropped: what waits for a standby would become visible without having reached it.
#[tokio::test]
async fn a_commit_is_left_to_its_end() {
    let Some(fresh) = with_effects().await else { return };
    fresh
        .run(
            "create function {schema}.nap() returns trigger language plpgsql as
                $$ begin perform pg_sleep(0.5); return null; end $$;
            create constraint trigger nap after insert on {schema}.effects
                deferrable initially deferred for each row execute function {schema}.nap()",
        )
        .await;
    let (url, options) = at(&fresh);
    let names = fresh.names.clone();
    let receiver = Transactional::with(&url, &options, handler("billing"), move |tx, event| {
        let names = names.clone();
        Box::pin(async move { act(&names, tx, event).await.map(|()| Verdict::Done) })
    })
    .unwrap();
    let event = incoming(1);
    drop_asleep(&fresh, &receiver, (&event, &delivery(&event))).await;
    receiver.at_rest().await;
    until(&fresh, "true", 0).await;
    assert_eq!(fresh.number("select count(*) from {schema}.effects").await, 1);
    let again = receiver.receive(&event, &delivery(&event)).await;
    assert_eq!(again.unwrap(), Verdict::Duplicate);
}
