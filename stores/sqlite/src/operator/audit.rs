//! The audit table: who changed what, and why.
//!
//! Invariant: a change and its row commit together; nothing deletes from the table.

use postrider_core::Result;
use postrider_core::operate::listing;
use postrider_core::operate::{AuditEntry, Listed, Note, PageRequest};
use rusqlite::{Connection, params};

use super::sql;
use super::value::{self, count, moment_at, shown};
use crate::error::During;
use crate::store::now;

/// The longest subject, in bytes: a line on a screen, and some.
const SUBJECT_BYTES_MAX: usize = 1_024;

/// Writes down a change, in the transaction that makes it. The subject names what was changed and
/// how many, and never holds a payload.
pub(super) fn write(connection: &Connection, note: &Note, what: &str, subject: &str) -> Result<()> {
    // Notes can be made without `Note::new`: who and why are checked where they are kept.
    let note = Note::new(note.who.clone(), note.why.clone())?;
    let subject = line(subject);
    let row = params![now(connection)?, note.who, note.why, what, subject];
    connection
        .prepare_cached(sql::AUDIT_INSERT)
        .and_then(|mut statement| statement.execute(row))
        .map(drop)
        .during("write audit")
}

/// One line: names in it come from events, and may hold anything.
fn line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    plain[..plain.floor_char_boundary(SUBJECT_BYTES_MAX)].to_owned()
}

/// A page of the table, newest first.
pub(super) fn list(connection: &Connection, page: &PageRequest) -> Result<Listed<AuditEntry>> {
    let limit = page.check()?;
    let before = listing::number_after(page.after.as_deref(), "audit")?.unwrap_or(i64::MAX);
    // One more than is shown, to know whether there is another page.
    let wanted = params![before, i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)];
    let mut rows = value::all(connection, "audit", sql::AUDIT, wanted, |row| AuditEntry {
        number: count(row, 0),
        at: moment_at(row, 1).unwrap_or_default(),
        who: shown(row, 2),
        why: shown(row, 3),
        what: shown(row, 4),
        subject: shown(row, 5),
    })?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|row| row.number.to_string());
    Ok(Listed { rows, next })
}
