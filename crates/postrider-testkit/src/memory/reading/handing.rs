//! Handing out: where rows say themselves whether they are pending, a reading remembers what it has
//! handed out since it was loaded, and a cursor is a place in that.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::source::{FetchRequest, Page};
use postrider_core::waiting::SettlementPart;
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, Result};

use super::super::kind::Kind;
use super::super::state::State;
use super::page::Rows;
use super::{ByPlace, change_log, keyed};

/// The readings of one handle.
#[derive(Debug, Default)]
pub(super) struct Readings {
    begun: u64,
    readings: ByPlace<Reading>,
}

/// What was handed out since a load.
#[derive(Debug)]
struct Reading {
    /// Tells this reading's cursors from those of any other.
    base: Arc<[u8]>,
    /// The place of the first of `handed`.
    first: u64,
    /// Numbers of rows, by their place.
    handed: VecDeque<u64>,
    /// The same, to be found.
    under_way: BTreeSet<u64>,
}

impl Readings {
    /// Begins a reading anew: what was handed out before is handed out again.
    pub(super) fn begin(&mut self, handle: u64, id: &DestinationId, partition: u16) -> Cursor {
        self.begun += 1;
        let base: Arc<[u8]> = [handle.to_be_bytes(), self.begun.to_be_bytes()].concat().into();
        let reading = Reading {
            base: Arc::clone(&base),
            first: 1,
            handed: VecDeque::new(),
            under_way: BTreeSet::new(),
        };
        self.readings.insert((id.clone(), partition), reading);
        Cursor::new(base, 0)
    }

    /// Hands out what stands behind a place: first what was handed out before, because that answer may
    /// have been lost, then what is pending besides.
    pub(super) fn fetch(
        &mut self,
        state: &State,
        request: &FetchRequest,
        format_max: u16,
        now: Duration,
    ) -> Result<Page> {
        let partition = request.lease.partition.0;
        let mut readings = self.readings.iter_mut();
        let reading = readings.find(|((id, p), reading)| {
            *p == partition
                && request.destinations.contains(id)
                && reading.base == *request.after.base()
        });
        let Some(((id, _), reading)) = reading else {
            return Err(Error::new(ErrorKind::Conflict, "fetch")
                .message("another reading has begun since; nothing was read")
                .context("partition", partition));
        };
        Ok(reading.fetch(state, id, request, format_max, now))
    }
}

impl Reading {
    fn fetch(
        &mut self,
        state: &State,
        id: &DestinationId,
        request: &FetchRequest,
        format_max: u16,
        now: Duration,
    ) -> Page {
        let partition = request.lease.partition.0;
        let pending = state.pending_of(state.place(id), partition);
        self.forget_settled(pending, request.after.position());
        let until = request.until.as_ref().map_or(u64::MAX, Cursor::position);
        let known = |seq: u64| {
            let row = state.row_of(partition, seq);
            row.filter(|row| row.position <= until && pending.contains(&seq))
        };
        let mut page = Rows::default();
        let mut full = false;
        let skip = usize::try_from((request.after.position() + 1).saturating_sub(self.first));
        let skip = skip.unwrap_or(usize::MAX);
        for (place, seq) in (self.first..).zip(&self.handed).skip(skip) {
            let Some(row) = known(*seq) else { continue };
            if !page.add(row, request.after.at(place), request, format_max) {
                full = true;
                break;
            }
        }
        let fresh = if full { Vec::new() } else { self.fresh(state, pending, request, now) };
        for seq in &fresh {
            let Some(row) = known(*seq) else { continue };
            let place = self.first + self.handed.len() as u64;
            if !page.add(row, request.after.at(place), request, format_max) {
                full = true;
                break;
            }
            self.handed.push_back(*seq);
            self.under_way.insert(*seq);
        }
        Page { more: full, end: page.end(request), rows: page.rows }
    }

    /// What is pending and was not handed out, in the order in which it goes out.
    fn fresh(
        &self,
        state: &State,
        pending: &BTreeSet<u64>,
        request: &FetchRequest,
        now: Duration,
    ) -> Vec<u64> {
        if state.kind == Kind::Keyed {
            // A drain looks for its keys where nothing lags.
            let now = if request.until.is_some() { Duration::MAX } else { now };
            return keyed::fresh(state, pending, &self.under_way, request.lease.partition.0, now);
        }
        pending.iter().filter(|seq| !self.under_way.contains(seq)).copied().collect()
    }

    /// Forgets what is settled: nobody asks for it again. What lies behind the place that is asked
    /// for stays, so that places stay what they are.
    fn forget_settled(&mut self, pending: &BTreeSet<u64>, after: u64) {
        while self.first <= after
            && let Some(seq) = self.handed.front()
            && !pending.contains(seq)
        {
            self.under_way.remove(seq);
            self.handed.pop_front();
            self.first += 1;
        }
    }
}

/// Marks each row that is passed. One that is marked already is not counted again.
pub(super) fn mark(
    state: &mut State,
    id: &DestinationId,
    part: &SettlementPart,
    partition: u16,
) -> bool {
    let place = usize::from(partition);
    let mut marked = Vec::new();
    for (row, passed) in &part.passed {
        // A number may have been given again since: it is the event that is marked.
        let same = state.row_of(partition, row.seq).is_some_and(|found| found.row.id == row.id);
        let pending = state.pending.get_mut(id).and_then(|all| all.get_mut(place));
        if same && pending.is_some_and(|pending| pending.remove(&row.seq)) {
            marked.push((*row, *passed));
        }
    }
    let moved = !marked.is_empty();
    state.settled.entry(part.destination.clone()).or_default().extend(marked);
    moved
}

/// Makes every row behind a target pending again. Says whether one was not.
pub(super) fn set_back(state: &mut State, id: &DestinationId, partition: u16, to: &Cursor) -> bool {
    let rows = state.log.get(usize::from(partition));
    let again = rows.into_iter().flatten().filter(|row| !change_log::has_passed(to, row));
    let again: Vec<u64> = again.map(|row| row.row.seq).collect();
    let pending = state.pending.get_mut(id).and_then(|all| all.get_mut(usize::from(partition)));
    let Some(pending) = pending else { return false };
    let before = pending.len();
    pending.extend(again);
    pending.len() > before
}
