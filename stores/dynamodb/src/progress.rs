//! How far a request is, as it is written with what was done of it.
//!
//! Invariant: a part moves from where it stood, and the last part of a request ends it, each in the
//! transaction of the rows.

use aws_sdk_dynamodb::types::{AttributeValue, Delete, TransactWriteItem, Update};
use postrider_core::{Lease, PartitionId, Result};

use crate::audit::numbered;
use crate::connection::call;
use crate::control::{TTL, key};
use crate::item::{n, s};
use crate::request::{KEPT, OPEN, Part, REQUESTS, Request, parts_pk};
use crate::store::{DynamoStore, now_ms};
use crate::tables::built;

/// What is done of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// Rows that are settled with it.
    pub(crate) rows: usize,
    pub(crate) done: u64,
    pub(crate) skipped: u64,
    /// Whether the request says from now on that it was begun.
    pub(crate) begun: bool,
}

/// The actions that count what is done.
pub(crate) fn actions(
    store: &DynamoStore,
    lease: &Lease,
    part: &Part,
    request: &Request,
    done: Done,
) -> Result<Vec<TransactWriteItem>> {
    let table = &store.connection().names().store;
    let next = part.next + done.rows;
    let ends = next >= part.len();
    let part_key = key(&parts_pk(lease.partition), &part.sk());
    let mut actions = Vec::new();
    if ends {
        let delete = Delete::builder()
            .table_name(table)
            .set_key(Some(part_key))
            .condition_expression("attribute_exists(pk)");
        actions.push(TransactWriteItem::builder().delete(built(delete.build())?).build());
    } else if next > part.next {
        let update = Update::builder()
            .table_name(table)
            .set_key(Some(part_key))
            .update_expression("SET #next = :to")
            .condition_expression("#next = :from")
            .expression_attribute_names("#next", "next")
            .expression_attribute_values(":from", n(part.next))
            .expression_attribute_values(":to", n(next));
        actions.push(TransactWriteItem::builder().update(built(update.build())?).build());
    }
    let mut set = "SET #relay = :relay".to_owned();
    let mut update = Update::builder()
        .table_name(table)
        .set_key(Some(key(REQUESTS, &numbered(part.request.0))))
        .condition_expression("#left = :left")
        .expression_attribute_names("#left", "left")
        .expression_attribute_names("#relay", "relay")
        .expression_attribute_names("#done", "done")
        .expression_attribute_names("#skipped", "skipped")
        .expression_attribute_values(":left", n(request.left))
        .expression_attribute_values(":relay", s(lease.owner.as_str()))
        .expression_attribute_values(":done", n(done.done))
        .expression_attribute_values(":skipped", n(done.skipped));
    if done.begun {
        set.push_str(", #begun = :yes");
        update = update
            .expression_attribute_names("#begun", "begun")
            .expression_attribute_values(":yes", AttributeValue::Bool(true));
    }
    if ends {
        set.push_str(", #left = :rest");
        update = update.expression_attribute_values(":rest", n(request.left.saturating_sub(1)));
    }
    if ends && request.left <= 1 {
        let kept = i64::try_from(KEPT.as_secs()).unwrap_or(i64::MAX);
        set.push_str(", #ttl = :until");
        update = update
            .expression_attribute_names("#ttl", TTL)
            .expression_attribute_values(":until", n((now_ms() / 1_000).saturating_add(kept)));
        let open =
            Delete::builder().table_name(table).set_key(Some(key(OPEN, &numbered(part.request.0))));
        actions.push(TransactWriteItem::builder().delete(built(open.build())?).build());
    }
    let update = update.update_expression(format!("{set} ADD #done :done, #skipped :skipped"));
    actions.push(TransactWriteItem::builder().update(built(update.build())?).build());
    Ok(actions)
}

/// Deletes a part whose request never came to be.
pub(crate) async fn delete(store: &DynamoStore, partition: PartitionId, part: &Part) -> Result<()> {
    let table = &store.connection().names().store;
    let client = store.connection().tables().await;
    let delete =
        client.delete_item().table_name(table).set_key(Some(key(&parts_pk(partition), &part.sk())));
    call("carry out", table, delete.send()).await.map(drop)
}
