//! Events that follow each other on one session: its transactions are begun by the commits before them.

use std::sync::Arc;
use std::sync::Mutex;

use postrider_core::inbox::Verdict;
use postrider_postgres::Transactional;

use super::receiver::{deliver, receiver};
use super::{handler, incoming, with_effects};
use crate::support::Fresh;

/// How many effects each call saw, and on which session.
type Seen = Arc<Mutex<Vec<(i64, i32)>>>;

fn counting(fresh: &Fresh, url: &str) -> (Transactional, Seen) {
    let seen = Seen::default();
    let (names, told) = (fresh.names.clone(), Arc::clone(&seen));
    let receiver =
        Transactional::with(url, &fresh.options(), handler("billing"), move |tx, event| {
            let count = names.render("select count(*), pg_backend_pid() from {schema}.effects");
            let effect = names.render("insert into {schema}.effects values ($1)");
            let told = Arc::clone(&told);
            Box::pin(async move {
                let row = tx.query_one(&count, &[]).await?;
                told.lock().expect("what was seen").push((row.get(0), row.get(1)));
                tx.execute(&effect, &[&event.id.to_string()]).await?;
                Ok(Verdict::Done)
            })
        });
    (receiver.expect("a receiver"), seen)
}

fn with_isolation(fresh: &Fresh, level: &str) -> String {
    let separator = if fresh.url.contains('?') { '&' } else { '?' };
    format!("{}{separator}options=-c%20default_transaction_isolation%3D{level}", fresh.url)
}

/// R074: a transaction that was begun with the last commit sees what others committed since, also at a level
/// whose transactions keep one snapshot.
#[tokio::test]
async fn an_event_sees_what_was_committed_since_the_last_one() {
    let Some(fresh) = with_effects().await else { return };
    let (receiver, seen) = counting(&fresh, &with_isolation(&fresh, "serializable"));
    for number in 0..3 {
        assert_eq!(deliver(&receiver, &incoming(number)).await, Verdict::Done);
        fresh.run("insert into {schema}.effects values ('somebody else')").await;
    }
    let seen = seen.lock().unwrap();
    let counts: Vec<i64> = seen.iter().map(|(count, _)| *count).collect();
    assert_eq!(counts, [0, 2, 4]);
    assert!(seen.iter().all(|(_, session)| *session == seen[0].1), "{seen:?}");
}

/// What is open for the next event is given up where none comes: no session stays idle in a transaction, and the
/// next event finds one that works.
#[tokio::test]
async fn what_is_open_between_two_events_is_let_go() {
    let Some(fresh) = with_effects().await else { return };
    let (receiver, seen) = counting(&fresh, &fresh.url);
    for number in 0..3 {
        assert_eq!(deliver(&receiver, &incoming(number)).await, Verdict::Done);
        let (_, session) = seen.lock().unwrap()[0];
        let open = format!(
            "select count(*) from pg_stat_activity where pid = {session} and state <> 'idle'"
        );
        let idle = async {
            while fresh.number(&open).await > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(crate::support::LONG, idle).await.expect("it was let go");
    }
    assert_eq!(seen.lock().unwrap().len(), 3);
}

/// R074: each of many events that come without a pause is committed by itself: what fails between two that are
/// done leaves nothing, and takes nothing along.
#[tokio::test]
async fn a_failure_between_two_events_takes_neither_along() {
    let Some(fresh) = with_effects().await else { return };
    let names = fresh.names.clone();
    let every_other = receiver(&fresh, "billing", move |tx, event| {
        let effect = names.render("insert into {schema}.effects values ($1)");
        Box::pin(async move {
            let id = event.id.to_string();
            tx.execute(&effect, &[&id]).await?;
            match id.ends_with(['0', '2', '4']) {
                true => Ok(Verdict::Done),
                false => Err("refused".into()),
            }
        })
    });
    for number in 0..6 {
        let verdict = deliver(&every_other, &incoming(number)).await;
        assert_eq!(matches!(verdict, Verdict::Done), number % 2 == 0, "{number}: {verdict:?}");
    }
    for table in ["{schema}.effects", "{inbox}"] {
        assert_eq!(fresh.number(&format!("select count(*) from {table}")).await, 3, "{table}");
    }
}

/// A session that the server ended while its next transaction was open is not used again.
#[tokio::test]
async fn a_session_that_is_gone_is_replaced() {
    let Some(fresh) = with_effects().await else { return };
    let (receiver, seen) = counting(&fresh, &fresh.url);
    assert_eq!(deliver(&receiver, &incoming(1)).await, Verdict::Done);
    let (_, session) = seen.lock().unwrap()[0];
    fresh.number(&format!("select pg_terminate_backend({session}, 10000)::int::bigint")).await;
    // Until this side has heard of it, an event may still meet the old one, and comes again.
    let deliver_again = async {
        let event = incoming(2);
        while deliver_or_fail(&receiver, &event).await.is_none() {}
    };
    tokio::time::timeout(crate::support::LONG, deliver_again).await.expect("a new session");
    let seen = seen.lock().unwrap();
    assert_ne!(seen[1].1, session);
    assert_eq!(fresh.number("select count(*) from {inbox}").await, 2);
}

async fn deliver_or_fail(
    receiver: &Transactional,
    event: &Arc<postrider_core::Event>,
) -> Option<Verdict> {
    use postrider_core::inbox::Receiver as _;
    receiver.receive(event, &super::receiver::delivery(event)).await.ok()
}
