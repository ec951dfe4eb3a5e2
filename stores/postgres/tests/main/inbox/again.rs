//! Deliveries of which there were suspiciously many, to a handler in a transaction: what its database user may do, and what
//! the event does to its session.

use std::sync::Arc;

use postrider_core::inbox::{DELIVERIES_MAX, Receiver, Verdict, usual_deliveries};
use postrider_core::{Delivery, ErrorKind, Event, Fault, Result};
use postrider_postgres::Transactional;

use super::receiver::{delivery, receiver};
use super::{handler, incoming, with_effects};
use crate::support::Fresh;

async fn delivered(receiver: &Transactional, event: &Arc<Event>, count: u32) -> Result<Verdict> {
    let mut delivery = delivery(event);
    delivery.count = count;
    receiver.receive(event, &delivery).await
}

fn is_refused(answer: &Result<Verdict>) -> bool {
    matches!(answer, Ok(Verdict::Reject(fault)) if fault.detail.contains("may stop the consumer"))
}

/// F18: an event whose statements end their session each time looks like an outage of the database. That counts only where the
/// database took a claim a moment before, and so it is refused at last.
#[tokio::test]
async fn what_ends_its_own_session_is_refused_at_last() {
    let Some(fresh) = with_effects().await else { return };
    let deadly = receiver(&fresh, "billing", |tx, _| {
        Box::pin(async move {
            tx.batch_execute("select pg_terminate_backend(pg_backend_pid())").await?;
            Ok(Verdict::Done)
        })
    });
    let event = incoming(1);
    for count in 1..=2 * DELIVERIES_MAX {
        let answer = delivered(&deadly, &event, count).await;
        match count.checked_sub(usual_deliveries(DELIVERIES_MAX)).filter(|over| *over > 0) {
            None => assert!(answer.is_err(), "nobody's fault, for all that is known: {answer:?}"),
            // The engine gives up at its number of attempts.
            Some(nth) => assert!(
                matches!(answer, Ok(Verdict::Retry { tries: Some(tries), .. }) if tries == nth),
                "{answer:?}"
            ),
        }
    }
}

/// What a process that is gone may have begun.
fn of_another(event: &Arc<Event>) -> Delivery {
    let mut delivery = delivery(event);
    delivery.begun_before = true;
    delivery
}

async fn counts(fresh: &Fresh) -> (i64, i64) {
    let lost = "select (attempts - failed)::bigint from {inbox}";
    (fresh.number("select attempts::bigint from {inbox}").await, fresh.number(lost).await)
}

/// INV-1: nobody died of an event whose handler was dropped, as at the end of a drain, or whose statement the database's owner ended.
#[tokio::test]
async fn what_was_broken_off_has_ended_nobody() {
    let Some(fresh) = with_effects().await else { return };
    let begun = Arc::new(tokio::sync::Notify::new());
    let begins = Arc::clone(&begun);
    let hanging = receiver(&fresh, "billing", move |_, _| {
        begins.notify_one();
        Box::pin(std::future::pending())
    });
    let slow = receiver(&fresh, "billing", |tx, _| {
        Box::pin(async move {
            tx.batch_execute("set local statement_timeout = 20; select pg_sleep(5)").await?;
            Ok(Verdict::Done)
        })
    });
    let event = incoming(1);
    let delivery = of_another(&event);
    for _ in 0..DELIVERIES_MAX {
        tokio::select! {
            ended = hanging.receive(&event, &delivery) => panic!("it hangs: {ended:?}"),
            () = begun.notified() => {}
        }
        hanging.at_rest().await;
        assert_eq!(counts(&fresh).await, (0, 0), "as soon as the receiver says that it is at rest");
        let ended = slow.receive(&event, &delivery).await;
        assert!(!is_refused(&ended), "{ended:?}");
    }
    let done = receiver(&fresh, "billing", |_, _| Box::pin(async { Ok(Verdict::Done) }));
    assert_eq!(done.receive(&event, &delivery).await.unwrap(), Verdict::Done);
}

/// INV-1: a database that takes claims and answers too late has begun nothing; the process that asked knows that it lives.
#[tokio::test]
async fn a_claim_that_was_answered_too_late_is_held_against_nobody() {
    let Some(fresh) = with_effects().await else { return };
    fresh
        .run(
            "create function {schema}.slow() returns trigger language plpgsql as
                 $$ begin perform pg_sleep(0.4); return new; end $$;
             create trigger slow before insert or update on {inbox}
                 for each row execute function {schema}.slow()",
        )
        .await;
    let mut options = fresh.options();
    options.statement_deadline = std::time::Duration::from_millis(200);
    let acts = Transactional::with(&fresh.url, &options, handler("billing"), |_, _| {
        Box::pin(async { Ok(Verdict::Done) })
    });
    let (acts, event) = (acts.unwrap(), incoming(1));
    for _ in 0..usual_deliveries(DELIVERIES_MAX) + 1 {
        let late = acts.receive(&event, &of_another(&event)).await;
        assert!(late.is_err(), "{late:?}");
        // waits: until the database has done what it was told, for whoever asks next
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    fresh.run("drop trigger slow on {inbox}").await;
    let (began, mut unheard) = (std::time::Instant::now(), false);
    // A machine that is busy may be too late for this deadline by itself, also with what it has done.
    let ended = loop {
        match acts.receive(&event, &of_another(&event)).await {
            Err(late) if began.elapsed() < std::time::Duration::from_secs(60) => {
                let kinds = [ErrorKind::Timeout, ErrorKind::Unavailable];
                assert!(kinds.contains(&late.kind()), "{late:?}");
                unheard = true;
            }
            ended => break ended.unwrap(),
        }
    };
    assert!(ended == Verdict::Done || unheard && ended == Verdict::Duplicate, "{ended:?}");
}

/// F36: counting takes no session more than acting does; and a user who may write no claims has the broker's count.
#[tokio::test]
async fn counting_needs_no_further_session_and_no_further_right() {
    let Some(fresh) = with_effects().await else { return };
    let role = format!("again_{}", fresh.names.schema());
    fresh
        .run(&format!(
            "create role {role} login connection limit 1;
             revoke execute on all functions in schema {{schema}} from public;
             grant usage on schema {{schema}} to {role};
             grant select, insert, update on all tables in schema {{schema}} to {role};
             grant execute on all functions in schema {{schema}} to {role}"
        ))
        .await;
    let url = fresh.url.replace("postgres@", &format!("{role}@"));
    let mut options = fresh.options();
    options.transactions_max = 1;
    let fault = Fault::new(postrider_core::ErrorKind::Unavailable, "no answer");
    let fails = Transactional::with(&url, &options, handler("billing"), move |_, _| {
        let fault = fault.clone();
        Box::pin(async move { Ok(Verdict::Retry { after: None, fault, tries: None }) })
    })
    .expect("a receiver");
    let tries = |answer: Result<Verdict>| match answer {
        Ok(Verdict::Retry { tries, .. }) => tries,
        other => panic!("{other:?}"),
    };
    assert_eq!(tries(delivered(&fails, &incoming(1), 1).await), None);
    assert_eq!(tries(delivered(&fails, &incoming(1), 300).await), Some(1), "by the one session");
    fresh.run(&format!("revoke execute on function {{inbox_claim}} from {role}")).await;
    let last = DELIVERIES_MAX;
    assert_eq!(tries(delivered(&fails, &incoming(1), last).await), Some(last), "the broker's");
    assert!(is_refused(&delivered(&fails, &incoming(1), last + 1).await));
    drop(fails);
    fresh
        .run(&format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}';
             drop owned by {role}; drop role {role}"
        ))
        .await;
}
