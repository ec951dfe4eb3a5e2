//! What every change says of itself in the audit table.

use postrider_core::Result;

use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::params;
use postrider_core::operate::Note;

const AUDIT_INSERT: Sql = sql!("operator/audit_insert");

/// The longest subject of a row of the audit table, in bytes: a line on a screen, and some.
const SUBJECT_BYTES_MAX: usize = 1_024;

/// Who and why, checked where they are kept: notes can be made without [`Note::new`].
pub(super) fn checked(note: &Note) -> Result<Note> {
    Note::new(note.who.clone(), note.why.clone())
}

/// Writes down a change, in the transaction that makes it.
pub(crate) async fn write(session: &Session, note: &Note, what: &str, about: &str) -> Result<()> {
    let note = checked(note)?;
    let values = params![note.who, note.why, what, subject(about)];
    session.execute("write audit", &AUDIT_INSERT, values).await.map(drop)
}

/// What was changed and how many, as one line: names in it come from events, and may hold anything.
/// Never a payload.
pub(super) fn subject(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    plain[..plain.floor_char_boundary(SUBJECT_BYTES_MAX)].to_owned()
}
