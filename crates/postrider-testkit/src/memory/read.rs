//! Reading: where a destination stands, and the events after a cursor, in commit order.

use postrider_core::source::{FetchRequest, FetchedRow, Loaded, Page};
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, PartitionId, Result};

use super::destinations::not_found;
use super::store::{LogRow, State};

/// What a row without a readable event weighs in the window, in bytes.
const MALFORMED_BYTES: u64 = 256;

impl State {
    pub(super) fn load(&self, partition: PartitionId, id: &DestinationId) -> Result<Loaded> {
        let position = self.cursors.get(&(id.clone(), partition.0)).ok_or_else(|| not_found(id))?;
        Ok(Loaded {
            cursor: Cursor::number(*position),
            waiting_keys: self.waiting_keys(id, partition.0),
            waiting_ahead: self.waiting_ahead(id, partition.0, *position),
            replay_through: self.replay.get(&(id.clone(), partition.0)).copied().unwrap_or(0),
        })
    }

    pub(super) fn head(&self) -> Cursor {
        Cursor::number(self.position_last)
    }

    pub(super) fn fetch(&self, request: &FetchRequest) -> Result<Page> {
        let after = request.after.position();
        if after > self.position_last {
            return Err(Error::new(ErrorKind::Rewound, "fetch")
                .message("the store's numbers lie behind the cursor; nothing was read")
                .context("cursor", after)
                .context("last", self.position_last));
        }
        let until = request.until.as_ref().map_or(u64::MAX, Cursor::position);
        let rows = self.rows_after(request.lease.partition.0, after)?;
        let rows = &rows[..rows.partition_point(|row| row.position <= until)];
        let mut page = Vec::new();
        let mut bytes = 0u64;
        for row in rows.iter().take(request.rows_max.max(1) as usize) {
            let fetched = fetched(row);
            bytes = bytes.saturating_add(fetched.bytes);
            if !page.is_empty() && bytes > request.bytes_max {
                break;
            }
            page.push(fetched);
        }
        let end = page.last().map_or_else(|| request.after.clone(), |row| row.cursor.clone());
        Ok(Page { more: page.len() < rows.len(), rows: page, end })
    }
}

fn fetched(row: &LogRow) -> FetchedRow {
    FetchedRow {
        row: row.row,
        cursor: Cursor::number(row.position),
        key_hash: row.key_hash,
        bytes: row.event.as_ref().map_or(MALFORMED_BYTES, |event| event.size_bytes()),
        event: row.event.clone(),
    }
}
