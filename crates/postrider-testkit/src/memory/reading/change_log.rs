//! The change log: rows are read in the order of their commits, and a cursor is a place in it.

use postrider_core::source::{FetchRequest, Page};
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, Result, Start};

use super::super::state::{LogRow, State};
use super::page::Rows;

pub(super) fn start(state: &State, partition: u16, start: Start) -> Cursor {
    Cursor::number(match start {
        Start::Now => state.position_last,
        Start::Beginning => 0,
        Start::At(time) => {
            let young =
                |row: &&LogRow| row.event.as_ref().is_ok_and(|event| event.created_at >= time);
            let rows = state.rows(partition).unwrap_or_default();
            rows.iter().find(young).map_or(state.position_last, |row| row.position - 1)
        }
    })
}

pub(super) fn head(state: &State) -> Cursor {
    Cursor::number(state.position_last)
}

pub(super) fn has_passed(cursor: &Cursor, row: &LogRow) -> bool {
    row.position <= cursor.position()
}

pub(super) fn fetch(state: &State, request: &FetchRequest, format_max: u16) -> Result<Page> {
    let after = request.after.position();
    let ahead = request.until.as_ref().map_or(after, Cursor::position);
    check_rewound(after.max(ahead), state.position_last)?;
    let until = request.until.as_ref().map_or(u64::MAX, Cursor::position);
    let rows = state.rows(request.lease.partition.0)?;
    let from = rows.partition_point(|row| row.position <= after);
    let to = rows.partition_point(|row| row.position <= until);
    Ok(page(rows.get(from..to).unwrap_or_default(), |row| row.position, request, format_max))
}

/// A page of rows that stand in their order, each with its number in it.
pub(super) fn page(
    rows: &[LogRow],
    number: impl Fn(&LogRow) -> u64,
    request: &FetchRequest,
    format_max: u16,
) -> Page {
    let mut page = Rows::default();
    for row in rows {
        if !page.add(row, Cursor::number(number(row)), request, format_max) {
            break;
        }
    }
    Page { more: page.rows.len() < rows.len(), end: page.end(request), rows: page.rows }
}

/// After a restore the numbers may lie behind the cursor.
pub(super) fn check_rewound(after: u64, last: u64) -> Result<()> {
    if after <= last {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Rewound, "fetch")
        .message("the store's numbers lie behind the cursor; nothing was read")
        .context("cursor", after)
        .context("last", last))
}

/// Sets a cursor back that is a number. Says whether it moved.
pub(super) fn set_back(state: &mut State, id: &DestinationId, partition: u16, to: &Cursor) -> bool {
    let cursors = state.cursors.get_mut(id);
    let Some(cursor) = cursors.and_then(|all| all.get_mut(usize::from(partition))) else {
        return false;
    };
    if cursor.position() <= to.position() {
        return false;
    }
    *cursor = to.clone();
    true
}
