//! Reading: where a destination stands, and what is behind it. The one place where the kinds of store
//! differ; each keeps its arithmetic in a file of its own.
//!
//! | what | asked by |
//! |---|---|
//! | `start` | a new destination, a rewind |
//! | `head`, `load`, `fetch` | the relay |
//! | `has_passed` | retention, requeue, what waits ahead |
//! | `check_advance`, `advance` | settling |
//! | `set_back` | a rewind that is carried out |

mod change_log;
mod handing;
mod keyed;
mod number;
mod page;
mod remembered;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::snapshot::SnapshotCursor;
use postrider_core::source::{FetchRequest, Loaded, Page};
use postrider_core::waiting::SettlementPart;
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, Lease, Result, Start};

use super::destinations::not_found;
use super::kind::Kind;
use super::server::Needs;
use super::state::{LogRow, State};
use super::{MemoryStore, lock};

/// A memory store has fewer transactions than a cursor can name.
const FEW: &str = "invariant: few transactions";

/// What a handle remembers of its readings: the memory of a process.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// What was handed out since each load, where rows say themselves whether they are pending.
    handed: handing::Readings,
    /// Ticks, and lives of the server, where a cursor is a snapshot.
    snapshot: remembered::Remembered,
    /// On which server's history each destination was loaded, where the log itself tells.
    histories: ByPlace<u64>,
}

impl Local {
    fn loaded(&mut self, id: &DestinationId, partition: u16, state: &State) {
        self.histories.insert((id.clone(), partition), state.server.history);
    }

    /// Another server took over since: what was read of the one before is void.
    fn check_history(&self, request: &FetchRequest, state: &State) -> Result<()> {
        let partition = request.lease.partition.0;
        let known = |id: &DestinationId| self.histories.get(&(id.clone(), partition));
        let same = |id| known(id).is_none_or(|history| *history == state.server.history);
        if request.destinations.iter().all(same) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, "fetch")
            .message("another server took over since the partition was loaded; nothing was read")
            .context("partition", partition))
    }
}

impl MemoryStore {
    pub(super) async fn load_cursor(&self, lease: &Lease, id: &DestinationId) -> Result<Loaded> {
        match self.shared.kind {
            Kind::Snapshot => snapshot::load(self, lease, id).await,
            Kind::ChangeLog | Kind::Number => {
                let load = |state: &mut State| {
                    lock(&self.local).loaded(id, lease.partition.0, state);
                    state.load(id, lease.partition.0)
                };
                self.statement("load", Needs::Nothing, load).await
            }
            Kind::RowState | Kind::Keyed => {
                let number = self.number;
                let load = |state: &mut State| {
                    let loaded = state.load(id, lease.partition.0)?;
                    let mut local = lock(&self.local);
                    local.loaded(id, lease.partition.0, state);
                    let cursor = local.handed.begin(number, id, lease.partition.0);
                    Ok(Loaded { cursor, ..loaded })
                };
                self.statement("load", Needs::Nothing, load).await
            }
        }
    }

    pub(super) async fn read_head(&self, lease: &Lease) -> Result<Cursor> {
        match self.shared.kind {
            Kind::Snapshot => snapshot::head(self, lease).await,
            _ => self.statement("head", Needs::Nothing, |state| Ok(state.head())).await,
        }
    }

    pub(super) async fn read_page(&self, request: &FetchRequest) -> Result<Page> {
        let (now, format) = (self.elapsed(), self.format_max);
        match self.shared.kind {
            Kind::Snapshot => snapshot::fetch(self, request).await,
            Kind::ChangeLog => {
                let fetch = |state: &mut State| {
                    lock(&self.local).check_history(request, state)?;
                    state.check_known(request)?;
                    change_log::fetch(state, request, format)
                };
                self.statement("fetch", Needs::Nothing, fetch).await
            }
            Kind::Number => {
                let fetch = |state: &mut State| {
                    lock(&self.local).check_history(request, state)?;
                    state.check_known(request)?;
                    number::fetch(state, request, format)
                };
                self.statement("fetch", Needs::Nothing, fetch).await
            }
            Kind::RowState | Kind::Keyed => {
                let fetch = |state: &mut State| {
                    // A rewind marks rows under the feet of who owns them and has not heard of it.
                    state.fence("fetch", &request.lease)?;
                    let mut local = lock(&self.local);
                    local.check_history(request, state)?;
                    state.check_known(request)?;
                    local.handed.fetch(state, request, format, now)
                };
                self.statement("fetch", Needs::Nothing, fetch).await
            }
        }
    }
}

impl Kind {
    /// Whether rows say themselves whether they are pending, so that no cursor is saved.
    pub(super) fn marks_rows(self) -> bool {
        matches!(self, Kind::RowState | Kind::Keyed)
    }
}

impl State {
    /// A destination that was removed, or has another name now, reads nothing: what is sent under the old name is
    /// not saved.
    fn check_known(&self, request: &FetchRequest) -> Result<()> {
        let gone = |id: &&DestinationId| !self.destinations.contains_key(*id);
        match request.destinations.iter().find(gone) {
            Some(id) => Err(not_found(id)),
            None => Ok(()),
        }
    }

    /// Where a reading of a partition begins.
    pub(super) fn start(&self, partition: u16, start: Start) -> Cursor {
        match self.kind {
            Kind::Snapshot => snapshot::start(self, partition, start).encode().expect(FEW),
            Kind::Number => number::start(self, partition, start),
            Kind::ChangeLog | Kind::RowState | Kind::Keyed => {
                change_log::start(self, partition, start)
            }
        }
    }

    /// A cursor behind everything that is committed now.
    fn head(&self) -> Cursor {
        match self.kind {
            Kind::Number => number::head(self),
            _ => change_log::head(self),
        }
    }

    /// Whether a destination has passed a row.
    pub(super) fn has_passed(&self, id: &DestinationId, partition: u16, row: &LogRow) -> bool {
        let id = self.place(id);
        if self.kind.marks_rows() {
            return !self.pending_of(id, partition).contains(&row.row.seq);
        }
        if self.kind == Kind::Snapshot {
            let cursor = self.snapshot_of(id, partition);
            return cursor.is_some_and(|cursor| snapshot::has_passed(cursor, row));
        }
        self.cursor_of(id, partition).is_some_and(|cursor| self.is_passed(cursor, row))
    }

    /// Whether a cursor has passed a row, where rows do not say so themselves.
    pub(super) fn is_passed(&self, cursor: &Cursor, row: &LogRow) -> bool {
        match self.kind {
            Kind::Number => number::has_passed(cursor, row),
            Kind::Snapshot => SnapshotCursor::decode(cursor)
                .is_ok_and(|cursor| snapshot::has_passed(&cursor, row)),
            _ => change_log::has_passed(cursor, row),
        }
    }

    /// How many rows of a partition the slowest destination has not passed.
    pub(super) fn behind(&self, partition: u16) -> usize {
        let rows = self.rows(partition).unwrap_or_default();
        let behind = |id: &DestinationId| match self.kind {
            Kind::RowState | Kind::Keyed => self.pending_of(id, partition).len(),
            Kind::Snapshot => {
                rows.iter().filter(|row| !self.has_passed(id, partition, row)).count()
            }
            Kind::ChangeLog | Kind::Number => {
                rows.len() - rows.partition_point(|row| self.has_passed(id, partition, row))
            }
        };
        self.destinations.keys().map(behind).max().unwrap_or(rows.len())
    }

    /// Lets a new destination stand where it starts, in every partition.
    pub(super) fn add_cursors(&mut self, id: &DestinationId, start: Start) {
        let cursors: Vec<Cursor> = self.partitions().map(|p| self.start(p, start)).collect();
        if self.kind.marks_rows() {
            let behind = |(rows, cursor): (&Vec<LogRow>, &Cursor)| -> BTreeSet<u64> {
                let ahead = rows.iter().filter(|row| !change_log::has_passed(cursor, row));
                ahead.map(|row| row.row.seq).collect()
            };
            let pending = self.log.iter().zip(&cursors).map(behind).collect();
            self.pending.insert(id.clone(), pending);
        }
        if self.kind == Kind::Snapshot {
            let snapshots = self.partitions().map(|p| snapshot::start(self, p, start)).collect();
            self.snapshots.insert(id.clone(), snapshots);
        }
        self.cursors.insert(id.clone(), cursors);
    }

    /// Forgets where a destination stood.
    pub(super) fn drop_cursors(&mut self, id: &DestinationId) {
        self.cursors.remove(id);
        self.snapshots.remove(id);
        self.pending.remove(id);
    }

    /// Whether a settlement fits to where the destination stands: a refusal leaves nothing behind.
    pub(super) fn check_advance(&self, part: &SettlementPart, partition: u16) -> Result<()> {
        let id = self.place(&part.destination);
        match self.kind {
            Kind::Keyed => return keyed::check(self, id, part, partition),
            // A row may be marked whatever its place.
            Kind::RowState => return Ok(()),
            Kind::ChangeLog | Kind::Snapshot | Kind::Number => {}
        }
        let (Some(stands), Some((from, to))) = (self.cursor_of(id, partition), &part.cursor) else {
            return Ok(());
        };
        if [from, to].contains(&stands) {
            if self.kind == Kind::Snapshot {
                SnapshotCursor::decode(to)?;
            }
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, "settle")
            .message("the cursor was moved by somebody else; nothing was written")
            .context("destination", &part.destination)
            .context("partition", partition))
    }

    /// Passes what a settlement passes, and says whether it was the first to say so: the same write
    /// again counts nothing twice.
    pub(super) fn advance(&mut self, part: &SettlementPart, partition: u16) -> bool {
        let id = self.place(&part.destination).clone();
        let place = usize::from(partition);
        if self.kind.marks_rows() {
            return handing::mark(self, &id, part, partition);
        }
        let Some((from, to)) = &part.cursor else { return false };
        let cursors = self.cursors.get_mut(&id);
        let Some(cursor) = cursors.and_then(|all| all.get_mut(place)) else {
            return false;
        };
        if cursor != from || from == to {
            return false;
        }
        *cursor = to.clone();
        if self.kind == Kind::Snapshot
            && let Some(all) = self.snapshots.get_mut(&id)
            && let Ok(decoded) = SnapshotCursor::decode(to)
        {
            all[place] = decoded;
        }
        let settled = self.settled.entry(part.destination.clone()).or_default();
        settled.extend_from_slice(&part.passed);
        true
    }

    /// Sets a destination back, so that everything behind the target is read again. Says whether
    /// anything is.
    pub(super) fn set_back(&mut self, id: &DestinationId, partition: u16, to: &Cursor) -> bool {
        let through = self.sent_through(id, partition);
        let to = &self.before_ranges(id, partition, to);
        let moved = match self.kind {
            Kind::RowState | Kind::Keyed => handing::set_back(self, id, partition, to),
            Kind::Snapshot => self.set_back_snapshot(id, partition, to),
            Kind::ChangeLog | Kind::Number => change_log::set_back(self, id, partition, to),
        };
        if !moved {
            return false;
        }
        self.end_ranges(id, partition);
        let replay = self.replay.entry((id.clone(), partition)).or_default();
        *replay = through.max(*replay);
        let rows = self.log.get(usize::from(partition)).map(Vec::as_slice).unwrap_or_default();
        let again = rows.iter().filter(|row| !self.has_passed(id, partition, row));
        let again: BTreeSet<u64> = again.map(|row| row.row.seq).collect();
        if let Some(settled) = self.settled.get_mut(id) {
            settled.retain(|(row, _)| !again.contains(&row.seq));
        }
        true
    }

    /// The target of a rewind, or where the first range of the destination begins if that lies before it.
    fn before_ranges(&self, id: &DestinationId, partition: u16, to: &Cursor) -> Cursor {
        let ranges = self.ranges_of(id, partition).unwrap_or_default();
        let cursors = ranges.into_iter().map(|range| range.cursor).chain([to.clone()]);
        let first = match self.kind {
            Kind::Snapshot => {
                let ground = |cursor: &Cursor| SnapshotCursor::decode(cursor).map(|c| c.ground());
                cursors.min_by_key(|cursor| ground(cursor).unwrap_or_default())
            }
            _ => cursors.min_by_key(Cursor::position),
        };
        first.unwrap_or_else(|| to.clone())
    }

    fn set_back_snapshot(&mut self, id: &DestinationId, partition: u16, to: &Cursor) -> bool {
        let place = usize::from(partition);
        let back = SnapshotCursor::decode(to).ok().and_then(|to| {
            let stands = self.snapshot_of(id, partition)?;
            let back = snapshot::set_back(self, partition, stands, &to)?;
            Some((back.encode().ok()?, back))
        });
        let (Some((encoded, back)), Some(cursors), Some(snapshots)) =
            (back, self.cursors.get_mut(id), self.snapshots.get_mut(id))
        else {
            return false;
        };
        cursors[place] = encoded;
        snapshots[place] = back;
        true
    }

    /// The greatest number up to which every event of a partition was passed: a number that is drawn
    /// and not committed, or that was not passed, is sent for the first time.
    fn sent_through(&self, id: &DestinationId, partition: u16) -> u64 {
        let rows = self.rows(partition).unwrap_or_default().iter();
        let (passed, ahead): (Vec<&LogRow>, Vec<&LogRow>) =
            rows.partition(|row| self.has_passed(id, partition, row));
        let ahead = ahead.iter().map(|row| row.row.seq).min().unwrap_or(u64::MAX);
        let open = self.open.first().copied().unwrap_or(u64::MAX);
        let passed = passed.iter().map(|row| row.row.seq);
        passed.filter(|seq| *seq < ahead.min(open)).max().unwrap_or_default()
    }

    /// What is known of a destination in a partition, with the cursor as it is saved.
    fn load(&self, id: &DestinationId, partition: u16) -> Result<Loaded> {
        let cursor =
            self.cursor_of(self.place(id), partition).ok_or_else(|| not_found(id))?.clone();
        Ok(Loaded {
            cursor,
            waiting_keys: self.waiting_keys(id, partition),
            waiting_ahead: self.waiting_ahead(id, partition),
            replay_through: self.replay.get(&(id.clone(), partition)).copied().unwrap_or(0),
            ranges: self.ranges_of(id, partition),
        })
    }

    /// Under whose name a destination's cursor stands.
    fn place<'a>(&'a self, id: &'a DestinationId) -> &'a DestinationId {
        if postrider_core::planted!(OneCursorForTwo) {
            // One row for all of them.
            return self.cursors.keys().next().unwrap_or(id);
        }
        id
    }

    fn cursor_of(&self, id: &DestinationId, partition: u16) -> Option<&Cursor> {
        self.cursors.get(id)?.get(usize::from(partition))
    }

    fn snapshot_of(&self, id: &DestinationId, partition: u16) -> Option<&SnapshotCursor> {
        self.snapshots.get(id)?.get(usize::from(partition))
    }

    fn pending_of(&self, id: &DestinationId, partition: u16) -> &BTreeSet<u64> {
        static NONE: BTreeSet<u64> = BTreeSet::new();
        let pending = self.pending.get(id).and_then(|all| all.get(usize::from(partition)));
        pending.unwrap_or(&NONE)
    }
}

/// Handles' readings by destination and partition.
type ByPlace<T> = BTreeMap<(DestinationId, u16), T>;
