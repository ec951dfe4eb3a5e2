//! A shop whose orders are events by themselves.

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::EventId;
use postrider_dynamodb::{Connection, Derivation, DynamoStore, Item, Options, Outbox, Stamp};

use crate::fresh::Fresh;

/// The sort key of the shop's orders, which has nothing to do with the outbox.
pub(crate) const SK: &str = "ORDER";

pub(crate) fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(crate) fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// What this shop says of an order.
pub(crate) fn derivation() -> Derivation {
    Derivation::new(|version| {
        let id = version.pk().trim_start_matches("order/");
        assert_ne!(id, "panics", "as a mapping might");
        let event_type = version.text("event_type").unwrap_or("order.changed");
        let event = version.event("order", id, event_type);
        Ok(event.payload(version.document()?, "application/json"))
    })
}

pub(crate) fn deriving(connection: &Connection) -> DynamoStore {
    let mut options = Options::default();
    (options.stream, options.derivation) = (false, Some(derivation()));
    DynamoStore::with(connection.clone(), options)
}

/// A shop whose orders are events by themselves.
pub(crate) struct Shop<'a> {
    fresh: &'a Fresh,
    outbox: Outbox,
}

impl Shop<'_> {
    pub(crate) async fn open(fresh: &Fresh) -> Shop<'_> {
        Shop { fresh, outbox: Outbox::open(&fresh.connection).await.unwrap() }
    }

    /// An order's item in a version, and its stamp.
    pub(crate) fn order(&self, id: &str, version: u64) -> (Item, Stamp) {
        let pk = format!("order/{id}");
        let stamp = self.outbox.stamp(&pk, SK, version).unwrap();
        let mut item = Item::from([
            ("pk".to_owned(), text(&pk)),
            ("sk".to_owned(), text(SK)),
            ("amount".to_owned(), number(version * 100)),
            // Called as the outbox's own items call theirs, and none of its business.
            ("published_at".to_owned(), text("in print")),
            ("seq".to_owned(), number(7)),
        ]);
        item.extend(stamp.attributes());
        (item, stamp)
    }

    /// Puts an order; the id of the event that it is.
    pub(crate) async fn put(&self, id: &str, version: u64) -> EventId {
        let (item, stamp) = self.order(id, version);
        self.put_item(item).await;
        stamp.id()
    }

    pub(crate) async fn put_item(&self, item: Item) {
        let client = self.fresh.connection.tables().await;
        let put = client.put_item().table_name(&self.fresh.settings.names.outbox);
        Box::pin(put.set_item(Some(item)).send()).await.unwrap();
    }

    /// Changes an order by an update that knows nothing of its other attributes.
    pub(crate) async fn update(&self, id: &str, version: u64) -> EventId {
        let pk = format!("order/{id}");
        let stamp = self.outbox.stamp(&pk, SK, version).unwrap();
        let client = self.fresh.connection.tables().await;
        let update = client
            .update_item()
            .table_name(&self.fresh.settings.names.outbox)
            .key("pk", text(&pk))
            .key("sk", text(SK))
            .update_expression(format!("SET amount = :amount, {}", Stamp::SET))
            .set_expression_attribute_values(Some(stamp.values()))
            .expression_attribute_values(":amount", number(version * 100));
        Box::pin(update.send()).await.unwrap();
        stamp.id()
    }

    pub(crate) async fn delete(&self, id: &str) {
        let client = self.fresh.connection.tables().await;
        let delete = client
            .delete_item()
            .table_name(&self.fresh.settings.names.outbox)
            .key("pk", text(format!("order/{id}")))
            .key("sk", text(SK));
        Box::pin(delete.send()).await.unwrap();
    }

    /// Everything that stands in the table.
    pub(crate) async fn items(&self) -> Vec<Item> {
        let client = self.fresh.connection.tables().await;
        let scan = client.scan().table_name(&self.fresh.settings.names.outbox);
        Box::pin(scan.consistent_read(true).send()).await.unwrap().items.unwrap()
    }

    /// The newest versions that nobody publishes any more: neither pending nor among what was published.
    pub(crate) async fn lost(&self, published: &[EventId]) -> Vec<EventId> {
        let items = self.items().await.into_iter();
        let settled = items.filter(|item| !item.contains_key("pr_shard"));
        let ids = settled.map(|item| item["pr_event"].as_s().unwrap().parse().unwrap());
        ids.filter(|id| !published.contains(id)).collect()
    }
}
