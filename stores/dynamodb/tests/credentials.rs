//! Credentials that expire under way, and a region that is the wrong one: said at the HTTP boundary, as the service
//! says it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postrider_core::{Error, ErrorKind, EventId, NewEvent, OutboxSource as _};
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::Relay;

/// The longest that a test waits for what should come.
const PATIENCE: Duration = Duration::from_secs(120);

fn of(key: &str) -> NewEvent {
    NewEvent::new("order", key, "order.changed")
}

/// The service's answer to every request, while there is one.
#[derive(Clone, Default)]
struct Refuses {
    now: Arc<AtomicBool>,
    /// Requests that were refused.
    refused: Arc<AtomicUsize>,
}

impl Refuses {
    /// A way to the tables on which requests are refused by this code while it is so.
    async fn between(&self, fresh: &Fresh, code: &'static str, text: &'static str) -> Connection {
        let Refuses { now, refused } = self.clone();
        let rule = move |_: &str, _: &mut Value| {
            if !now.load(Ordering::SeqCst) {
                return Then::Forward;
            }
            refused.fetch_add(1, Ordering::SeqCst);
            let kind = format!("com.amazon.coral.service#{code}");
            Then::Answer(400, json!({"__type": kind, "message": text}))
        };
        let no_edit = Box::new(|_: &str, _: &Value, _: &mut Value| ());
        let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), no_edit).await;
        let mut settings = Settings::at(own, fresh.settings.names.clone());
        settings.call_time_max = fresh.settings.call_time_max;
        Connection::new(settings).unwrap()
    }

    fn set(&self, now: bool) {
        self.now.store(now, Ordering::SeqCst);
    }
}

fn assert_expired(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    let said = error.to_string();
    for word in ["have expired", "nothing was lost", "renew them"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

async fn write(outbox: &Outbox, key: &str) -> EventId {
    let event = of(key);
    let id = event.event().id;
    outbox.write(&[], &[event]).await.unwrap();
    id
}

/// F11, INV-1: credentials expire while an event is under way, another one is committed meanwhile, and a third one is
/// refused with its transaction. Each refusal says what to do; with new ones the same settlement marks the first event,
/// the second one is heard of by the stream, and the third one is written.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_when_credentials_expire_goes_on_with_new_ones() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (refuses, direct) = (Refuses::default(), Outbox::open(&fresh.connection).await.unwrap());
    let text = "The security token included in the request is expired";
    let connection = refuses.between(&fresh, "ExpiredTokenException", text).await;
    let outbox = Outbox::open(&connection).await.unwrap();
    let mut options = Options::default();
    // It never comes: what is not settled and not heard of is read when the stream is back.
    options.backstop = Duration::from_secs(3_600);
    let mut relay = Relay::live(DynamoStore::with(connection, options)).await;
    let first = write(&outbox, "1").await;
    let rows = tokio::time::timeout(PATIENCE, async {
        loop {
            relay.woken().await;
            let (settlement, rows) = relay.read_rows().await;
            if !rows.is_empty() {
                return (settlement, rows);
            }
        }
    });
    let (settlement, rows) = rows.await.expect("it comes");
    assert_eq!(rows.iter().map(|row| row.row.id).collect::<Vec<_>>(), [first]);

    refuses.set(true);
    assert_expired(&relay.store.settle(&settlement).await.unwrap_err());
    assert_expired(&outbox.write(&[], &[of("3")]).await.unwrap_err());
    let second = write(&direct, "2").await;
    tokio::time::timeout(PATIENCE, async {
        while relay.store.is_live() {
            // waits: the reader of the stream has its own time
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the stream is seen to be away");
    assert_expired(&relay.store.open().await.unwrap_err());

    refuses.set(false);
    relay.store.settle(&settlement).await.unwrap();
    let third = write(&outbox, "3").await;
    let mut came = tokio::time::timeout(PATIENCE, relay.hear(2)).await.expect("they come");
    came.sort_unstable();
    let mut rest = [second, third];
    rest.sort_unstable();
    assert_eq!(came, rest, "and the first one is done");
    let client = fresh.connection.tables().await;
    let scan = client.scan().table_name(&fresh.settings.names.outbox).consistent_read(true);
    let items = Box::pin(scan.send()).await.unwrap().items.unwrap();
    assert!(!items.iter().any(|item| item.contains_key("pr_shard")), "nothing is pending");
}

/// Somebody else's region, or one that does not know who we are: whoever opens or writes is told to look at the region,
/// nothing is written, and what was committed before is there when the region is the right one again.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_region_is_named_and_loses_nothing() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let first = write(&Outbox::open(&fresh.connection).await.unwrap(), "1").await;
    for (code, text, kind) in [
        ("ResourceNotFoundException", "Requested resource not found", ErrorKind::SchemaMissing),
        (
            "UnrecognizedClientException",
            "The security token included in the request is invalid.",
            ErrorKind::Unauthorized,
        ),
        (
            "InvalidSignatureException",
            "Credential should be scoped to a valid region, not 'us-east-1'.",
            ErrorKind::Unauthorized,
        ),
    ] {
        let refuses = Refuses::default();
        let connection = refuses.between(&fresh, code, text).await;
        let outbox = Outbox::open(&connection).await.unwrap();
        refuses.set(true);
        let mut options = Options::default();
        options.stream = false;
        let store = DynamoStore::with(connection.clone(), options.clone());
        let refused = [
            store.open().await.unwrap_err(),
            outbox.write(&[], &[of("2")]).await.unwrap_err(),
            Outbox::open(&connection).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("region"), "{error}");
        }
        assert!(refuses.refused.load(Ordering::SeqCst) >= 3);
        refuses.set(false);
        let there = Relay::start(DynamoStore::with(connection, options)).await;
        let (_, rows) = there.read_rows().await;
        assert_eq!(rows.iter().map(|row| row.row.id).collect::<Vec<_>>(), [first], "{code}");
        there.go().await;
    }
}
