//! Several deliveries in one transaction: what they share, and that whatever becomes of one is nobody else's.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{BoxFuture, Delivery, ErrorKind, Event, EventId, Fault, Payload, Result};
use postrider_postgres::{HandlerError, Transactional};
use tokio_postgres::Transaction;

use super::receiver::{act, delivery};
use super::{handler, incoming, with_effects};
use crate::support::Fresh;

/// As large as any group of these tests.
const GROUP_MAX: usize = 16;

/// A receiver in groups, at an address.
pub(super) fn grouped(
    fresh: &Fresh,
    url: &str,
    handle: impl for<'a> Fn(
        &'a Transaction<'a>,
        &'a Event,
    ) -> BoxFuture<'a, Result<Verdict, HandlerError>>
    + Send
    + Sync
    + 'static,
) -> Transactional {
    let mut options = fresh.options();
    options.group_max = GROUP_MAX;
    Transactional::with(url, &options, handler("billing"), handle).expect("a receiver")
}

pub(super) fn acting(fresh: &Fresh) -> Transactional {
    let names = fresh.names.clone();
    grouped(fresh, &fresh.url, move |tx, event| {
        let names = names.clone();
        Box::pin(async move { act(&names, tx, event).await.map(|()| Verdict::Done) })
    })
}

pub(super) fn events(numbers: std::ops::Range<u128>) -> Vec<Arc<Event>> {
    numbers.map(incoming).collect()
}

/// Delivers all at the same moment. This test's thread polls all of them before it does anything else, so that
/// they find each other.
pub(super) async fn deliver(
    receiver: &dyn Receiver,
    events: &[Arc<Event>],
) -> Vec<Result<Verdict>> {
    let deliveries: Vec<Delivery> = events.iter().map(delivery).collect();
    join_all(
        events.iter().zip(&deliveries).map(|(event, delivery)| receiver.receive(event, delivery)),
    )
    .await
}

/// The same until each is done, and how often each was.
pub(super) async fn deliver_until_done(receiver: &dyn Receiver, events: &[Arc<Event>]) -> u32 {
    let mut left = events.to_vec();
    let mut done = 0;
    for _ in 0..20 {
        let answers = deliver(receiver, &left).await;
        let mut answers = answers.into_iter();
        left.retain(|_| match answers.next() {
            Some(Ok(Verdict::Done)) => {
                done += 1;
                false
            }
            Some(Ok(Verdict::Duplicate)) => false,
            Some(Ok(other)) => panic!("it counts against the event: {other:?}"),
            Some(Err(_)) | None => true,
        });
        if left.is_empty() {
            return done;
        }
    }
    panic!("{} are never done", left.len());
}

/// How often each event had its effect, by its number.
pub(super) async fn effects(fresh: &Fresh) -> BTreeMap<u128, i64> {
    let client = fresh.session().await;
    let all = fresh.sql("select event, count(*) from {schema}.effects group by event");
    let rows = client.query(&all, &[]).await.expect("the effects");
    fresh.keep(client);
    rows.iter()
        .map(|row| {
            (row.get::<_, String>(0).parse::<EventId>().expect("an id").as_u128(), row.get(1))
        })
        .collect()
}

pub(super) fn once(numbers: impl IntoIterator<Item = u128>) -> BTreeMap<u128, i64> {
    numbers.into_iter().map(|number| (number, 1)).collect()
}

const TRANSACTIONS: &str = "select count(distinct xmin::text) from {inbox}";

/// R074, R007: the markers, changes, and new events of a group are one transaction's.
#[tokio::test]
async fn a_group_commits_once() {
    let Some(fresh) = with_effects().await else { return };
    let all = events(0..16);
    for verdict in deliver(&acting(&fresh), &all).await {
        assert_eq!(verdict.unwrap(), Verdict::Done);
    }
    assert_eq!(effects(&fresh).await, once(0..16));
    for table in ["{inbox}", "{schema}.effects", "{outbox}"] {
        let transactions = format!("select count(distinct xmin::text) from {table}");
        assert_eq!(fresh.number(&transactions).await, 1, "{table}");
    }
    assert_eq!(fresh.number("select count(*) from {outbox}").await, 16);
}

/// Without company nobody waits for it, what the broker delivers again is done alone, and so is everything by default.
#[tokio::test]
async fn who_is_alone_goes_alone() {
    let Some(fresh) = with_effects().await else { return };
    let receiver = acting(&fresh);
    assert_eq!(deliver(&receiver, &events(0..1)).await[0].as_ref().unwrap(), &Verdict::Done);
    let again = events(1..4);
    let mut deliveries: Vec<Delivery> = again.iter().map(delivery).collect();
    deliveries.iter_mut().for_each(|delivery| delivery.count = 2);
    let answers =
        again.iter().zip(&deliveries).map(|(event, delivery)| receiver.receive(event, delivery));
    for verdict in join_all(answers).await {
        assert_eq!(verdict.unwrap(), Verdict::Done);
    }
    let usual = super::receiver::acting(&fresh, "billing");
    for verdict in deliver(&usual, &events(4..7)).await {
        assert_eq!(verdict.unwrap(), Verdict::Done);
    }
    assert_eq!(fresh.number(TRANSACTIONS).await, 7);
    assert_eq!(effects(&fresh).await, once(0..7));
}

/// What one of a group may do.
#[derive(Clone, Copy, Debug)]
enum Poison {
    Retry,
    Reject,
    Busy,
    Error,
    Panic,
    Statement,
    HiddenStatement,
    Rollback,
    RollbackAndBegin,
}

impl Poison {
    async fn spoil(self, tx: &Transaction<'_>) -> Result<Verdict, HandlerError> {
        let fault = Fault::new(ErrorKind::Rejected, "no such customer");
        match self {
            Poison::Retry => Ok(Verdict::Retry { after: None, fault, tries: None }),
            Poison::Reject => Ok(Verdict::Reject(fault)),
            Poison::Busy => Ok(Verdict::Busy { retry_in: std::time::Duration::ZERO }),
            Poison::Error => Err("the printer is on fire".into()),
            Poison::Panic => panic!("out of paper"),
            Poison::Statement => Ok(tx
                .batch_execute("insert into nowhere values (1)")
                .await
                .map(|()| Verdict::Done)?),
            Poison::HiddenStatement => {
                _ = tx.batch_execute("insert into nowhere values (1)").await;
                Ok(Verdict::Done)
            }
            Poison::Rollback => Ok(tx.batch_execute("rollback").await.map(|()| Verdict::Done)?),
            Poison::RollbackAndBegin => {
                Ok(tx.batch_execute("rollback; begin").await.map(|()| Verdict::Done)?)
            }
        }
    }
}

/// R073, R074: one poison among sixteen: the others are done, once each, the poison gets the verdict that it
/// gets alone, and nothing is left of it.
#[tokio::test]
async fn a_poison_among_sixteen_is_nobody_elses() {
    let Some(fresh) = with_effects().await else { return };
    let kinds = [
        Poison::Retry,
        Poison::Reject,
        Poison::Busy,
        Poison::Error,
        Poison::Panic,
        Poison::Statement,
        Poison::HiddenStatement,
        Poison::Rollback,
        Poison::RollbackAndBegin,
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let (first, names) = (100 * at as u128, fresh.names.clone());
        let receiver = grouped(&fresh, &fresh.url, move |tx, event| {
            let names = names.clone();
            Box::pin(async move {
                // Before and after what spoils: neither may be left.
                if event.id == EventId::from_u128(first + 7) {
                    return kind.spoil(tx).await;
                }
                act(&names, tx, event).await.map(|()| Verdict::Done)
            })
        });
        let answers = deliver(&receiver, &events(first..first + 16)).await;
        for (number, answer) in answers.iter().enumerate() {
            match (kind, answer) {
                (_, answer) if number != 7 => {
                    assert_eq!(answer.as_ref().unwrap(), &Verdict::Done, "{kind:?} {number}");
                }
                (Poison::Busy, Ok(Verdict::Busy { .. }))
                | (Poison::Reject, Ok(Verdict::Reject(_)))
                | (Poison::Rollback, Err(_)) => {}
                // Whatever it hears alone, where it looks like a transaction.
                (Poison::RollbackAndBegin, _) => {}
                (Poison::Busy | Poison::Reject | Poison::Rollback, other) => {
                    panic!("{kind:?}: {other:?}")
                }
                (_, other) => {
                    assert!(matches!(other, Ok(Verdict::Retry { .. })), "{kind:?}: {other:?}")
                }
            }
        }
        let expected = once((first..first + 16).filter(|number| number % 100 != 7));
        let found = effects(&fresh).await;
        let found: BTreeMap<_, _> =
            found.into_iter().filter(|(number, _)| *number >= first).collect();
        assert_eq!(found, expected, "{kind:?}");
    }
    let markers = fresh.number("select count(*) from {inbox}").await;
    assert_eq!(markers, 15 * i64::try_from(kinds.len()).unwrap());
}

/// R074: a handler that commits by itself keeps no marker of those that were not called yet: it is refused.
#[tokio::test]
async fn a_handler_that_commits_does_not_commit_its_neighbours() {
    let Some(fresh) = with_effects().await else { return };
    for (at, statement) in ["commit", "commit and chain", "commit; begin"].into_iter().enumerate() {
        let (first, names) = (100 * at as u128, fresh.names.clone());
        let receiver = grouped(&fresh, &fresh.url, move |tx, event| {
            let names = names.clone();
            Box::pin(async move {
                act(&names, tx, event).await?;
                if event.id == EventId::from_u128(first + 3) {
                    tx.batch_execute(statement).await?;
                }
                Ok(Verdict::Done)
            })
        });
        let mut answers = deliver(&receiver, &events(first..first + 8)).await;
        // What that one did alone is its own affair.
        _ = answers.remove(3);
        for answer in answers {
            assert_eq!(answer.unwrap(), Verdict::Done, "{statement}");
        }
        let mut found = effects(&fresh).await;
        found.retain(|number, _| *number >= first);
        assert_eq!(found, once(first..first + 8), "{statement}");
    }
}

/// R073, R080: what was done before is a duplicate in a group, and holds up nobody.
#[tokio::test]
async fn a_duplicate_in_a_group_is_told() {
    let Some(fresh) = with_effects().await else { return };
    let receiver = acting(&fresh);
    deliver(&receiver, &events(4..8)).await;
    let calls = deliver(&receiver, &events(0..16)).await;
    for (number, verdict) in calls.into_iter().enumerate() {
        let known = (4..8).contains(&number);
        let expected = if known { Verdict::Duplicate } else { Verdict::Done };
        assert_eq!(verdict.unwrap(), expected, "{number}");
    }
    assert_eq!(effects(&fresh).await, once(0..16));
    assert_eq!(fresh.number(TRANSACTIONS).await, 2, "the duplicates cost the group nothing");
    for verdict in deliver(&receiver, &events(0..16)).await {
        assert_eq!(verdict.unwrap(), Verdict::Duplicate);
    }
}

/// R004: the same id several times in one group is done once, whatever the isolation level. R086: and with another
/// payload it is refused.
#[tokio::test]
async fn the_same_event_twice_in_a_group_acts_once() {
    for (at, level) in ["read committed", "repeatable read", "serializable"].into_iter().enumerate()
    {
        let Some(fresh) = with_effects().await else { return };
        let names = fresh.names.clone();
        let receiver = grouped(&fresh, &at_level(&fresh, level), move |tx, event| {
            let names = names.clone();
            Box::pin(async move { act(&names, tx, event).await.map(|()| Verdict::Done) })
        });
        let first = 100 * at as u128;
        let mut all = events(first..first + 6);
        all.extend(events(first + 2..first + 4));
        all.push(incoming(first + 3));
        let answers = deliver(&receiver, &all).await;
        let verdicts: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
        let done = verdicts.iter().filter(|verdict| **verdict == Verdict::Done).count();
        let again = verdicts.iter().filter(|verdict| **verdict == Verdict::Duplicate).count();
        assert_eq!((done, again), (6, 3), "{level}");
        assert_eq!(effects(&fresh).await, once(first..first + 6), "{level}");
        assert_eq!(fresh.number(TRANSACTIONS).await, 1, "{level}");

        let mut forged = Event::clone(&incoming(first + 50));
        forged.payload = Payload::bytes("other");
        let forged = [incoming(first + 50), Arc::new(forged), incoming(first + 51)];
        let answers = deliver(&receiver, &forged).await;
        // Alone, the two meet: at the levels that keep a snapshot the second may have to come again.
        let refused = |answer: &&Result<Verdict>| match answer {
            Ok(Verdict::Reject(fault)) => fault.kind == ErrorKind::Conflict,
            Err(error) => at > 0 && error.kind() == ErrorKind::Busy,
            _ => false,
        };
        assert_eq!(answers.iter().filter(refused).count(), 1, "{answers:?}");
        assert_eq!(fresh.number("select count(*) from {schema}.effects").await, 8, "{level}");
    }
}

/// The server's address with another isolation level.
pub(super) fn at_level(fresh: &Fresh, level: &str) -> String {
    let level = level.replace(' ', "%5C%20");
    fresh.url_with(&format!("options=-c%20default_transaction_isolation%3D{level}"))
}

/// Groups have limits, which are said.
#[tokio::test]
async fn a_group_has_limits() {
    for (group_max, fits) in [(0, false), (1, true), (256, true), (257, false)] {
        let mut options = postrider_postgres::Options::default();
        options.group_max = group_max;
        let url = "postgres://app@127.0.0.1/shop";
        let made = Transactional::with(url, &options, handler("billing"), |_, _| {
            Box::pin(async { Ok(Verdict::Done) })
        });
        match made {
            Ok(_) => assert!(fits, "{group_max}"),
            Err(error) => {
                assert!(!fits && error.kind() == ErrorKind::Config, "{group_max}: {error}");
                assert!(error.to_string().contains("group_max"), "{error}");
            }
        }
    }
}
