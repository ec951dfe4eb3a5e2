//! What is beyond the head of a drain: it does not keep the drain, and is there for who reads on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::{NewEvent, Timestamp};
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::Relay;

/// Entries of a page of the index: so few that some events take several.
const ENTRIES: usize = 2;
/// Pages of the index that one fetch reads at most.
const PAGES_MAX: usize = 8;

/// A drain reads the index once and ends, however many pages are beyond its head; and who reads on gets all
/// of it, also what the tail of the index does not show.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_beyond_a_drains_head_does_not_keep_it() {
    for events in [5, 21] {
        let Some(fresh) = Fresh::new(1).await else { return };
        let listed = Arc::new(AtomicU64::new(0));
        let mut relay = Relay::start(paged(&fresh, &listed).await).await;
        let head = relay.head().await;
        let outbox = Outbox::open(&fresh.connection).await.unwrap();
        let event = |n: usize| NewEvent::new("order", n.to_string(), "order.changed");
        outbox.write(&[], &(0..events).map(event).collect::<Vec<_>>()).await.unwrap();
        set_back(&fresh, "order/0").await;
        let pages = events / ENTRIES + 1;
        for fetch in 1.. {
            let page = relay.before(&head).await;
            assert_eq!(page.rows.len(), 0);
            let done = !page.more;
            assert_eq!(done, fetch >= pages.div_ceil(PAGES_MAX), "{fetch} of {events} events");
            if done {
                break;
            }
        }
        assert_eq!(listed.load(Ordering::SeqCst), pages as u64, "each page once");
        let mut rows = 0;
        for _ in 0..=events {
            rows += relay.drain().await.len();
        }
        assert_eq!(rows, events);
    }
}

/// A store whose pages of the index are small, and counted.
async fn paged(fresh: &Fresh, listed: &Arc<AtomicU64>) -> DynamoStore {
    let listed = Arc::clone(listed);
    let rule = move |operation: &str, body: &mut Value| {
        if operation == "Query" && body.get("IndexName").is_some() {
            listed.fetch_add(1, Ordering::SeqCst);
            body["Limit"] = json!(ENTRIES);
        }
        Then::Forward
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let mut options = Options::default();
    // No backstop comes in a test.
    (options.stream, options.backstop) = (false, Duration::from_secs(3_600));
    DynamoStore::with(Connection::new(settings).unwrap(), options)
}

/// Puts a key's event an hour back in the index, where its tail does not reach.
async fn set_back(fresh: &Fresh, pk: &str) {
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let earlier = Timestamp::now().as_micros() / 1_000 - 3_600_000;
    let client = fresh.connection.tables().await;
    let update = client
        .update_item()
        .table_name(&fresh.settings.names.outbox)
        .key("pk", text(pk))
        .key("sk", text(&format!("OUTBOX#{:020}", 1)))
        .update_expression("SET pr_at = :earlier")
        .expression_attribute_values(":earlier", AttributeValue::N(earlier.to_string()));
    Box::pin(update.send()).await.unwrap();
}
