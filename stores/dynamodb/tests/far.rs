//! A number that is far above its key's others: it is reached, and stops nobody.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::NewEvent;
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::Relay;

/// So far that nobody counts up to it.
const FAR: u64 = 1_000_000_000_000;
const PATIENCE: Duration = Duration::from_secs(90);

/// A key's next number is far away: it comes, behind those before it, and another key's with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_far_above_its_keys_others_is_reached() {
    let Some(fresh) = Fresh::new(1).await else { return };
    write(&fresh).await;
    let mut relay = relay(&fresh, Box::new(|_, _| Then::Forward)).await;
    assert_eq!(sorted(read(&mut relay).await), ["order/far 1", "order/far 2", "order/near 1"]);
}

/// Where a key cannot be looked through in one reading, the reading ends with what the others have.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_takes_long_to_look_through_stops_no_other() {
    let Some(fresh) = Fresh::new(1).await else { return };
    write(&fresh).await;
    // As the service may answer of a collection that is split: nothing yet, and there is more.
    let rule = |operation: &str, body: &mut Value| match operation == "Query"
        && body.get("IndexName").is_none()
        && body["Limit"] == json!(1)
    {
        true => {
            let values = &body["ExpressionAttributeValues"];
            let from = json!({"pk": values[":pk"], "sk": values[":low"]});
            Then::Answer(200, json!({"Items": [], "Count": 0, "LastEvaluatedKey": from}))
        }
        false => Then::Forward,
    };
    let mut relay = relay(&fresh, Box::new(rule)).await;
    assert_eq!(sorted(read(&mut relay).await), ["order/far 1", "order/near 1"]);
}

fn sorted(mut read: Vec<String>) -> Vec<String> {
    read.sort_unstable();
    read
}

/// What one fetch has, as key and time of writing.
async fn read(relay: &mut Relay) -> Vec<String> {
    let page = tokio::time::timeout(PATIENCE, relay.try_read());
    let page = page.await.expect("a reading is bounded").unwrap();
    let event = |row: postrider_core::source::FetchedRow| {
        let event = row.event.unwrap();
        format!("{} {}", event.key(), event.event_type)
    };
    page.rows.into_iter().map(event).collect()
}

async fn relay(fresh: &Fresh, rule: proxy::Rule) -> Relay {
    let own = proxy::start(&fresh::url().unwrap(), rule, Box::new(|_, _, _| ())).await;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let mut options = Options::default();
    options.stream = false;
    Relay::start(DynamoStore::with(Connection::new(settings).unwrap(), options)).await
}

/// Two events of a key, the second under a number that is far away, and one of another.
async fn write(fresh: &Fresh) {
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    for (key, kind) in [("far", "1"), ("far", "2"), ("near", "1")] {
        outbox.write(&[], &[NewEvent::new("order", key, kind)]).await.unwrap();
    }
    let client = fresh.connection.tables().await;
    let table = &fresh.settings.names.outbox;
    let text = |text: String| AttributeValue::S(text);
    let delete = client
        .delete_item()
        .table_name(table)
        .key("pk", text("order/far".to_owned()))
        .key("sk", text(format!("OUTBOX#{:020}", 2)))
        .return_values(aws_sdk_dynamodb::types::ReturnValue::AllOld);
    let mut item = Box::pin(delete.send()).await.unwrap().attributes.unwrap();
    item.insert("sk".to_owned(), text(format!("OUTBOX#{FAR:020}")));
    item.insert("n".to_owned(), AttributeValue::N(FAR.to_string()));
    Box::pin(client.put_item().table_name(table).set_item(Some(item)).send()).await.unwrap();
}
