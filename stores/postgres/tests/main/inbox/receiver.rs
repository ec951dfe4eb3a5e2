//! Handlers behind the inbox, in a transaction: what they may do, and what is left of each end. The whole file is there
//! twice, the second time with groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::subscription::Receipt;
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Event, EventId, Fault, NewEvent, Payload,
};
use postrider_postgres::{HandlerError, Inbox, Names, Options, Outbox, Transactional};
use postrider_testkit::suite::again::{Says, what_comes_again_is_counted};
use tokio_postgres::Transaction;

use super::{handler, incoming, with_effects};
use crate::support::Fresh;

pub(super) fn delivery(event: &Arc<Event>) -> Delivery {
    let receipt = Receipt { message: 1, token: 1 };
    Delivery::new(Ok(Arc::clone(event)), Arc::from("orders"), receipt)
}

async fn deliver(receiver: &Transactional, event: &Arc<Event>) -> Verdict {
    receiver.receive(event, &delivery(event)).await.expect("a verdict")
}

pub(super) fn receiver(
    fresh: &Fresh,
    name: &str,
    handle: impl for<'a> Fn(
        &'a Transaction<'a>,
        &'a Event,
    ) -> BoxFuture<'a, Result<Verdict, HandlerError>>
    + Send
    + Sync
    + 'static,
) -> Transactional {
    Transactional::with(&fresh.url, &options(fresh), handler(name), handle).expect("a receiver")
}

/// How many deliveries may share a transaction, in this copy of the file.
fn group_max() -> usize {
    if module_path!().ends_with("in_groups") { 16 } else { 1 }
}

fn options(fresh: &Fresh) -> Options {
    let mut options = fresh.options();
    options.group_max = group_max();
    options
}

/// What every handler of these tests does before it ends as told.
pub(super) async fn act(
    names: &Names,
    tx: &Transaction<'_>,
    event: &Event,
) -> Result<(), HandlerError> {
    let effect = names.render("insert into {schema}.effects values ($1)");
    tx.execute(&effect, &[&event.id.to_string()]).await?;
    let new = NewEvent::new("invoice", "7", "invoice.sent");
    Outbox::named(names.clone()).enqueue(tx, &new).await?;
    Ok(())
}

pub(super) fn acting(fresh: &Fresh, name: &str) -> Transactional {
    let names = fresh.names.clone();
    receiver(fresh, name, move |tx, event| {
        let names = names.clone();
        Box::pin(async move {
            act(&names, tx, event).await?;
            Ok(Verdict::Done)
        })
    })
}

const LEFT: &str =
    "select (select count(*) from {schema}.effects) + (select count(*) from {outbox})
    + (select count(*) from {inbox})";

/// R007, R074, R080: marker, change, and new event commit together; the second delivery finds them.
#[tokio::test]
async fn a_handler_acts_once() {
    let Some(fresh) = with_effects().await else { return };
    let receiver = acting(&fresh, "billing");
    let event = incoming(1);
    assert_eq!(deliver(&receiver, &event).await, Verdict::Done);
    assert_eq!(deliver(&receiver, &event).await, Verdict::Duplicate);
    for table in ["{schema}.effects", "{outbox}", "{inbox}"] {
        assert_eq!(fresh.number(&format!("select count(*) from {table}")).await, 1, "{table}");
    }
}

/// R073: two handlers of one event are independent of each other. R119: and so are two sources that
/// use one id.
#[tokio::test]
async fn handlers_and_sources_are_independent() {
    let Some(fresh) = with_effects().await else { return };
    for name in ["billing", "shipping"] {
        let receiver = acting(&fresh, name);
        let mut elsewhere = Event::clone(&incoming(1));
        elsewhere.source = Arc::from("/elsewhere");
        for event in [incoming(1), Arc::new(elsewhere)] {
            assert_eq!(deliver(&receiver, &event).await, Verdict::Done);
        }
    }
    assert_eq!(fresh.number("select count(*) from {inbox}").await, 4);
}

/// R074: whatever keeps a handler from its end leaves no marker, no change, and no event, and the next
/// delivery is the first again: also where the handler says `Done` although a statement of its
/// transaction failed, whose COMMIT the server answers without an error.
#[tokio::test]
async fn a_handler_that_fails_leaves_nothing() {
    let Some(fresh) = with_effects().await else { return };
    let (calls, names) = (Arc::new(AtomicU32::new(0)), fresh.names.clone());
    let fault = || Fault::new(ErrorKind::Rejected, "no such customer");
    let receiver = receiver(&fresh, "billing", move |tx, event| {
        let (calls, names) = (Arc::clone(&calls), names.clone());
        Box::pin(async move {
            act(&names, tx, event).await?;
            match calls.fetch_add(1, Ordering::Relaxed) {
                0 => Err("the printer is on fire".into()),
                1 => panic!("out of paper"),
                2 => Ok(Verdict::Retry { after: None, fault: fault(), tries: None }),
                3 => Ok(Verdict::Reject(fault())),
                4 => Ok(tx
                    .batch_execute("insert into nowhere values (1)")
                    .await
                    .map(|()| Verdict::Done)?),
                5 => {
                    _ = tx.batch_execute("insert into nowhere values (1)").await;
                    Ok(Verdict::Done)
                }
                _ => Ok(Verdict::Done),
            }
        })
    });
    let event = incoming(1);
    for says in
        ["on fire", "out of paper", "no such customer", "no such customer", "nowhere", "went on"]
    {
        let verdict = deliver(&receiver, &event).await;
        assert!(matches!(verdict, Verdict::Retry { .. } | Verdict::Reject(_)), "{verdict:?}");
        assert!(format!("{verdict:?}").contains(says), "{verdict:?}");
        assert_eq!(fresh.number(LEFT).await, 0, "after {says}");
    }
    assert_eq!(deliver(&receiver, &event).await, Verdict::Done);
}

/// R079: what was given back is no try, also where a failed one leaves no marker; what the process dies of is.
#[tokio::test]
async fn what_comes_again_is_counted_in_the_inbox() {
    let Some(fresh) = with_effects().await else { return };
    let (says, names) = (Says::default(), fresh.names.clone());
    let said = says.clone();
    let receiver = receiver(&fresh, "billing", move |tx, event| {
        let (said, names) = (said.clone(), names.clone());
        Box::pin(async move {
            act(&names, tx, event).await?;
            Ok(said.now())
        })
    });
    what_comes_again_is_counted(&fresh.store(), &receiver, &says, &incoming(1)).await;
    assert_eq!(fresh.number("select count(*) from {schema}.effects").await, 2, "both, once");
}

/// R074: a handler that ended its transaction by itself did not act together with its marker: it is not done, whatever
/// it says. A COMMIT where there is no transaction would be a mere warning.
#[tokio::test]
async fn a_handler_that_ends_its_transaction_is_not_done() {
    let Some(fresh) = with_effects().await else { return };
    let own = format!("of a handler in {}", fresh.names.schema());
    let prepare = format!("prepare transaction '{own}'");
    for (n, ends) in (1..).zip(["rollback", "commit", &prepare].map(str::to_owned)) {
        let ending = receiver(&fresh, "billing", move |tx, _| {
            let ends = ends.clone();
            Box::pin(async move { Ok(tx.batch_execute(&ends).await.map(|()| Verdict::Done)?) })
        });
        let event = incoming(n);
        let told = ending.receive(&event, &delivery(&event)).await;
        assert!(!matches!(told, Ok(Verdict::Done | Verdict::Duplicate)), "{n}: {told:?}");
    }
    assert_eq!(fresh.number("select count(*) from {inbox}").await, 1, "the one that it committed");
    fresh.run(&format!("rollback prepared '{own}'")).await;
    assert_eq!(deliver(&acting(&fresh, "billing"), &incoming(3)).await, Verdict::Done);
}

/// A handler that is dropped in the middle, as at the end of a drain, is rolled back, and the event is free.
#[tokio::test]
async fn a_handler_that_is_dropped_leaves_nothing() {
    let Some(fresh) = with_effects().await else { return };
    let names = fresh.names.clone();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let begun = std::sync::Mutex::new(Some(begun));
    let hanging = receiver(&fresh, "billing", move |tx, event| {
        let (names, begun) = (names.clone(), begun.lock().unwrap().take());
        Box::pin(async move {
            act(&names, tx, event).await?;
            begun.map(|begun| begun.send(()));
            std::future::pending().await
        })
    });
    let event = incoming(1);
    let delivery = delivery(&event);
    tokio::select! {
        _ = hanging.receive(&event, &delivery) => panic!("it never ends"),
        _ = has_begun => {}
    }
    assert_eq!(deliver(&acting(&fresh, "billing"), &event).await, Verdict::Done);
    assert_eq!(fresh.number("select count(*) from {schema}.effects").await, 1);
}

/// R004: the same delivery at eight receivers at once: one acts, the others hear that it was done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_eight_receivers_acts() {
    let Some(fresh) = with_effects().await else { return };
    let event = incoming(1);
    let all: Vec<_> = (0..8)
        .map(|_| {
            let (receiver, event) = (acting(&fresh, "billing"), Arc::clone(&event));
            tokio::spawn(async move { deliver(&receiver, &event).await })
        })
        .collect();
    let mut done = 0;
    for one in all {
        match one.await.unwrap() {
            Verdict::Done => done += 1,
            verdict => assert_eq!(verdict, Verdict::Duplicate),
        }
    }
    assert_eq!(done, 1);
    assert_eq!(fresh.number("select count(*) from {schema}.effects").await, 1);
}

/// F15: what the database is to blame for does not count against the event: a lock that is not free, and a
/// session that the server ended in the middle of the handler.
#[tokio::test]
async fn a_fault_of_the_database_does_not_count_against_the_event() {
    let Some(fresh) = with_effects().await else { return };
    let mut other = fresh.connect().await;
    let tx = other.transaction().await.unwrap();
    let inbox = Inbox::named(&fresh.names);
    let event = incoming(1);
    let _ = inbox.accept(&tx, &event, &handler("billing")).await.unwrap();
    let calls = Arc::new(AtomicU32::new(0));
    let receiver = receiver(&fresh, "shipping", {
        let (names, calls) = (fresh.names.clone(), Arc::clone(&calls));
        move |tx, _| {
            let statement = match calls.fetch_add(1, Ordering::Relaxed) {
                0 => names.render("set local lock_timeout = '20ms'; lock table {inbox}"),
                1 => "select pg_terminate_backend(pg_backend_pid())".to_owned(),
                _ => "select 1".to_owned(),
            };
            Box::pin(async move {
                tx.batch_execute(&statement).await?;
                Ok(Verdict::Done)
            })
        }
    });
    for kind in [ErrorKind::Busy, ErrorKind::Unavailable] {
        let error = receiver.receive(&event, &delivery(&event)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    tx.rollback().await.unwrap();
    assert_eq!(deliver(&receiver, &event).await, Verdict::Done);
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

/// F15: the same words out of Postrider's own calls count as little: who enqueues on a full disk, or over a watermark, has
/// an event that comes again until that has passed.
#[tokio::test]
async fn what_an_outbox_cannot_take_now_does_not_count_against_the_event() {
    let Some(fresh) = with_effects().await else { return };
    let calls = Arc::new(AtomicU32::new(0));
    let receiver = receiver(&fresh, "billing", move |_, _| {
        let failure = match calls.fetch_add(1, Ordering::Relaxed) {
            0 => Some(ErrorKind::DiskFull),
            1 => Some(ErrorKind::Unavailable),
            2 => Some(ErrorKind::Backpressure),
            3 => Some(ErrorKind::Invalid),
            _ => None,
        };
        Box::pin(async move {
            let failure = failure.map(|kind| Error::new(kind, "enqueue"));
            failure.map_or(Ok(Verdict::Done), |error| Err(error.into()))
        })
    });
    let event = incoming(1);
    for kind in [ErrorKind::DiskFull, ErrorKind::Unavailable] {
        let error = receiver.receive(&event, &delivery(&event)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let over = deliver(&receiver, &event).await;
    assert!(matches!(over, Verdict::Busy { .. }), "{over:?}");
    let wrong = deliver(&receiver, &event).await;
    assert!(matches!(wrong, Verdict::Retry { .. }), "the control: {wrong:?}");
    assert_eq!(deliver(&receiver, &event).await, Verdict::Done);
}

/// Whatever a server says that is about no event, no event is put aside for: it comes again, uncounted, and is done when
/// the server has been mended.
#[tokio::test]
async fn what_is_odd_in_the_store_kills_no_event() {
    let Some(fresh) = with_effects().await else { return };
    let receiver = acting(&fresh, "billing");
    let event = incoming(1);
    let bodies =
        ["raise exception using errcode = 'XX000', message = 'odd'", "return 'unheard of'"];
    for body in bodies {
        fresh
            .run(&format!(
                "create or replace function {{inbox_accept}}(
                    of_source text, of_event uuid, of_handler text, of_type text, hash bytea)
                returns text language plpgsql as $$ begin {body}; end $$"
            ))
            .await;
        let error = receiver.receive(&event, &delivery(&event)).await.unwrap_err();
        assert!(!error.kind().blames_event(), "{error}");
    }
}

/// R086: the key comes from the event; one without a source is rejected, not guessed. And one with another
/// payload is, without the handler.
#[tokio::test]
async fn what_is_no_key_is_rejected() {
    let Some(fresh) = with_effects().await else { return };
    let sound = acting(&fresh, "billing");
    assert_eq!(deliver(&sound, &incoming(1)).await, Verdict::Done);
    let never = receiver(&fresh, "billing", |_, _| panic!("was called"));
    let anonymous = Arc::new(Event::new(EventId::from_u128(1), "order", "42", "order.placed"));
    assert!(matches!(deliver(&never, &anonymous).await, Verdict::Reject(_)));
    let mut forged = Event::clone(&incoming(1));
    forged.payload = Payload::bytes("other");
    let verdict = deliver(&never, &Arc::new(forged)).await;
    assert!(matches!(&verdict, Verdict::Reject(fault) if fault.kind == ErrorKind::Conflict));
}

/// No more deliveries are in work than the options say.
#[tokio::test]
async fn so_many_transactions_at_once_and_no_more() {
    let Some(fresh) = with_effects().await else { return };
    let mut options = options(&fresh);
    options.transactions_max = 2;
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&most);
    let receiver = Transactional::with(&fresh.url, &options, handler("billing"), move |tx, _| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The first waits for company, however slow the machine is: else they might come one after the other.
            while most.load(Ordering::SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
            tx.batch_execute("select pg_sleep(0.01)").await?;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(Verdict::Done)
        })
    })
    .unwrap();
    let receiver = Arc::new(receiver);
    let all: Vec<_> = (0..6 * group_max() as u128)
        .map(|number| {
            let receiver = Arc::clone(&receiver);
            tokio::spawn(async move { deliver(&receiver, &incoming(number)).await })
        })
        .collect();
    let all = futures_util::future::join_all(all);
    let all = tokio::time::timeout(Duration::from_secs(30), all).await.unwrap();
    assert!(all.into_iter().all(|one| one.unwrap() == Verdict::Done));
    assert_eq!(counted.load(Ordering::SeqCst), 2);
}

/// What limits a handler's transaction is of that transaction: the session, which behind a pooler is somebody
/// else's next, keeps nothing of it.
#[tokio::test]
async fn a_handler_leaves_no_setting_behind() {
    let Some(fresh) = with_effects().await else { return };
    let limits = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&limits);
    let receiver = receiver(&fresh, "billing", move |tx, _| {
        let seen = Arc::clone(&seen);
        Box::pin(async move {
            let show = "show idle_in_transaction_session_timeout";
            let within: String = tx.query_one(show, &[]).await?.get(0);
            tx.batch_execute("commit").await?;
            let behind: String = tx.query_one(show, &[]).await?.get(0);
            seen.lock().expect("the limits").push((within, behind));
            Ok(Verdict::Busy { retry_in: Duration::ZERO })
        })
    });
    deliver(&receiver, &incoming(1)).await;
    let client = fresh.connect().await;
    let usual = client.query_one("show idle_in_transaction_session_timeout", &[]).await.unwrap();
    let usual: String = usual.get(0);
    assert_ne!(usual, "1min", "the server's own would hide the difference");
    assert_eq!(*limits.lock().unwrap(), [("1min".to_owned(), usual)]);
}
