//! Retiring: events that every cursor has passed, that wait nowhere, and that are old enough go.

use std::collections::BTreeSet;
use std::sync::Arc;

use postrider_core::source::{RetireRequest, Retired};
use postrider_core::waiting::WaitingState;
use postrider_core::{Event, EventId, Result, Timestamp};

use super::store::{LogRow, State};

impl State {
    pub(super) fn retirable(&self, request: &RetireRequest, now: Timestamp) -> Vec<Arc<Event>> {
        let rows = self.retirable_rows(request, now);
        let events = rows.iter().filter_map(|row| row.event.as_ref().ok().cloned());
        events.take(request.rows_max as usize).collect()
    }

    pub(super) fn retire(&mut self, request: &RetireRequest, now: Timestamp) -> Result<Retired> {
        self.fence("retire", &request.lease)?;
        let rows = self.retirable_rows(request, now);
        let wanted = |row: &LogRow| request.only.as_ref().is_none_or(|o| o.contains(&row.row.id));
        let mut gone: Vec<&LogRow> = rows.into_iter().filter(|row| wanted(row)).collect();
        let more = gone.len() > request.rows_max as usize;
        gone.truncate(request.rows_max as usize);
        let created = |row: &LogRow| row.event.as_ref().ok().map(|event| event.created_at);
        let last = gone.iter().filter_map(|row| created(row)).max();
        let seqs: BTreeSet<u64> = gone.iter().map(|row| row.row.seq).collect();
        let ids: BTreeSet<EventId> = gone.iter().map(|row| row.row.id).collect();
        self.retired_at = self.retired_at.max(last);
        let log = &mut self.log[usize::from(request.lease.partition.0)];
        let gone = log.extract_if(.., |row| seqs.contains(&row.row.seq));
        self.retired.extend(gone);
        seqs.iter().for_each(|seq| self.forget_position(*seq));
        for rows in self.waiting.values_mut() {
            rows.retain(|seq, _| !seqs.contains(seq));
        }
        for settled in self.settled.values_mut() {
            settled.retain(|(row, _)| !ids.contains(&row.id));
        }
        Ok(Retired { rows: u32::try_from(seqs.len()).unwrap_or(u32::MAX), more })
    }

    /// Everything of the partition that may go, by number. Rows that are no events have no age, and
    /// stay.
    fn retirable_rows(&self, request: &RetireRequest, now: Timestamp) -> Vec<&LogRow> {
        let partition = request.lease.partition.0;
        let Some(log) = self.log.get(usize::from(partition)) else { return Vec::new() };
        let cursors = self.cursors.iter().filter(|((_, p), _)| *p == partition);
        let passed = cursors.map(|(_, position)| *position).min().unwrap_or_default();
        let waits = |row: &LogRow| {
            let mut waiting = self.waiting.values().filter_map(|rows| rows.get(&row.row.seq));
            waiting.any(|stored| stored.state != WaitingState::Discarded)
        };
        let old = |row: &LogRow| {
            let event = row.event.as_ref().ok();
            event.is_some_and(|event| event.created_at.plus(request.older_than) < now)
        };
        let free = |row: &&LogRow| row.position <= passed && old(row) && !waits(row);
        let mut rows: Vec<&LogRow> = log.iter().filter(free).collect();
        rows.sort_by_key(|row| row.row.seq);
        rows
    }
}
