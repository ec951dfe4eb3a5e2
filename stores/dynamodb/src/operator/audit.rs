//! The audit log, page by page.

use postrider_core::Result;
use postrider_core::operate::listing::number_after;
use postrider_core::operate::{AuditEntry, Listed, PageRequest};

use crate::audit::{AUDIT, entry, numbered};
use crate::connection::call;
use crate::item::s;
use crate::store::DynamoStore;

/// A page of the log, newest first.
pub(super) async fn list(store: &DynamoStore, page: &PageRequest) -> Result<Listed<AuditEntry>> {
    let limit = page.check()?;
    let before = number_after(page.after.as_deref(), "audit")?.map_or(u64::MAX, i64::cast_unsigned);
    let table = &store.connection().names().store;
    let client = store.connection().tables().await;
    let (mut rows, mut from) = (Vec::new(), None);
    // One more than is shown, to know whether there is another page.
    while rows.len() <= limit {
        let left = i32::try_from(limit + 1 - rows.len()).unwrap_or(i32::MAX);
        let query = client
            .query()
            .table_name(table)
            .key_condition_expression("pk = :pk AND sk < :before")
            .expression_attribute_values(":pk", s(AUDIT))
            .expression_attribute_values(":before", s(numbered(before)))
            .scan_index_forward(false)
            .consistent_read(true)
            .limit(left)
            .set_exclusive_start_key(from.take());
        let found = call("audit", table, query.send()).await?;
        rows.extend(found.items.unwrap_or_default().iter().filter_map(entry));
        from = found.last_evaluated_key;
        if from.is_none() {
            break;
        }
    }
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row: &AuditEntry| row.number.to_string());
    Ok(Listed { rows, next })
}
