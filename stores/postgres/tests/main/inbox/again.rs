//! Deliveries of which there were suspiciously many, to a handler in a transaction: what its database user may do, and what
//! the event does to its session.

use std::sync::Arc;

use postrider_core::inbox::{DELIVERIES_MAX, Receiver, Verdict};
use postrider_core::{Event, Fault, Result};
use postrider_postgres::Transactional;

use super::receiver::{delivery, receiver};
use super::{handler, incoming, with_effects};

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
    let mut began = 0;
    for count in 1..=2 * DELIVERIES_MAX {
        let answer = delivered(&deadly, &event, count).await;
        if is_refused(&answer) {
            break;
        }
        assert!(answer.is_err(), "nobody's fault, for all that is known: {answer:?}");
        began += 1;
    }
    assert_eq!(began, DELIVERIES_MAX);
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
