//! What stands in a row, as a contract for whoever looks.

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::InboxStore as _;
use postrider_dynamodb::{Inbox, InboxOptions, Item};

use super::{LONG, claimed, event};
use crate::fresh::Fresh;

pub(super) async fn rows(fresh: &Fresh) -> Vec<Item> {
    let client = fresh.connection.tables().await;
    let scan = client.scan().table_name(&fresh.connection.names().inbox).consistent_read(true);
    Box::pin(scan.send()).await.unwrap().items.unwrap_or_default()
}

fn text<'a>(row: &'a Item, name: &str) -> &'a str {
    row[name].as_s().unwrap()
}

fn number(row: &Item, name: &str) -> i64 {
    row[name].as_n().unwrap().parse().unwrap()
}

/// R084: a row says who said what, who acts on it, where it stands, and since when.
#[tokio::test]
async fn a_row_has_its_fields() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let inbox = Inbox::new(fresh.connection.clone(), InboxOptions::default()).unwrap();
    let lease = claimed(&inbox, &event(1), LONG).await;
    let held = rows(&fresh).await.remove(0);
    let id = event(1).id.to_string();
    for (name, value) in [
        ("pk", &*format!("{id}#billing#/shop")),
        ("sk", "inbox"),
        ("source", "/shop"),
        ("event_id", &id),
        ("handler", "billing"),
        ("event_type", "order.placed"),
        ("status", "claimed"),
    ] {
        assert_eq!(text(&held, name), value, "{name}");
    }
    assert_eq!(number(&held, "attempts"), 1);
    assert_eq!(number(&held, "lease_ms"), 3_600_000);
    let claimed_at = number(&held, "claimed_at");
    assert_eq!(number(&held, "token"), claimed_at * 1_000 + 1);
    assert_eq!(number(&held, "lease_until"), claimed_at + 3_600_000);
    assert_eq!(number(&held, "received_at"), claimed_at);
    assert_eq!(held["payload_hash"].as_b().unwrap().as_ref(), event(1).payload.hash());
    assert!(!held.contains_key("expires_at"), "a claim does not expire by the time to live");

    inbox.complete_step(&lease, "charge", b"receipt").await.unwrap();
    inbox.complete(&lease, b"done").await.unwrap();
    let done = rows(&fresh).await.remove(0);
    assert_eq!(text(&done, "status"), "processed");
    assert_eq!(number(&done, "received_at"), claimed_at);
    let processed_at = number(&done, "processed_at");
    let days = 35 * 24 * 3_600;
    assert_eq!(number(&done, "expires_at"), processed_at / 1_000 + days);
    assert_eq!(done["result"], AttributeValue::B(aws_sdk_dynamodb::primitives::Blob::new("done")));
    let steps: Vec<&String> = done["steps"].as_m().unwrap().keys().collect();
    assert_eq!(steps, ["charge"], "who forgets the row has it made no second time");
    for gone in ["beat", "lease_ms", "lease_until"] {
        assert!(!done.contains_key(gone), "{gone}");
    }
}

/// R087: the table forgets by its time to live, on the attribute that only processed rows have.
#[tokio::test]
async fn the_table_has_a_time_to_live() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let client = fresh.connection.tables().await;
    let ask = client.describe_time_to_live().table_name(&fresh.connection.names().inbox);
    let told = Box::pin(ask.send()).await.unwrap().time_to_live_description.unwrap();
    assert_eq!(told.attribute_name.as_deref(), Some("expires_at"));
}
