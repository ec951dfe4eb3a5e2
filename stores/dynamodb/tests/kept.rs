//! What is kept of steps: that an effect was made outlasts its event's completion, its erasure, and its being
//! forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::operate::{Forgotten, InboxName, Marked, Note};
use postrider_core::{
    Claim, ClaimLease, ClaimRequest, Event, HandlerName, InboxStore, NewEvent, Operator, Tried,
};
use postrider_dynamodb::{Connection, DynamoStore, Options};

use crate::fresh::Fresh;
use crate::proxy::{self, Then};

const KEY: &str = "order/1";

fn note() -> Note {
    Note::new("anna@db1", "a test").unwrap()
}

/// A handle that does not read the stream.
fn handle(connection: Connection) -> DynamoStore {
    let mut options = Options::default();
    options.stream = false;
    DynamoStore::with(connection, options)
}

/// A store with one event, and what a handler that claims it asks.
struct Said {
    fresh: Fresh,
    store: DynamoStore,
    event: Event,
}

impl Said {
    async fn new() -> Option<Said> {
        let fresh = Fresh::new(1).await?;
        let store = handle(fresh.connection.clone());
        let said = NewEvent::new("order", "1", "order.placed").json(&42).unwrap();
        store.stage(std::slice::from_ref(&said)).await.unwrap();
        let event = store.event(said.event().id).await.unwrap().event;
        Some(Said { fresh, store, event })
    }

    async fn claim(&self) -> Claim {
        let handler = HandlerName::new("billing").unwrap();
        let asked = ClaimRequest::new(&self.event, &handler, Duration::from_secs(600)).unwrap();
        self.store.claim(&asked).await.unwrap()
    }

    async fn granted(&self) -> ClaimLease {
        match self.claim().await {
            Claim::Claimed(lease) => lease,
            other => panic!("nobody has it: {other:?}"),
        }
    }

    fn name(&self) -> InboxName {
        InboxName {
            source: Some(self.event.source.to_string()),
            event_id: self.event.id,
            handler: HandlerName::new("billing").unwrap(),
        }
    }

    async fn forget(&self) {
        let forgotten = self.store.forget(&self.name(), &note()).await.unwrap();
        assert_eq!(forgotten, Forgotten::Forgotten);
    }

    async fn step(&self, lease: &ClaimLease, step: &str) -> Option<Vec<u8>> {
        self.store.step(lease, step).await.unwrap().map(|result| result.to_vec())
    }
}

/// R088, R100: what was completed and then forgotten is done again behind its steps: the charge is not made
/// again. So is what a person had marked.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_is_done_again_behind_its_steps() {
    let Some(said) = Said::new().await else { return };
    let first = said.granted().await;
    said.store.complete_step(&first, "charge", b"receipt").await.unwrap();
    said.store.complete(&first, b"done").await.unwrap();
    said.forget().await;
    let second = said.granted().await;
    assert!(second.token > first.token);
    assert_eq!(said.step(&second, "charge").await.as_deref(), Some(&b"receipt"[..]));
    said.store.release(&second, Tried::Failed).await.unwrap();
    let marked = said.store.mark_processed(&said.name(), &note()).await.unwrap();
    assert_eq!(marked, Marked::Marked);
    said.forget().await;
    let third = said.granted().await;
    assert_eq!(said.step(&third, "charge").await.as_deref(), Some(&b"receipt"[..]));
}

/// R085, R088: where a result and the results of steps do not fit one item together, the result stands beside it, and
/// what the steps said stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_leaves_no_room_keeps_the_steps() {
    let Some(said) = Said::new().await else { return };
    let first = said.granted().await;
    said.store.complete_step(&first, "charge", &vec![7; 250 * 1024]).await.unwrap();
    let result = vec![8; 300 * 1024];
    said.store.complete(&first, &result).await.expect("it has room beside the row");
    match said.claim().await {
        Claim::Processed { result: stored } => assert_eq!(stored, result),
        other => panic!("it was done: {other:?}"),
    }
    said.forget().await;
    let second = said.granted().await;
    assert_eq!(said.step(&second, "charge").await, Some(vec![7; 250 * 1024]));
    assert_eq!(said.step(&second, "mail").await, None);
}

/// R088: an erasure takes what a step said, and not that it was made: of a claimed row, and of a processed one.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_keeps_that_a_step_was_made() {
    let Some(said) = Said::new().await else { return };
    let (store, lease) = (&said.store, said.granted().await);
    store.complete_step(&lease, "charge", b"4242 of anna").await.unwrap();
    let left = store.erasable(KEY).await.unwrap();
    assert_eq!((left.outbox, left.inbox), (1, 1));
    assert_eq!(store.erase(KEY, &note()).await.unwrap(), left);
    assert_eq!(said.step(&lease, "charge").await, Some(Vec::new()), "it is not made again");
    assert_eq!(store.erasable(KEY).await.unwrap().total(), 0, "a name is nothing to erase");
    store.complete_step(&lease, "mail", b"to anna").await.unwrap();
    store.complete(&lease, b"").await.unwrap();
    assert_eq!(store.erasable(KEY).await.unwrap().inbox, 1);
    store.erase(KEY, &note()).await.unwrap();
    assert_eq!(store.erasable(KEY).await.unwrap().total(), 0);
    said.forget().await;
    let again = said.granted().await;
    for step in ["charge", "mail"] {
        assert_eq!(said.step(&again, step).await, Some(Vec::new()), "{step}");
    }
}

/// What a handler writes while its row is erased is erased with it, and nothing of it is forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_meets_a_handler_at_work() {
    let Some(said) = Said::new().await else { return };
    let lease = said.granted().await;
    said.store.complete_step(&lease, "charge", b"4242 of anna").await.unwrap();
    let (upstream, inbox) =
        (said.fresh.settings.endpoint.clone().unwrap(), said.fresh.settings.names.inbox.clone());
    let (direct, held) = (said.fresh.settings.clone(), lease.clone());
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let rule = move |operation: &str, asked: &mut serde_json::Value| {
        if operation == "UpdateItem" && asked["TableName"] == *inbox {
            let (settings, lease) = (direct.clone(), held.clone());
            let nth = counted.fetch_add(1, Ordering::SeqCst);
            proxy::aside(move || async move {
                let store = handle(Connection::new(settings).unwrap());
                match nth {
                    0 => store.complete_step(&lease, "mail", b"to anna").await.unwrap(),
                    1 => store.complete(&lease, b"anna was charged").await.unwrap(),
                    _ => {}
                }
            });
        }
        Then::Forward
    };
    let mut settings = said.fresh.settings.clone();
    settings.endpoint = Some(proxy::start(&upstream, Box::new(rule), Box::new(|_, _, _| {})).await);
    let eraser = handle(Connection::new(settings).unwrap());
    eraser.erase(KEY, &note()).await.unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 3, "read again after each");
    assert_eq!(said.store.erasable(KEY).await.unwrap().total(), 0);
    said.forget().await;
    let again = said.granted().await;
    for step in ["charge", "mail"] {
        assert_eq!(said.step(&again, step).await, Some(Vec::new()), "{step}");
    }
}
