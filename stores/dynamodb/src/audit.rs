//! The audit log: who changed what, and why.
//!
//! Invariants: an entry is written in the transaction of its change; numbers are drawn in the same
//! transaction, so there is none without an entry; and nothing deletes entries.

use aws_sdk_dynamodb::types::{ReturnValue, TransactWriteItem, Update};
use postrider_core::operate::{AuditEntry, Note};
use postrider_core::{Result, Timestamp};

use crate::connection::{Connection, absent, call};
use crate::control::{SK, key};
use crate::item::{Item, n, number, s, text};
use crate::store::now_ms;
use crate::tables::built;
use crate::transaction::put;

/// The partition key of the entries.
pub(crate) const AUDIT: &str = "audit";
/// The partition key of what numbers are drawn from.
const SEQUENCE: &str = "sequence";

/// The longest subject, in bytes: a line on a screen, and some.
const SUBJECT_BYTES_MAX: usize = 1_024;

/// A change that is about to be written down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) note: &'a Note,
    /// The command's name.
    pub(crate) what: &'static str,
    /// To what, and how many. Never a payload.
    pub(crate) subject: &'a str,
}

impl Change<'_> {
    /// The actions that write it down, for the transaction of the change. Who draws the same number at
    /// the same moment is refused, and begins again.
    pub(crate) async fn actions(
        &self,
        connection: &Connection,
        operation: &'static str,
    ) -> Result<Vec<TransactWriteItem>> {
        // Notes can be made without `Note::new`: who and why are checked where they are kept.
        let note = Note::new(self.note.who.clone(), self.note.why.clone())?;
        let (number, draw) = draw(connection, operation, AUDIT).await?;
        let mut item = key(AUDIT, &numbered(number));
        let attributes = [
            ("at", n(now_ms())),
            ("who", s(note.who)),
            ("why", s(note.why)),
            ("what", s(self.what)),
            ("subject", s(line(self.subject))),
        ];
        item.extend(attributes.map(|(name, value)| (name.to_owned(), value)));
        let entry = put(&connection.names().store, item).build();
        Ok(vec![draw, TransactWriteItem::builder().put(built(entry)?).build()])
    }
}

/// A number as a sort key.
pub(crate) fn numbered(number: u64) -> String {
    format!("{number:020}")
}

/// The next number of a sequence, and the action that draws it.
pub(crate) async fn draw(
    connection: &Connection,
    operation: &'static str,
    sequence: &str,
) -> Result<(u64, TransactWriteItem)> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let get = client
        .get_item()
        .table_name(table)
        .set_key(Some(key(SEQUENCE, sequence)))
        .consistent_read(true);
    let item = call(operation, table, get.send()).await?.item.unwrap_or_default();
    let last: u64 = number(&item, "n").unwrap_or_default();
    let mut update = Update::builder()
        .table_name(table)
        .set_key(Some(key(SEQUENCE, sequence)))
        .update_expression("SET #n = :next")
        .expression_attribute_names("#n", "n")
        .expression_attribute_values(":next", n(last + 1));
    update = match last {
        0 => update.condition_expression("attribute_not_exists(#n)"),
        _ => {
            update.condition_expression("#n = :last").expression_attribute_values(":last", n(last))
        }
    };
    Ok((last + 1, TransactWriteItem::builder().update(built(update.build())?).build()))
}

/// Draws the next number of a sequence at once. One that is not used then leaves a gap.
pub(crate) async fn draw_now(
    connection: &Connection,
    operation: &'static str,
    sequence: &str,
) -> Result<u64> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let update = client
        .update_item()
        .table_name(table)
        .set_key(Some(key(SEQUENCE, sequence)))
        .update_expression("ADD #n :one")
        .expression_attribute_names("#n", "n")
        .expression_attribute_values(":one", n(1))
        .return_values(ReturnValue::UpdatedNew);
    let written = call(operation, table, update.send()).await?.attributes.unwrap_or_default();
    number(&written, "n").ok_or_else(|| absent(operation, "number"))
}

/// An entry as an operator sees it.
pub(crate) fn entry(item: &Item) -> Option<AuditEntry> {
    let of = |name: &str| text(item, name).unwrap_or_default().to_owned();
    Some(AuditEntry {
        number: text(item, SK)?.parse().ok()?,
        at: Timestamp::from_micros(number::<i64>(item, "at")?.saturating_mul(1_000)),
        who: of("who"),
        why: of("why"),
        what: of("what"),
        subject: of("subject"),
    })
}

/// One line: names in it come from events, and may hold anything.
fn line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    plain[..plain.floor_char_boundary(SUBJECT_BYTES_MAX)].to_owned()
}
