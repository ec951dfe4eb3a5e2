//! Events that follow each other on one session: its transactions are begun by the commits before them.

use std::sync::Arc;
use std::sync::Mutex;

use postrider_core::inbox::Verdict;
use postrider_postgres::Transactional;

use super::receiver::{deliver, receiver};
use super::{handler, incoming, with_effects};
use crate::support::{Fresh, LONG};

/// What a call saw: how many effects there are, its session, and when its transaction began.
#[derive(Clone, Copy, Debug)]
struct Sight {
    effects: i64,
    session: i32,
    began: f64,
}

type Seen = Arc<Mutex<Vec<Sight>>>;

fn counting(fresh: &Fresh, url: &str) -> (Transactional, Seen) {
    let seen = Seen::default();
    let (names, told) = (fresh.names.clone(), Arc::clone(&seen));
    let receiver =
        Transactional::with(url, &fresh.options(), handler("billing"), move |tx, event| {
            let look = names.render(
                "select count(*), pg_backend_pid(), extract(epoch from now())::float8
                from {schema}.effects",
            );
            let effect = names.render("insert into {schema}.effects values ($1)");
            let told = Arc::clone(&told);
            Box::pin(async move {
                let row = tx.query_one(&look, &[]).await?;
                let sight = Sight { effects: row.get(0), session: row.get(1), began: row.get(2) };
                told.lock().expect("what was seen").push(sight);
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
    let other = fresh.connect().await;
    let insert = fresh.names.render(
        "insert into {schema}.effects values ('somebody else')
        returning extract(epoch from clock_timestamp())::float8",
    );
    let chained = async {
        for number in 0.. {
            assert_eq!(deliver(&receiver, &incoming(number)).await, Verdict::Done);
            let inserted: f64 = other.query_one(&insert, &[]).await.unwrap().get(0);
            assert_eq!(deliver(&receiver, &incoming(u128::MAX - number)).await, Verdict::Done);
            let seen = seen.lock().unwrap();
            let (last, count) = (*seen.last().unwrap(), i64::try_from(seen.len()).unwrap());
            // Its own two of each round, and the others', but for what it had yet to add.
            assert_eq!(last.effects, count - 1 + count / 2, "{seen:?}");
            // Begun before the insert was: with the commit before it. On a busy machine it may be let go before.
            if last.began < inserted {
                assert_eq!(last.session, seen[0].session);
                return;
            }
        }
    };
    tokio::time::timeout(LONG, chained).await.expect("a transaction was begun with a commit");
}

/// What is open for the next event has neither snapshot nor transaction id, and the server would end it; and it is
/// given up where none comes: no session stays idle in a transaction, and the next event finds one that works.
#[tokio::test]
async fn what_is_open_between_two_events_holds_nothing_and_is_let_go() {
    let Some(fresh) = with_effects().await else { return };
    let (receiver, seen) = counting(&fresh, &fresh.url);
    let other = fresh.connect().await;
    let activity = "select state, backend_xmin is null and backend_xid is null
        from pg_stat_activity where pid = $1";
    let (mut was_open, mut number) = (false, 0);
    let let_go = async {
        while !was_open {
            assert_eq!(deliver(&receiver, &incoming(number)).await, Verdict::Done);
            number += 1;
            let session = seen.lock().unwrap().last().unwrap().session;
            loop {
                let row = other.query_one(activity, &[&session]).await.unwrap();
                assert!(row.get::<_, bool>(1), "it holds something");
                match row.get(0) {
                    "idle" => break,
                    "idle in transaction" => was_open = true,
                    _ => {}
                }
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(deliver(&receiver, &incoming(u128::MAX)).await, Verdict::Done);
    };
    tokio::time::timeout(LONG, let_go).await.expect("it was open, and let go");
}

/// R074: a handler that ended its transaction by itself did not do it together with its marker: it is not done,
/// whatever it says, and leaves no marker.
#[tokio::test]
async fn a_handler_that_ends_its_transaction_is_not_done() {
    let Some(fresh) = with_effects().await else { return };
    for (number, end) in ["rollback", "select 1; rollback; select 1"].into_iter().enumerate() {
        let ending = receiver(&fresh, "billing", move |tx, _| {
            Box::pin(async move {
                tx.batch_execute(end).await?;
                Ok(Verdict::Done)
            })
        });
        let event = incoming(number as u128);
        for _ in 0..2 {
            let verdict = deliver(&ending, &event).await;
            assert!(matches!(verdict, Verdict::Retry { .. }), "{end}: {verdict:?}");
        }
        assert_eq!(fresh.number("select count(*) from {inbox}").await, 0);
    }
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
    let session = seen.lock().unwrap()[0].session;
    fresh.number(&format!("select pg_terminate_backend({session}, 10000)::int::bigint")).await;
    // Until this side has heard of it, an event may still meet the old one, and comes again.
    let deliver_again = async {
        let event = incoming(2);
        while deliver_or_fail(&receiver, &event).await.is_none() {}
    };
    tokio::time::timeout(LONG, deliver_again).await.expect("a new session");
    assert_ne!(seen.lock().unwrap()[1].session, session);
    assert_eq!(fresh.number("select count(*) from {inbox}").await, 2);
}

async fn deliver_or_fail(
    receiver: &Transactional,
    event: &Arc<postrider_core::Event>,
) -> Option<Verdict> {
    use postrider_core::inbox::Receiver as _;
    receiver.receive(event, &super::receiver::delivery(event)).await.ok()
}
