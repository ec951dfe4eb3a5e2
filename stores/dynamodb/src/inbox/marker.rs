//! The transactional inbox: a marker that the handler puts into its own transaction.
//!
//! Invariant: the marker is written with the handler's change, or neither is; and it is written once.

use aws_sdk_dynamodb::types::error::TransactionCanceledException;
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use postrider_core::inbox::Accepted;
use postrider_core::{Event, HandlerName, InboxKey, Result};

use crate::inbox::condition::{expires, token_begin};
use crate::inbox::row::{
    self, BEAT, DURATION, EVENT_ID, EXPIRES_AT, HANDLER, HASH, PARTS, PROCESSED, PROCESSED_AT,
    RECEIVED_AT, RELEASED, RESULT, Row, SOURCE, STATUS, TOKEN, TYPE, UNTIL,
};
use crate::inbox::{Inbox, answer};
use crate::item::{b, n, s};
use crate::tables::built;

/// That a handler is done with an event: an action for the handler's own `TransactWriteItems`. It stores no result: what
/// the handler has to say to a copy stands in its own items, which the transaction writes with it.
///
/// ```no_run
/// # async fn example(
/// #     inbox: &postrider_dynamodb::Inbox, client: &aws_sdk_dynamodb::Client,
/// #     event: &postrider_core::Event, handler: &postrider_core::HandlerName,
/// #     effect: aws_sdk_dynamodb::types::TransactWriteItem,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError as Failed;
/// let marker = inbox.marker(event, handler)?;
/// let sent = client.transact_write_items();
/// let sent = sent.transact_items(marker.action()?).transact_items(effect).send().await;
/// if let Err(error) = sent {
///     match error.into_service_error() {
///         // Action 0 is the marker: a duplicate is no failure.
///         Failed::TransactionCanceledException(told) if marker.refused(&told, 0)?.is_some() => {}
///         other => return Err(other.into()),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a marker that is in no transaction marks nothing"]
pub struct Marker {
    key: InboxKey,
    event_type: String,
    hash: [u8; 32],
    table: String,
    now_ms: i64,
    expires_at: i64,
}

impl Inbox {
    /// The marker of an event for a handler. Its key comes from the event; there is no way to pass another.
    ///
    /// # Errors
    /// `Invalid` if the event has no source.
    pub fn marker(&self, event: &Event, handler: &HandlerName) -> Result<Marker> {
        let now_ms = self.now_ms();
        Ok(Marker {
            key: InboxKey::of(event, handler)?,
            event_type: event.event_type.to_string(),
            hash: event.payload.hash(),
            table: self.table().to_owned(),
            now_ms,
            expires_at: expires(now_ms, self.options.retention),
        })
    }

    /// Whether a handler is done with an event, before it begins: to spare work, not to decide. The marker
    /// in the transaction decides.
    ///
    /// # Errors
    /// `Conflict` with [`Code::PayloadMismatch`](postrider_core::Code::PayloadMismatch) if the id is known
    /// with another payload; `Busy` if a worker holds a lease on it; `Invalid` if the event has no source.
    pub async fn look(&self, event: &Event, handler: &HandlerName) -> Result<Accepted> {
        let key = InboxKey::of(event, handler)?;
        match self.read("accept", &key).await? {
            None => Ok(Accepted::FirstTime),
            Some(item) => {
                answer::to_marker(&Row::of(&item, "accept")?, &key, &event.payload.hash())
            }
        }
    }
}

impl Marker {
    /// The action: an update that makes the item, if there is none, or one whose claim was let go. Of the latter its
    /// steps stay, because they are effects that have happened, and its token grows: should the row be forgotten,
    /// no step is made again, and a worker of an older claim is refused.
    ///
    /// # Errors
    /// `Internal`; never, as far as is known.
    pub fn action(&self) -> Result<TransactWriteItem> {
        let mut update = Update::builder()
            .table_name(&self.table)
            .set_key(Some(row::key(&self.key)))
            .update_expression(
                "SET #source = :source, #event = :event, #handler = :handler, #type = :type, \
                 #status = :processed, #hash = :hash, #received = if_not_exists(#received, :now), \
                 #done = :now, #expires = :expires, #token = if_not_exists(#token, :begin) + :one \
                 REMOVE #released, #beat, #duration, #until, #result, #parts",
            )
            .condition_expression(
                "attribute_not_exists(#status) OR (attribute_exists(#released) AND #hash = :hash)",
            )
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let names = [
            ("#source", SOURCE),
            ("#event", EVENT_ID),
            ("#handler", HANDLER),
            ("#type", TYPE),
            ("#status", STATUS),
            ("#hash", HASH),
            ("#received", RECEIVED_AT),
            ("#done", PROCESSED_AT),
            ("#expires", EXPIRES_AT),
            ("#token", TOKEN),
            ("#released", RELEASED),
            ("#beat", BEAT),
            ("#duration", DURATION),
            ("#until", UNTIL),
            ("#result", RESULT),
            ("#parts", PARTS),
        ];
        for (place, name) in names {
            update = update.expression_attribute_names(place, name);
        }
        let values = [
            (":source", s(&*self.key.source)),
            (":event", s(self.key.event_id.to_string())),
            (":handler", s(self.key.handler.as_str())),
            (":type", s(&self.event_type)),
            (":processed", s(PROCESSED)),
            (":hash", b(self.hash.to_vec())),
            (":now", n(self.now_ms)),
            (":expires", n(self.expires_at)),
            (":begin", n(token_begin(self.now_ms))),
            (":one", n(1)),
        ];
        for (place, value) in values {
            update = update.expression_attribute_values(place, value);
        }
        Ok(TransactWriteItem::builder().update(built(update.build())?).build())
    }

    /// What the cancellation of the transaction says of the marker, by its place among the actions:
    /// `Some(Duplicate)` if it was done before; `None` if the marker was not to blame.
    ///
    /// # Errors
    /// As [`Inbox::look`].
    pub fn refused(
        &self,
        cancelled: &TransactionCanceledException,
        place: usize,
    ) -> Result<Option<Accepted>> {
        let Some(reason) = cancelled.cancellation_reasons().get(place) else { return Ok(None) };
        match (reason.code(), reason.item()) {
            (Some("ConditionalCheckFailed"), Some(item)) => {
                let row = Row::of(item, "accept")?;
                answer::to_marker(&row, &self.key, &self.hash).map(Some)
            }
            _ => Ok(None),
        }
    }
}
