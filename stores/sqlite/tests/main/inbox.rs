//! The inbox: markers in the handler's transaction, and what a closure behind it may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use postrider_core::inbox::{Accepted, Receiver, Verdict, suspicion};
use postrider_core::subscription::Receipt;
use postrider_core::{
    Claim, ClaimRequest, Code, Delivery, Error, ErrorKind, Event, EventId, Fault, HandlerName,
    InboxStore, NewEvent, Payload,
};
use postrider_sqlite::{HandlerError, Outbox, Transactional, accept};
use postrider_testkit::suite::again::{Says, what_comes_again_is_counted};

use crate::support::{Fresh, number};

fn handler(name: &str) -> HandlerName {
    HandlerName::new(name).expect("a name")
}

fn incoming(number: u128) -> Arc<Event> {
    let mut event = Event::new(EventId::from_u128(number), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    Arc::new(event)
}

fn delivery(event: &Arc<Event>) -> Delivery {
    let receipt = Receipt { message: 1, token: 1 };
    Delivery::new(Ok(Arc::clone(event)), Arc::from("orders"), receipt)
}

async fn deliver(receiver: &Transactional, event: &Arc<Event>) -> Verdict {
    receiver.receive(event, &delivery(event)).await.expect("a verdict")
}

fn markers(fresh: &Fresh) -> i64 {
    number(&fresh.connect(), "select count(*) from inbox")
}

fn with_effects() -> Fresh {
    let fresh = Fresh::new();
    fresh.connect().execute_batch("create table effects (event text)").expect("a table");
    fresh
}

/// What every handler of these tests does before it ends as told.
fn act(tx: &rusqlite::Transaction<'_>, event: &Event) -> Result<(), HandlerError> {
    tx.execute("insert into effects values (?1)", [event.id.to_string()])?;
    Outbox::new().enqueue(tx, &NewEvent::new("invoice", "7", "invoice.sent"))?;
    Ok(())
}

/// R007, R074, R080: marker, change, and new event commit together; the second delivery finds them.
#[tokio::test]
async fn a_handler_acts_once() {
    let fresh = with_effects();
    let receiver = Transactional::new(fresh.path(), handler("billing"), |tx, event| {
        act(tx, event)?;
        Ok(Verdict::Done)
    })
    .unwrap();
    let event = incoming(1);
    assert_eq!(deliver(&receiver, &event).await, Verdict::Done);
    assert_eq!(deliver(&receiver, &event).await, Verdict::Duplicate);
    let connection = fresh.connect();
    assert_eq!(number(&connection, "select count(*) from effects"), 1);
    assert_eq!(number(&connection, "select count(*) from outbox"), 1);
    assert_eq!(markers(&fresh), 1);
}

/// R073: two handlers of one event are independent of each other. R119: and so are two sources that
/// use one id.
#[tokio::test]
async fn handlers_and_sources_are_independent() {
    let fresh = with_effects();
    for name in ["billing", "shipping"] {
        let receiver = Transactional::new(fresh.path(), handler(name), |tx, event| {
            act(tx, event)?;
            Ok(Verdict::Done)
        })
        .unwrap();
        let mut elsewhere = Event::clone(&incoming(1));
        elsewhere.source = Arc::from("/elsewhere");
        for event in [incoming(1), Arc::new(elsewhere)] {
            assert_eq!(deliver(&receiver, &event).await, Verdict::Done);
        }
    }
    assert_eq!(markers(&fresh), 4);
}

/// R074: whatever keeps a handler from its end leaves no marker, no change, and no event; and the
/// next delivery is the first again.
#[tokio::test]
async fn a_handler_that_fails_leaves_nothing() {
    let fresh = with_effects();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let fault = || Fault::new(ErrorKind::Rejected, "no such customer");
    let receiver = Transactional::new(fresh.path(), handler("billing"), move |tx, event| {
        act(tx, event)?;
        match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Err("the printer is on fire".into()),
            1 => panic!("out of paper"),
            2 => Ok(Verdict::Retry { after: None, fault: fault(), tries: None }),
            3 => Ok(Verdict::Reject(fault())),
            4 => Ok(tx.execute("insert into nowhere values (1)", ()).map(|_| Verdict::Done)?),
            _ => Ok(Verdict::Done),
        }
    })
    .unwrap();
    let event = incoming(1);
    for says in ["on fire", "out of paper", "no such customer", "no such customer", "nowhere"] {
        let verdict = deliver(&receiver, &event).await;
        assert!(matches!(verdict, Verdict::Retry { .. } | Verdict::Reject(_)), "{verdict:?}");
        assert!(format!("{verdict:?}").contains(says), "{verdict:?}");
        let connection = fresh.connect();
        let left = "select (select count(*) from effects) + (select count(*) from outbox)
            + (select count(*) from inbox)";
        assert_eq!(number(&connection, left), 0, "after {says}");
    }
    assert_eq!(deliver(&receiver, &event).await, Verdict::Done);
}

/// R079: what was given back is no try, also where a failed one leaves no marker; what the process dies of is.
#[tokio::test]
async fn what_comes_again_is_counted_in_the_inbox() {
    let fresh = with_effects();
    let says = Says::default();
    let said = says.clone();
    let receiver = Transactional::new(fresh.path(), handler("billing"), move |tx, event| {
        act(tx, event)?;
        Ok(said.now())
    });
    let store = fresh.store();
    what_comes_again_is_counted(&store, &receiver.unwrap(), &says, &incoming(1)).await;
    assert_eq!(number(&fresh.connect(), "select count(*) from effects"), 2, "both, once");
}

/// INV-1: an outage under the handler is held against no event, also where an earlier process may have begun it; and nobody is tried
/// alone at the first, however few tries there may be.
#[tokio::test]
async fn an_outage_under_the_handler_makes_no_dead_letter() {
    for deliveries_max in [2, 20] {
        let fresh = with_effects();
        let away = Arc::new(AtomicBool::new(true));
        let is_away = Arc::clone(&away);
        let receiver = Transactional::new(fresh.path(), handler("billing"), move |_, _| {
            match is_away.load(Ordering::SeqCst) {
                true => Err(Error::new(ErrorKind::Unavailable, "enqueue").into()),
                false => Ok(Verdict::Done),
            }
        });
        let receiver = receiver.unwrap().deliveries_max(deliveries_max);
        let event = incoming(1);
        let mut delivery = delivery(&event);
        (delivery.begun_before, delivery.alone) = (true, Some(false));
        for _ in 0..30 {
            let said = receiver.receive(&event, &delivery).await;
            assert_eq!(said.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        away.store(false, Ordering::SeqCst);
        assert_eq!(receiver.receive(&event, &delivery).await.unwrap(), Verdict::Done);
    }
}

/// A row that counts tries is of any payload, and in nobody's way: a handler that works under a lease from now on gets it, and
/// the other way round.
#[tokio::test]
async fn a_row_that_counts_tries_is_in_nobodys_way() {
    let fresh = with_effects();
    let (store, event) = (fresh.store(), incoming(1));
    let leased = ClaimRequest::new(&event, &handler("billing"), Duration::ZERO).unwrap();
    let counted = suspicion(&event, &handler("billing")).unwrap();
    for request in [&counted, &leased, &counted, &leased] {
        let claim = store.claim(request).await.unwrap();
        assert!(matches!(claim, Claim::Claimed(_)), "{claim:?}");
        // waits: a moment that ends the claim, on the clock of the file
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A lock that another writer holds is nobody's fault and is not counted. Every other event would meet it as well.
#[tokio::test]
async fn a_locked_database_does_not_count_against_the_event() {
    let fresh = with_effects();
    let receiver =
        Transactional::new(fresh.path(), handler("billing"), |_, _| Ok(Verdict::Done)).unwrap();
    let connection = fresh.connect();
    connection.execute_batch("begin immediate").unwrap();
    let event = incoming(1);
    let error = receiver.receive(&event, &delivery(&event)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.is_of_store(), "it locks the file: {error}");
    connection.execute_batch("rollback").unwrap();
    assert_eq!(deliver(&receiver, &event).await, Verdict::Done);
}

/// F15: the same words out of Postrider's own calls count as little: who enqueues on a full disk, or over a watermark, has
/// an event that comes again until that has passed.
#[tokio::test]
async fn what_an_outbox_cannot_take_now_does_not_count_against_the_event() {
    let fresh = with_effects();
    let calls = Arc::new(AtomicU32::new(0));
    let receiver = Transactional::new(fresh.path(), handler("billing"), move |tx, event| {
        act(tx, event)?;
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Error::new(ErrorKind::DiskFull, "enqueue").into()),
            1 => Err(Error::new(ErrorKind::Unavailable, "enqueue").into()),
            2 => {
                // One event waits, and that is more than none.
                Outbox::new()
                    .watermark(0)
                    .enqueue(tx, &NewEvent::new("invoice", "8", "invoice.sent"))?;
                Ok(Verdict::Done)
            }
            3 => Err(Error::new(ErrorKind::Invalid, "enqueue").into()),
            _ => Ok(Verdict::Done),
        }
    })
    .unwrap();
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
    assert_eq!(number(&fresh.connect(), "select count(*) from outbox"), 1);
}

/// R086: the key comes from the event; one without a source is rejected, not guessed.
#[tokio::test]
async fn an_event_without_a_source_is_rejected() {
    let fresh = with_effects();
    let receiver =
        Transactional::new(fresh.path(), handler("billing"), |_, _| Ok(Verdict::Done)).unwrap();
    let event = Arc::new(Event::new(EventId::from_u128(1), "order", "42", "order.placed"));
    assert!(matches!(deliver(&receiver, &event).await, Verdict::Reject(_)));
    assert_eq!(markers(&fresh), 0);
}

/// The same id with another payload is an error with a code, and the handler is not called.
#[tokio::test]
async fn the_same_id_with_another_payload_is_a_conflict() {
    let fresh = with_effects();
    let mut connection = fresh.connect();
    let tx = connection.transaction().unwrap();
    let event = incoming(1);
    assert_eq!(accept(&tx, &event, &handler("billing")).unwrap(), Accepted::FirstTime);
    assert_eq!(accept(&tx, &event, &handler("billing")).unwrap(), Accepted::Duplicate);
    let mut forged = Event::clone(&event);
    forged.payload = Payload::bytes("other");
    let refused = accept(&tx, &forged, &handler("billing")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(refused.operator_code(), Some(Code::PayloadMismatch));
    tx.commit().unwrap();
    let receiver =
        Transactional::new(fresh.path(), handler("billing"), |_, _| panic!("was called")).unwrap();
    let verdict = deliver(&receiver, &Arc::new(forged)).await;
    assert!(matches!(&verdict, Verdict::Reject(fault) if fault.kind == ErrorKind::Conflict));
}

/// A worker's lease stands in the way of a transaction for the same handler, until it ends; then
/// its token is stale.
#[tokio::test]
async fn a_claim_and_a_transaction_exclude_each_other() {
    let fresh = Fresh::new();
    let store = fresh.store();
    let event = incoming(1);
    let request = ClaimRequest::new(&event, &handler("billing"), Duration::from_secs(60)).unwrap();
    let Claim::Claimed(lease) = store.claim(&request).await.unwrap() else {
        panic!("it is free");
    };
    let mut connection = fresh.connect();
    let tx = connection.transaction().unwrap();
    let held = accept(&tx, &event, &handler("billing")).unwrap_err();
    assert_eq!((held.kind(), held.is_of_store()), (ErrorKind::Busy, false), "others flow: {held}");
    drop(tx);
    connection.execute("update inbox set expires_at = 1", ()).unwrap();
    let tx = connection.transaction().unwrap();
    assert_eq!(accept(&tx, &event, &handler("billing")).unwrap(), Accepted::FirstTime);
    tx.commit().unwrap();
    let refused = InboxStore::complete(&store, &lease, b"late").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
}

/// INV-4: who stood still until a purge took its claim is refused, as after every other claim.
#[tokio::test]
async fn a_claim_of_before_a_purge_is_refused() {
    let fresh = Fresh::new();
    let store = fresh.store();
    let lease = Duration::from_secs(60);
    let request = ClaimRequest::new(&incoming(1), &handler("billing"), lease).unwrap();
    let claimed = async || match store.claim(&request).await.unwrap() {
        Claim::Claimed(lease) => lease,
        other => panic!("it is free: {other:?}"),
    };
    let stood_still = claimed().await;
    fresh.connect().execute("update inbox set received_at = 1, expires_at = 1", ()).unwrap();
    assert_eq!(store.purge(Duration::ZERO, 10).await.unwrap(), 1);
    let at_work = claimed().await;
    assert!(at_work.token > stood_still.token, "{at_work:?} after {stood_still:?}");
    let refused = InboxStore::complete(&store, &stood_still, b"paid").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
    store.heartbeat(&at_work, lease).await.expect("the claim of now stands");
}
