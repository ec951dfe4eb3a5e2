//! The inbox: the suite with leases that are watched, the suite with clocks that are believed, and what only
//! this inbox has.

mod clocks;
mod lost;
mod parts;
mod schema;

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use postrider_core::inbox::Accepted;
use postrider_core::operate::{Forgotten, InboxName, Note};
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, Error, ErrorKind, Event, EventId, HandlerName,
    InboxStore, Operator as _, Payload, Result, Tried,
};
use postrider_dynamodb::{DynamoStore, Inbox, InboxOptions};
use postrider_testkit::inbox_suite;
use postrider_testkit::suite::{InboxHarness, Then, TransactionalProbe};
use uuid::Uuid;

use crate::fresh::{Fresh, url};

const LONG: Duration = Duration::from_secs(3_600);

fn event(n: u128) -> Event {
    let mut event = Event::new(EventId::from_u128(n), "order", "42", "order.placed");
    event.source = "/shop".into();
    event.payload = Payload::json(format!("{{\"n\":{n}}}")).unwrap();
    event
}

fn billing() -> HandlerName {
    HandlerName::new("billing").unwrap()
}

fn request(event: &Event, duration: Duration) -> ClaimRequest {
    ClaimRequest::new(event, &billing(), duration).unwrap()
}

async fn claim(inbox: &Inbox, event: &Event, duration: Duration) -> Claim {
    inbox.claim(&request(event, duration)).await.expect("claim answers")
}

async fn claimed(inbox: &Inbox, event: &Event, duration: Duration) -> ClaimLease {
    match claim(inbox, event, duration).await {
        Claim::Claimed(lease) => lease,
        other => panic!("expected a claim, got {other:?}"),
    }
}

/// One process whose handles share what they have seen.
struct Watching {
    fresh: Fresh,
    inbox: Inbox,
}

async fn started(options: InboxOptions) -> (Fresh, Inbox) {
    let fresh = Fresh::new(1).await.expect("asked before the start");
    let inbox = Inbox::new(fresh.connection.clone(), options).expect("valid options");
    (fresh, inbox)
}

impl InboxHarness for Watching {
    fn unavailable() -> Option<String> {
        url().err()
    }

    async fn start() -> Watching {
        let (fresh, inbox) = started(InboxOptions::default()).await;
        Watching { fresh, inbox }
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(self.inbox.clone())
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        let (inbox, connection) = (self.inbox.clone(), self.fresh.connection.clone());
        Some(Arc::new(Probe { inbox, connection }))
    }
}

/// Processes that see each lease for the first time, and believe clocks that agree within a moment.
struct Believing {
    fresh: Fresh,
}

fn believing() -> InboxOptions {
    let mut options = InboxOptions::default();
    options.skew_max = Some(Duration::from_millis(50));
    // Eight processes at one small emulator.
    options.calls_max = 8;
    options
}

impl InboxHarness for Believing {
    fn unavailable() -> Option<String> {
        url().err()
    }

    async fn start() -> Believing {
        Believing { fresh: started(believing()).await.0 }
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(Inbox::new(self.fresh.connection.clone(), believing()).expect("valid options"))
    }
}

mod watching {
    use super::*;
    inbox_suite!(Watching);
}

mod believing_clocks {
    use super::*;
    inbox_suite!(Believing);
}

/// A handler with a marker and an effect in one transaction.
struct Probe {
    inbox: Inbox,
    connection: postrider_dynamodb::Connection,
}

impl Probe {
    /// An item of the application's own, in whichever table: each effect has another key.
    fn effect(&self) -> TransactWriteItem {
        let text = AttributeValue::S;
        let put = Put::builder()
            .table_name(&self.connection.names().store)
            .item("pk", text("effect".to_owned()))
            .item("sk", text(Uuid::now_v7().to_string()));
        TransactWriteItem::builder().put(put.build().unwrap()).build()
    }

    async fn transact(&self, event: &Event, handler: &HandlerName) -> Result<Accepted> {
        let marker = self.inbox.marker(event, handler)?;
        let client = self.connection.tables().await;
        let sent = client
            .transact_write_items()
            .transact_items(marker.action()?)
            .transact_items(self.effect());
        let Err(error) = Box::pin(sent.send()).await else { return Ok(Accepted::FirstTime) };
        let busy = |text: String| Error::new(ErrorKind::Busy, "accept").message(text);
        match error.into_service_error() {
            TransactWriteItemsError::TransactionCanceledException(told) => {
                let refused = marker.refused(&told, 0)?;
                refused.ok_or_else(|| busy(format!("{told:?}")))
            }
            other => Err(busy(format!("{other:?}"))),
        }
    }
}

impl TransactionalProbe for Probe {
    fn accept<'a>(
        &'a self,
        event: &'a Event,
        handler: &'a HandlerName,
        then: Then,
    ) -> BoxFuture<'a, Result<Accepted>> {
        Box::pin(async move {
            match then {
                Then::Commit => self.transact(event, handler).await,
                // What fails or vanishes has sent nothing.
                Then::Fail | Then::Abandon => self.inbox.look(event, handler).await,
            }
        })
    }

    fn effects(&self) -> BoxFuture<'_, u64> {
        Box::pin(async move {
            let client = self.connection.tables().await;
            let query = client
                .query()
                .table_name(&self.connection.names().store)
                .key_condition_expression("pk = :effect")
                .expression_attribute_values(":effect", AttributeValue::S("effect".to_owned()))
                .consistent_read(true);
            let answer = Box::pin(query.send()).await.expect("the effects are read");
            u64::try_from(answer.count).unwrap()
        })
    }
}

/// R058: in a store without unique indexes, the second marker is refused by its condition, told as a
/// duplicate, and takes the second effect with it.
#[tokio::test]
async fn a_second_marker_is_a_duplicate_and_its_effect_is_cancelled() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = Inbox::new(fresh.connection.clone(), InboxOptions::default()).unwrap();
    let probe = Probe { inbox: inbox.clone(), connection: fresh.connection.clone() };
    assert_eq!(probe.transact(&event(1), &billing()).await.unwrap(), Accepted::FirstTime);
    assert_eq!(probe.transact(&event(1), &billing()).await.unwrap(), Accepted::Duplicate);
    assert_eq!(inbox.look(&event(1), &billing()).await.unwrap(), Accepted::Duplicate);
    assert_eq!(probe.effects().await, 1);
    let done = claim(&inbox, &event(1), LONG).await;
    assert!(matches!(done, Claim::Processed { .. }), "{done:?}");
}

/// A marker does not act under a worker that holds a lease, and does where the lease was let go.
#[tokio::test]
async fn a_marker_waits_for_a_lease() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = Inbox::new(fresh.connection.clone(), InboxOptions::default()).unwrap();
    let probe = Probe { inbox: inbox.clone(), connection: fresh.connection.clone() };
    let lease = claimed(&inbox, &event(1), LONG).await;
    let refused = probe.transact(&event(1), &billing()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    inbox.release(&lease, Tried::Failed).await.unwrap();
    assert_eq!(probe.transact(&event(1), &billing()).await.unwrap(), Accepted::FirstTime);
    let late = inbox.complete(&lease, b"late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Fenced);
}

/// R088: a step whose result fits in no item was made: whoever takes over is told that it was made, and does not make it again.
#[tokio::test]
async fn a_step_whose_result_has_no_room_is_not_made_again() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = Inbox::new(fresh.connection.clone(), InboxOptions::default()).unwrap();
    let first = claimed(&inbox, &event(1), LONG).await;
    inbox.complete_step(&first, "charge", b"receipt").await.unwrap();
    for (step, bytes) in [("print", 900 * 1024), ("send", 400 * 1024 - 100)] {
        let refused = inbox.complete_step(&first, step, &vec![7; bytes]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    }
    inbox.release(&first, Tried::Failed).await.unwrap();
    let second = claimed(&inbox, &event(1), LONG).await;
    assert_eq!(inbox.step(&second, "charge").await.unwrap().as_deref(), Some(&b"receipt"[..]));
    for step in ["print", "send"] {
        let told = inbox.step(&second, step).await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::TooLarge, "{told}");
        assert!(told.to_string().contains("was made"), "{told}");
    }
    inbox.complete(&second, b"done").await.expect("the row has room for it");
}

/// R088: and where the row has no room for its size either, the largest result of another step gives way, so that
/// neither is made again.
#[tokio::test]
async fn a_step_is_recorded_in_a_row_that_is_full() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = Inbox::new(fresh.connection.clone(), InboxOptions::default()).unwrap();
    let first = claimed(&inbox, &event(1), LONG).await;
    inbox.complete_step(&first, "charge", b"receipt").await.unwrap();
    inbox.complete_step(&first, "print", &vec![7; 398 * 1024]).await.unwrap();
    let mut full = None;
    for step in (0..20).map(|step| format!("{step:0>200}")) {
        if let Err(refused) = inbox.complete_step(&first, &step, b"").await {
            assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
            full = Some(step);
            break;
        }
    }
    let full = full.expect("the row has no room for all of them");
    inbox.release(&first, Tried::Failed).await.unwrap();
    let second = claimed(&inbox, &event(1), LONG).await;
    assert_eq!(inbox.step(&second, "charge").await.unwrap().as_deref(), Some(&b"receipt"[..]));
    for step in [&*full, "print"] {
        let told = inbox.step(&second, step).await.unwrap_err();
        assert!(told.to_string().contains("was made"), "{told}");
    }
    inbox.complete_step(&second, "send", b"sent").await.expect("there is room again");
    inbox.complete(&second, b"done").await.unwrap();
}

/// R089: the key of a step is the same for whoever takes over, on whichever machine.
#[tokio::test]
async fn a_successor_finds_the_same_key_and_the_result() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inboxes = [(); 2].map(|()| {
        Inbox::new(fresh.connection.clone(), InboxOptions::default()).expect("valid options")
    });
    let first = claimed(&inboxes[0], &event(1), LONG).await;
    inboxes[0].complete_step(&first, "charge", b"receipt").await.unwrap();
    inboxes[0].release(&first, Tried::Failed).await.unwrap();
    let second = claimed(&inboxes[1], &event(1), LONG).await;
    assert_eq!(first.key.step_key("charge"), second.key.step_key("charge"));
    let found = inboxes[1].step(&second, "charge").await.unwrap();
    assert_eq!(found.as_deref(), Some(&b"receipt"[..]));
}

/// R088, R114: a marker over a claim that was let go keeps the steps that were made, and a token that is greater: when
/// the row is forgotten, no step is made again, and whoever had the older claim is refused.
#[tokio::test]
async fn a_marker_over_a_claim_keeps_its_steps_and_its_token() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = Inbox::new(fresh.connection.clone(), InboxOptions::default()).unwrap();
    let probe = Probe { inbox: inbox.clone(), connection: fresh.connection.clone() };
    let first = claimed(&inbox, &event(1), LONG).await;
    inbox.complete_step(&first, "charge", b"receipt").await.unwrap();
    inbox.release(&first, Tried::Failed).await.unwrap();
    assert_eq!(probe.transact(&event(1), &billing()).await.unwrap(), Accepted::FirstTime);
    let name =
        InboxName { event_id: event(1).id, handler: billing(), source: Some("/shop".to_owned()) };
    let note = Note::new("anna@db1", "the refund failed").unwrap();
    let store = DynamoStore::new(fresh.connection.clone());
    assert_eq!(store.forget(&name, &note).await.unwrap(), Forgotten::Forgotten);
    let second = claimed(&inbox, &event(1), LONG).await;
    assert!(second.token > first.token, "{} after {}", second.token, first.token);
    let step = inbox.step(&second, "charge").await.unwrap();
    assert_eq!(step.as_deref(), Some(&b"receipt"[..]), "the charge is not made again");
    let late = inbox.complete(&first, b"late").await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Fenced);
}
