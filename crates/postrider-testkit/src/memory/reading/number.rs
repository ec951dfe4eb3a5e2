//! The number cursor: one writer at a time, so that the order of the numbers is that of the commits.

use postrider_core::source::{FetchRequest, Page};
use postrider_core::{Cursor, Result, Start};

use super::super::state::{LogRow, State};
use super::change_log::{check_rewound, page};

pub(super) fn start(state: &State, partition: u16, start: Start) -> Cursor {
    let last = state.seq_committed();
    Cursor::number(match start {
        Start::Now => last,
        Start::Beginning => 0,
        Start::At(time) => {
            let young =
                |row: &&LogRow| row.event.as_ref().is_ok_and(|event| event.created_at >= time);
            let rows = state.rows(partition).unwrap_or_default();
            rows.iter().find(young).map_or(last, |row| row.row.seq - 1)
        }
    })
}

pub(super) fn head(state: &State) -> Cursor {
    Cursor::number(state.seq_committed())
}

pub(super) fn has_passed(cursor: &Cursor, row: &LogRow) -> bool {
    row.row.seq <= cursor.position()
}

pub(super) fn fetch(state: &State, request: &FetchRequest, format_max: u16) -> Result<Page> {
    let after = request.after.position();
    let ahead = request.until.as_ref().map_or(after, Cursor::position);
    check_rewound(after.max(ahead), state.seq_committed())?;
    let until = request.until.as_ref().map_or(u64::MAX, Cursor::position);
    let rows = state.rows(request.lease.partition.0)?;
    let from = rows.partition_point(|row| row.row.seq <= after);
    let to = rows.partition_point(|row| row.row.seq <= until);
    Ok(page(rows.get(from..to).unwrap_or_default(), |row| row.row.seq, request, format_max))
}

impl State {
    /// The last number before those of the writer that is open.
    pub(in super::super) fn seq_committed(&self) -> u64 {
        self.open.first().map_or(self.seq_last, |first| first - 1)
    }
}
