//! Purge by hand, where the table has no time to live.
//!
//! Invariant: only what is processed and old goes, and it is asked again of each item as it goes; and of parts of results
//! those of such a row, and those that no row points to and whose time has come.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use postrider_core::{Error, HandlerName, Result};

use crate::connection::call;
use crate::control::{self, PK, SK};
use crate::error::failed;
use crate::inbox::Inbox;
use crate::inbox::condition::millis;
use crate::inbox::parts::{self, PART};
use crate::inbox::row::{EXPIRES_AT, HANDLER, PARTS, PROCESSED, PROCESSED_AT, ROW, STATUS};
use crate::item::{Item, n, s, text};

/// Items that one page of the scan looks at.
const PAGE_ITEMS: i32 = 1_000;

/// For how long messages of each handler may come again, as consumers told this inbox.
#[derive(Default)]
pub(super) struct Horizons(Mutex<BTreeMap<HandlerName, Duration>>);

impl Horizons {
    pub(super) fn record(&self, handler: &HandlerName, horizon: Duration) {
        let mut horizons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        horizons.insert(handler.clone(), horizon);
    }

    fn longest(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().max().copied()
    }

    /// Whether the consumer of a row's handler has told.
    fn knows(&self, row: &Item) -> bool {
        let horizons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text(row, HANDLER).is_some_and(|name| horizons.keys().any(|known| known.as_str() == name))
    }
}

impl Inbox {
    /// Reads the whole table, a page at a time, until enough has gone: the time to live does the same for
    /// nothing, so this is for tables without one.
    pub(crate) async fn purge_processed(&self, older_than: Duration, rows_max: u32) -> Result<u64> {
        let horizon = self.horizons.longest().unwrap_or(self.options.horizon);
        let before = |kept: Duration| self.now_ms().saturating_sub(millis(older_than.max(kept)));
        let (before, before_silent) = (before(horizon), before(self.options.horizon));
        let (mut gone, mut from) = (0, None);
        while gone < u64::from(rows_max) {
            let (found, next) = self.old_ones(before, from).await?;
            for item in found {
                let before = if self.horizons.knows(&item) { before } else { before_silent };
                if gone >= u64::from(rows_max) {
                    break;
                }
                let key = parts::key_of(&item);
                if text(&item, SK) != Some(ROW) {
                    self.delete_stray(key).await?;
                } else if self.delete_processed(key, before).await? {
                    parts::drop_parts(&self.connection, "purge", parts::keys_of(&item)).await?;
                    gone += 1;
                }
            }
            if next.is_none() {
                break;
            }
            from = next;
        }
        Ok(gone)
    }

    /// Old rows on one page, and parts of results whose time has come, each with no more than its keys; and where the
    /// next page begins.
    async fn old_ones(&self, before: i64, from: Option<Item>) -> Result<(Vec<Item>, Option<Item>)> {
        let scan = self
            .connection
            .tables()
            .await
            .scan()
            .table_name(self.table())
            .limit(PAGE_ITEMS)
            .set_exclusive_start_key(from)
            .projection_expression("#pk, #sk, #parts, #handler")
            .filter_expression(
                "(#status = :processed AND #done <= :before)                  OR (attribute_exists(#part) AND #expires <= :now)",
            )
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#sk", SK)
            .expression_attribute_names("#parts", PARTS)
            .expression_attribute_names("#part", PART)
            .expression_attribute_names("#handler", HANDLER)
            .expression_attribute_names("#expires", EXPIRES_AT)
            .expression_attribute_names("#status", STATUS)
            .expression_attribute_names("#done", PROCESSED_AT)
            .expression_attribute_values(":now", n(self.now_ms().div_euclid(1_000)))
            .expression_attribute_values(":processed", s(PROCESSED))
            .expression_attribute_values(":before", n(before));
        let _turn = self.turn().await;
        let page = call("purge", self.table(), scan.consistent_read(true).send()).await?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key))
    }

    /// Deletes a part that no row points to: its worker lost its lease, or a crash left it. Its time has come, and so
    /// nobody is about to point to it.
    async fn delete_stray(&self, part: Item) -> Result<()> {
        let pk = text(&part, PK).unwrap_or_default();
        let client = self.connection.tables().await;
        let get = client.get_item().table_name(self.table()).set_key(Some(control::key(pk, ROW)));
        let row = {
            let _turn = self.turn().await;
            call("purge", self.table(), get.consistent_read(true).send()).await?.item
        };
        if row.is_some_and(|row| parts::keys_of(&row).contains(&part)) {
            return Ok(());
        }
        parts::drop_parts(&self.connection, "purge", vec![part]).await
    }

    async fn delete_processed(&self, key: Item, before: i64) -> Result<bool> {
        let delete = self
            .connection
            .tables()
            .await
            .delete_item()
            .table_name(self.table())
            .set_key(Some(key))
            .condition_expression("#status = :processed AND #done <= :before")
            .expression_attribute_names("#status", STATUS)
            .expression_attribute_names("#done", PROCESSED_AT)
            .expression_attribute_values(":processed", s(PROCESSED))
            .expression_attribute_values(":before", n(before));
        let _turn = self.turn().await;
        match Box::pin(delete.send()).await {
            Ok(_) => Ok(true),
            Err(error) => {
                let changed = matches!(
                    error.as_service_error(),
                    Some(DeleteItemError::ConditionalCheckFailedException(_))
                );
                let told: Error = failed("purge", self.table(), error);
                if changed { Ok(false) } else { Err(told) }
            }
        }
    }
}
