//! A table of the application's: it gets what events need, and its own items stay.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
    ScalarAttributeType, TransactWriteItem,
};
use postrider_core::operate::{Finding, Level};
use postrider_core::{ErrorKind, NewEvent};
use postrider_dynamodb::{
    Connection, DynamoStore, Item, Options, Outbox, Settings, Setup, findings, init,
};

use crate::fresh::Fresh;
use crate::relay::Relay;

/// The longest that a test waits for what should come.
const PATIENCE: Duration = Duration::from_secs(90);

/// The application's table, as the application made it, and an address that names it.
async fn applications_own(pk: &str, rest: &str) -> Option<(Fresh, Connection)> {
    let fresh = Fresh::empty()?;
    let names = fresh.settings.names.clone();
    let key = |name: &str, kind| {
        KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap()
    };
    let text = |name: &str| {
        let text = AttributeDefinition::builder().attribute_name(name);
        text.attribute_type(ScalarAttributeType::S).build().unwrap()
    };
    let client = fresh.connection.tables().await;
    client
        .create_table()
        .table_name(&names.outbox)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(vec![text(pk), text("SK")]))
        .set_key_schema(Some(vec![key(pk, KeyType::Hash), key("SK", KeyType::Range)]))
        .send()
        .await
        .unwrap();
    let prefix = names.outbox.trim_end_matches("outbox");
    let endpoint = fresh.settings.endpoint.clone().unwrap();
    let address = format!(
        "dynamodb://?prefix={prefix}&endpoint={endpoint}&table={}&pk=PK&sk=SK{rest}",
        names.outbox
    );
    let connection = Connection::new(address.parse::<Settings>().unwrap()).unwrap();
    Some((fresh, connection))
}

/// The attribute by which a table's items expire.
async fn expires_by(connection: &Connection) -> Option<String> {
    let ask = connection.tables().await.describe_time_to_live();
    let told = ask.table_name(&connection.names().outbox).send().await.unwrap();
    told.time_to_live_description.and_then(|live| live.attribute_name)
}

/// The application's items may have an `expires_at` of their own, which is no time to live: nothing that they
/// have makes them go, unless the address says that it shall.
#[tokio::test]
async fn an_attribute_of_the_applications_never_becomes_a_time_to_live_unasked() {
    let Some((fresh, connection)) = applications_own("PK", "").await else { return };
    let order = connection.tables().await.put_item().table_name(&connection.names().outbox);
    let order = order
        .item("PK", AttributeValue::S("ORDER#1".to_owned()))
        .item("SK", AttributeValue::S("ORDER".to_owned()))
        // Long past: the service would delete the order.
        .item("expires_at", AttributeValue::N("1".to_owned()));
    order.send().await.unwrap();
    init(&connection, &Setup::default()).await.unwrap();
    let by = expires_by(&connection).await;
    assert_eq!(by.as_deref(), Some("pr_expires_at"), "nobody else's items have it");
    // The emulator fills few indexes at once.
    drop(fresh);

    let Some((_fresh, connection)) = applications_own("PK", "&ttl=expires_at").await else {
        return;
    };
    init(&connection, &Setup::default()).await.unwrap();
    assert_eq!(expires_by(&connection).await.as_deref(), Some("expires_at"), "it was named");
}

/// What a table that was there has not is added and named: the stream, the index, the time to live. Then the
/// doctor finds nothing wrong, but for an index that the service still fills, and the next `init` has nothing to do.
#[tokio::test]
async fn a_table_that_was_there_gets_a_stream_and_an_index() {
    let Some((_fresh, connection)) = applications_own("PK", "").await else { return };
    let made = init(&connection, &Setup::default()).await.unwrap();
    let names = connection.names();
    let added = ["the stream of", "the time to live of", "the index postrider-pending of"];
    for (said, what) in made.iter().zip(added) {
        assert!(said.starts_with(&format!("{what} {}", names.outbox)), "{made:?}");
    }
    assert_eq!(made[3..], [names.store.clone(), names.inbox.clone()]);
    let found = findings(&connection, true).await.unwrap();
    // While the index is being filled, it answers nothing.
    let good = |finding: &Finding| {
        finding.level != Level::Critical && !finding.message.contains("no time to live")
    };
    assert!(found.iter().all(good), "{found:?}");
    assert_eq!(init(&connection, &Setup::default()).await.unwrap(), [""; 0]);
}

/// A table with other keys than the address says is refused by name, and nothing is added to it.
#[tokio::test]
async fn a_table_with_other_keys_is_refused_and_left_alone() {
    let Some((_fresh, connection)) = applications_own("Id", "").await else { return };
    let refused = init(&connection, &Setup::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("keys are not PK and SK"), "{refused}");
    assert_eq!(expires_by(&connection).await, None);
    let table = connection.tables().await.describe_table().table_name(&connection.names().outbox);
    let table = table.send().await.unwrap().table.unwrap();
    assert!(table.stream_specification.is_none() && table.global_secondary_indexes().is_empty());
}

/// R052: an item and its events are written to one table, in one transaction, and are one collection of it. The stream,
/// which tells of both, is heard of the events alone, and a mark leaves the item as it is.
#[tokio::test(flavor = "multi_thread")]
async fn among_the_applications_items_the_events_alone_are_heard() {
    let Some(fresh) = Fresh::among(1).await else { return };
    let (outbox, names) =
        (Outbox::open(&fresh.connection).await.unwrap(), fresh.settings.names.clone());
    let mut options = Options::default();
    // It never comes: what arrives, the stream told of.
    options.backstop = Duration::from_secs(3_600);
    let mut relay = Relay::live(DynamoStore::with(fresh.connection.clone(), options)).await;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let order = |state: &str| {
        let put = Put::builder().table_name(&names.outbox).item("PK", text("order/1"));
        // Called as an event's attributes are called.
        let put = put.item("SK", text("METADATA")).item("id", text("1")).item("type", text(state));
        TransactWriteItem::builder().put(put.build().unwrap()).build()
    };
    let mut sent = Vec::new();
    for state in ["placed", "paid", "shipped"] {
        let event = NewEvent::new("order", "1", format!("order.{state}"));
        sent.push(event.event().id);
        outbox.write(&[order(state)], &[event]).await.unwrap();
    }
    let heard = tokio::time::timeout(PATIENCE, relay.hear(3)).await.expect("they come");
    assert_eq!(heard, sent);
    assert_eq!(relay.store.tallied().foreign, 0, "no item of the application's is in the index");
    let client = fresh.connection.tables().await;
    let query = client
        .query()
        .table_name(&names.outbox)
        .consistent_read(true)
        .key_condition_expression("PK = :pk")
        .expression_attribute_values(":pk", text("order/1"));
    let collection = Box::pin(query.send()).await.unwrap().items.unwrap();
    let of = |sort: &str| {
        let is_it = |item: &&Item| item["SK"].as_s().unwrap().starts_with(sort);
        collection.iter().filter(is_it).collect::<Vec<_>>()
    };
    assert_eq!(of("OUTBOX#").len(), 3);
    let is_marked = |item: &&&Item| item.contains_key("pr_expires_at");
    assert_eq!(of("OUTBOX#").iter().filter(is_marked).count(), 3, "they are marked");
    let [order] = of("METADATA")[..] else { panic!("{collection:?}") };
    assert_eq!((order["type"].as_s().unwrap(), order.len()), (&"shipped".to_owned(), 4));
}
