//! Settling: done, not done, refused, still at work. A receipt settles only the delivery it came
//! with, and only while that is still invisible to others; any other is refused.

use std::time::Duration;

use postrider_core::ErrorKind;
use postrider_core::subscription::Receipt;
use rusqlite::{OptionalExtension, params};

use crate::database::Scope;
use crate::trouble::{Step, Trouble};

/// A delivery, as its receipt names it.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) group_id: i64,
    pub(crate) seq: i64,
    pub(crate) token: i64,
}

impl Held {
    pub(crate) fn new(group_id: i64, receipt: Receipt) -> Held {
        Held { group_id, seq: receipt.message.cast_signed(), token: receipt.token.cast_signed() }
    }

    fn stale(self) -> Trouble {
        let detail = format!(
            "the delivery of message {} was settled, or its visibility ended and it may be with \
             another consumer; nothing was changed",
            self.seq
        );
        Trouble::Said(ErrorKind::Fenced, detail)
    }
}

/// Done. The next of its key becomes the head.
pub(crate) fn ack(scope: &Scope<'_>, held: Held) -> Step<()> {
    let key_hash: Option<i64> = scope
        .connection
        .prepare_cached(include_str!("../sql/ack.sql"))?
        .query_row(params![held.group_id, held.seq, held.token, scope.now_ms], |row| row.get(0))
        .optional()?;
    promote(scope, held.group_id, key_hash.ok_or_else(|| held.stale())?)
}

/// Not done: visible again after the delay; dead if that was its last counted delivery.
pub(crate) fn nack(
    scope: &Scope<'_>,
    held: Held,
    delay: Duration,
    counted: bool,
    deliveries_max: u32,
) -> Step<()> {
    let count: Option<u32> = scope
        .connection
        .prepare_cached(include_str!("../sql/nack.sql"))?
        .query_row(
            params![
                held.group_id,
                held.seq,
                held.token,
                scope.now_ms,
                later(scope, delay),
                !counted,
            ],
            |row| row.get(0),
        )
        .optional()?;
    let count = count.ok_or_else(|| held.stale())?;
    if counted && count >= deliveries_max {
        let reason = format!("handed out {count} times, and sent back each time");
        return bury(scope, held.group_id, held.seq, &reason);
    }
    if delay.is_zero() {
        scope.wake.set(true);
    }
    Ok(())
}

/// Still at work.
pub(crate) fn extend(scope: &Scope<'_>, held: Held, by: Duration) -> Step<()> {
    let extended = scope
        .connection
        .prepare_cached(include_str!("../sql/extend.sql"))?
        .execute(params![held.group_id, held.seq, held.token, scope.now_ms, later(scope, by)])?;
    if extended == 0 {
        return Err(held.stale());
    }
    Ok(())
}

/// Refused for good, by the consumer that holds it.
pub(crate) fn reject(scope: &Scope<'_>, held: Held, reason: &str) -> Step<()> {
    let valid: bool = scope
        .connection
        .prepare_cached(include_str!("../sql/check_receipt.sql"))?
        .query_row(params![held.group_id, held.seq, held.token, scope.now_ms], |row| row.get(0))?;
    if !valid {
        return Err(held.stale());
    }
    bury(scope, held.group_id, held.seq, reason)
}

/// An unsettled message becomes a dead letter, and its key goes on.
pub(crate) fn bury(scope: &Scope<'_>, group_id: i64, seq: i64, reason: &str) -> Step<()> {
    scope.connection.prepare_cached(include_str!("../sql/bury.sql"))?.execute(params![
        group_id,
        seq,
        reason,
        scope.now_ms
    ])?;
    let key_hash: i64 = scope
        .connection
        .prepare_cached(include_str!("../sql/drop_delivery.sql"))?
        .query_row(params![group_id, seq], |row| row.get(0))?;
    promote(scope, group_id, key_hash)
}

/// The first unsettled message of the key becomes its head, if there is one.
fn promote(scope: &Scope<'_>, group_id: i64, key_hash: i64) -> Step<()> {
    let promoted = scope
        .connection
        .prepare_cached(include_str!("../sql/promote.sql"))?
        .execute(params![group_id, key_hash])?;
    if promoted > 0 {
        scope.wake.set(true);
    }
    Ok(())
}

fn later(scope: &Scope<'_>, span: Duration) -> i64 {
    let span = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    scope.now_ms.saturating_add(span)
}
