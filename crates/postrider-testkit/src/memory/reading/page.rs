//! Pages: rows up to a limit, and at least one.

use postrider_core::source::{FetchRequest, FetchedRow, Malformed};
use postrider_core::waiting::Reason;
use postrider_core::{Cursor, Event, Result};
use std::sync::Arc;

use super::super::state::LogRow;

/// What a row without a readable event weighs in the window, in bytes.
const MALFORMED_BYTES: u64 = 256;

/// A page in the making.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<FetchedRow>,
    bytes: u64,
}

impl Rows {
    /// Adds a row with the cursor that has passed it, if there is room. The first always fits.
    pub(super) fn add(
        &mut self,
        row: &LogRow,
        cursor: Cursor,
        request: &FetchRequest,
        format_max: u16,
    ) -> bool {
        if self.rows.len() >= request.rows_max.max(1) as usize {
            return false;
        }
        let event = readable(row, format_max);
        let bytes = event.as_ref().map_or(MALFORMED_BYTES, |event| event.size_bytes());
        let total = self.bytes.saturating_add(bytes);
        if !self.rows.is_empty() && total > request.bytes_max {
            return false;
        }
        self.bytes = total;
        self.rows.push(FetchedRow { row: row.row, cursor, key_hash: row.key_hash, bytes, event });
        true
    }

    /// Where to read on.
    pub(super) fn end(&self, request: &FetchRequest) -> Cursor {
        self.rows.last().map_or_else(|| request.after.clone(), |row| row.cursor.clone())
    }
}

/// The event of a row, for a program that knows rows up to a format.
fn readable(row: &LogRow, format_max: u16) -> Result<Arc<Event>, Malformed> {
    if row.format > format_max {
        return Err(Malformed {
            reason: Reason::UnknownFormat,
            detail: format!("format: {} is newer than this program knows", row.format),
            event: None,
        });
    }
    row.event.clone()
}
