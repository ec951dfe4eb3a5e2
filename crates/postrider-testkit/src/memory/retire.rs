//! Retiring: events that every cursor has passed, that wait nowhere, and that are old enough go.

use std::collections::BTreeSet;
use std::sync::Arc;

use postrider_core::source::{RetireRequest, Retired};
use postrider_core::waiting::WaitingState;
use postrider_core::{Event, EventId, Result, Timestamp};

use super::state::{LogRow, State};

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
        if !seqs.is_empty() {
            self.ledger.wrote("retire", &request.lease);
        }
        let partition = request.lease.partition.0;
        let log = &mut self.log[usize::from(partition)];
        let gone = log.extract_if(.., |row| seqs.contains(&row.row.seq));
        self.retired.extend(gone);
        let by_seq = &mut self.by_seq[usize::from(partition)];
        seqs.iter().for_each(|seq| _ = by_seq.remove(seq));
        let waiting = self.waiting.iter_mut().filter(|((_, p), _)| *p == partition);
        for (_, rows) in waiting {
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
        let waiting = self.waiting.iter().filter(|((_, p), _)| *p == partition);
        let waiting: Vec<_> = waiting.map(|(_, rows)| rows).collect();
        let waits = |row: &LogRow| {
            let mut stored = waiting.iter().filter_map(|rows| rows.get(&row.row.seq));
            stored.any(|stored| stored.state != WaitingState::Discarded)
        };
        let passed = |row: &LogRow| {
            let mut ids = self.destinations.keys();
            ids.len() > 0
                && ids.all(|id| self.has_passed(id, partition, row))
                && self.is_behind_ranges(partition, row)
        };
        let old = |row: &LogRow| {
            let event = row.event.as_ref().ok();
            event.is_some_and(|event| event.created_at.plus(request.older_than) < now)
        };
        let free = |row: &&LogRow| old(row) && passed(row) && !waits(row);
        let mut rows: Vec<&LogRow> = log.iter().filter(free).collect();
        rows.sort_by_key(|row| row.row.seq);
        rows
    }
}
