//! The snapshot cursor, with the arithmetic of [`postrider_core::snapshot`]: what a process remembers, and
//! its statements.
//!
//! A fetch is one statement, which reads the token of the server's life, the sequence, a snapshot, and
//! a page of what that sees and the cursor's base did not. What the process remembers of a partition
//! belongs to one life of the server: an answer of another is refused, as is a settlement, and the
//! engine loads the partition anew under another lease.

use postrider_core::snapshot::{
    CrashToken, Drawn, Incarnation, SequenceTick, SnapshotCursor, Verdict, given_through,
};
use postrider_core::source::{FetchRequest, Loaded, Page};
use postrider_core::{
    Cursor, DestinationId, Error, ErrorKind, Lease, Result, Start, planted, reach,
};

use super::super::kind::Kind;
use super::super::server::Needs;
use super::super::state::{LogRow, State};
use super::super::{MemoryStore, lock};
use super::change_log::check_rewound;
use super::page::Rows;
use super::remembered::Remembered;

/// A token that is read is there soon after it is planted, unless the server crashes again and again.
const PLANTINGS_MAX: usize = 3;

pub(super) async fn load(store: &MemoryStore, lease: &Lease, id: &DestinationId) -> Result<Loaded> {
    for _ in 0..PLANTINGS_MAX {
        let load =
            |state: &mut State| Ok((state.incarnation(), state.load(id, lease.partition.0)?));
        let (seen, loaded) = store.statement("load", Needs::Nothing, load).await?;
        let Some(life) = seen else {
            store.plant_token().await?;
            continue;
        };
        let known = lock(&store.local).snapshot.begin(lease, life);
        if judge(known, seen) != Verdict::Keep {
            return Err(store.other_life("load", seen).await);
        }
        return Ok(loaded);
    }
    Err(Error::new(ErrorKind::Busy, "load").message("the server crashes again and again"))
}

pub(super) async fn head(store: &MemoryStore, lease: &Lease) -> Result<Cursor> {
    store.tick().await;
    let known = store.life_of(lease);
    let head = |state: &mut State| {
        let seen = state.incarnation();
        if judge(known, seen) != Verdict::Keep {
            return Ok(Err(seen));
        }
        let now = state.snapshot();
        let local = lock(&store.local);
        let floor = seen.and_then(|life| local.snapshot.ticks.floor_for(&now, life));
        SnapshotCursor::at(&now, floor.unwrap_or_default(), 0).encode().map(Ok)
    };
    match store.statement("head", Needs::Nothing, head).await? {
        Ok(head) => Ok(head),
        Err(seen) => Err(store.other_life("head", seen).await),
    }
}

pub(super) async fn fetch(store: &MemoryStore, request: &FetchRequest) -> Result<Page> {
    let after = SnapshotCursor::decode(&request.after)?;
    let until = request.until.as_ref().map(SnapshotCursor::decode).transpose()?;
    store.tick().await;
    let known = store.life_of(&request.lease);
    let fetch = |state: &mut State| {
        let seen = state.incarnation();
        match seen {
            Some(life) if judge(known, seen) == Verdict::Keep => {
                state.check_known(request)?;
                let mut local = lock(&store.local);
                let read = Reading { state, memory: &mut local.snapshot, life, request };
                read.page(&after, until.as_ref(), store.format_max).map(Ok)
            }
            _ => Ok(Err(seen)),
        }
    };
    match store.statement("fetch", Needs::Nothing, fetch).await? {
        Ok(page) => Ok(page),
        Err(seen) => Err(store.other_life("fetch", seen).await),
    }
}

/// Compares what a statement read with what is remembered. Where nothing is, nothing is wrong.
fn judge(known: Option<Incarnation>, seen: Option<Incarnation>) -> Verdict {
    match known {
        _ if planted!(CrashUnnoticed) && seen.is_some() => Verdict::Keep,
        None if seen.is_some() => Verdict::Keep,
        None => Verdict::Plant,
        Some(known) => CrashToken::knowing(known).judge(seen),
    }
}

/// PostgreSQL logs so many numbers ahead, in the row that readers see.
const SEQUENCE_LOGGED: u64 = 32;

/// What the sequence has given, as far as a reader can tell.
fn given(state: &State) -> u64 {
    let (last_value, is_called) = state.sequence();
    let given = given_through(last_value, is_called || planted!(FreshSequenceAsGiven));
    let is_being_logged = given % SEQUENCE_LOGGED == 1;
    if planted!(SequenceReadUnlocked) && is_being_logged { given + SEQUENCE_LOGGED } else { given }
}

/// A fetch, on the server.
struct Reading<'a> {
    state: &'a State,
    memory: &'a mut Remembered,
    life: Incarnation,
    request: &'a FetchRequest,
}

impl Reading<'_> {
    fn page(
        self,
        after: &SnapshotCursor,
        until: Option<&SnapshotCursor>,
        format_max: u16,
    ) -> Result<Page> {
        let given = given(self.state);
        for cursor in [Some(after), until].into_iter().flatten() {
            check_rewound(cursor.floor_ahead().max(cursor.position()), given)?;
        }
        self.memory.given = Some((given, self.life));
        if let Some(until) = until {
            return self.page_until(after, until, format_max);
        }
        let goes_on = after.target().is_some();
        let link = match goes_on {
            true => after.clone(),
            false => {
                let now = self.state.snapshot();
                let floor = match planted!(FloorAtFetch) {
                    true => Some(given),
                    false => self.memory.ticks.floor_for(&now, self.life),
                };
                after.toward(now, floor)?
            }
        };
        let base = link.encode()?;
        let mut page = Rows::default();
        let mut full = false;
        for row in self.next_rows(&link) {
            if !page.add(row, base.at(row.row.seq), self.request, format_max) {
                full = true;
                break;
            }
        }
        if full {
            reach!(SnapshotGoesOn);
            return Ok(Page { more: true, end: page.end(self.request), rows: page.rows });
        }
        if page.rows.is_empty() && !goes_on && !link.gains() {
            // An idle partition's cursor stays what it is.
            return Ok(Page { more: false, end: self.request.after.clone(), rows: page.rows });
        }
        let drained = link.drained();
        reach!(SnapshotDrained);
        reach!(SnapshotPending, if !drained.pending().is_empty());
        reach!(SnapshotPendingOver, if after.pending().len() > drained.pending().len());
        let more = goes_on && self.is_more_behind(&drained);
        Ok(Page { more, end: drained.encode()?, rows: page.rows })
    }

    /// A page of what lies between two cursors.
    fn page_until(
        self,
        after: &SnapshotCursor,
        until: &SnapshotCursor,
        format_max: u16,
    ) -> Result<Page> {
        let Some(leg) = after.leg(until)? else {
            return Ok(Page { rows: Vec::new(), end: self.request.after.clone(), more: false });
        };
        let base = leg.link.encode()?;
        let mut page = Rows::default();
        for row in self.next_rows(&leg.link).filter(|row| row.row.seq <= leg.through) {
            if !page.add(row, base.at(row.row.seq), self.request, format_max) {
                return Ok(Page { more: true, end: page.end(self.request), rows: page.rows });
            }
        }
        let end = if leg.last { until.clone() } else { leg.link.drained() };
        let more = !leg.last && end.leg(until)?.is_some();
        Ok(Page { more, end: end.encode()?, rows: page.rows })
    }

    /// The rows of a link's target that are beyond its position, in order of the sequence.
    fn next_rows(&self, link: &SnapshotCursor) -> impl Iterator<Item = &LogRow> {
        let partition = self.request.lease.partition.0;
        let from = link.target().map_or(u64::MAX, |target| link.lo_of_page(target));
        let numbers = self.state.by_seq.get(usize::from(partition));
        let numbers =
            numbers.into_iter().flat_map(move |seqs| seqs.range(from.saturating_add(1)..));
        let rows = numbers.filter_map(move |(seq, _)| self.state.row_of(partition, *seq));
        rows.filter(|row| link.is_next(drawn(row)))
    }

    /// Whether there is more behind the end of a target that an earlier fetch began.
    fn is_more_behind(&self, drained: &SnapshotCursor) -> bool {
        let link = drained.toward(self.state.snapshot(), None);
        link.is_ok_and(|link| self.next_rows(&link).next().is_some())
    }
}

impl MemoryStore {
    /// A tick, if it is time and the sequence has moved: two statements, one after the other. Without
    /// its answer the floor stands, and nothing else depends on it.
    async fn tick(&self) {
        let now = postrider_core::Tick::default() + self.elapsed();
        if !lock(&self.local).snapshot.begins_tick(now) {
            return;
        }
        let tick = match planted!(TickInsideTransaction) {
            true => self.tick_in_transaction().await,
            false => self.tick_in_order().await,
        };
        if let Ok(Some(tick)) = tick {
            reach!(SequenceTicked);
            lock(&self.local).snapshot.ticks.note(tick);
        }
    }

    async fn tick_in_order(&self) -> Result<Option<SequenceTick>> {
        let read = |state: &mut State| Ok((given(state), state.incarnation()));
        let (floor, seen) = self.statement("read sequence", Needs::Nothing, read).await?;
        let take = |state: &mut State| {
            state.admits("tick", Needs::Writing)?;
            Ok((state.take_xid(), state.incarnation()))
        };
        let (xid, life) = self.statement("tick", Needs::Nothing, take).await?;
        let same = life.filter(|_| life == seen);
        Ok(same.map(|incarnation| SequenceTick { floor, xid, incarnation }))
    }

    /// Planted: the transaction has its number when it reads.
    async fn tick_in_transaction(&self) -> Result<Option<SequenceTick>> {
        let take = |state: &mut State| {
            state.admits("tick", Needs::Writing)?;
            Ok((state.take_xid(), state.incarnation()))
        };
        let (xid, seen) = self.statement("tick", Needs::Nothing, take).await?;
        let read = |state: &mut State| Ok((given(state), state.incarnation()));
        let (floor, life) = self.statement("read sequence", Needs::Nothing, read).await?;
        let same = life.filter(|_| life == seen);
        Ok(same.map(|incarnation| SequenceTick { floor, xid, incarnation }))
    }

    /// The life of the server that this handle's memory of a partition belongs to.
    pub(in super::super) fn life_of(&self, lease: &Lease) -> Option<Incarnation> {
        lock(&self.local).snapshot.life_of(lease)
    }

    /// Whoever takes partitions leaves a token where there is none: it is about to read.
    pub(in super::super) fn leave_token(&self, state: &mut State) {
        if self.shared.kind == Kind::Snapshot && state.crash_token().is_none() {
            state.offer_crash_token(self.new_token());
        }
    }

    /// Leaves a token where there is none. The one that is read afterwards counts.
    async fn plant_token(&self) -> Result<()> {
        let token = self.new_token();
        let plant = |state: &mut State| {
            state.offer_crash_token(token);
            Ok(())
        };
        reach!(CrashTokenPlanted);
        self.statement("plant token", Needs::Writing, plant).await
    }

    /// What is said to an engine whose memory belongs to another life of the server: that the partition
    /// is not as it remembers it.
    async fn other_life(&self, operation: &'static str, seen: Option<Incarnation>) -> Error {
        reach!(CrashNoticed);
        if planted!(CrashTokenOverwritten) {
            // The token is mine, whoever has another one.
            let token = self.number;
            let overwrite = |state: &mut State| {
                state.overwrite_crash_token(token);
                Ok(())
            };
            _ = self.statement("plant token", Needs::Writing, overwrite).await;
        } else if seen.is_none() {
            // If this fails, the next load finds none either.
            _ = self.plant_token().await;
        }
        crashed(operation)
    }

    fn new_token(&self) -> u64 {
        if planted!(CrashTokenOverwritten) {
            return self.number;
        }
        (self.number << 24) | lock(&self.local).snapshot.next_planting()
    }
}

impl State {
    /// Refuses a settlement of a process whose memory belongs to another life of the server.
    pub(in super::super) fn check_life(&self, known: Option<Incarnation>) -> Result<()> {
        if known.is_none() || judge(known, self.incarnation()) == Verdict::Keep {
            return Ok(());
        }
        Err(crashed("settle"))
    }

    fn incarnation(&self) -> Option<Incarnation> {
        self.crash_token().map(|token| Incarnation(token.into()))
    }

    /// A transaction that takes a number and does nothing. A crash may take the number back.
    fn take_xid(&mut self) -> u64 {
        let xid = self.xids.begin();
        self.xids.end(xid, false);
        xid
    }
}

fn crashed(operation: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, operation).message(
        "the server has crashed since the partition was loaded; nothing was read or written, and \
         what was not saved comes again",
    )
}

fn drawn(row: &LogRow) -> Drawn {
    Drawn { xid: row.xid, seq: row.row.seq }
}

/// Where a reading begins. What is drawn and not committed lies above every floor.
pub(super) fn start(state: &State, partition: u16, start: Start) -> SnapshotCursor {
    let floor = state.seq_committed();
    match start {
        Start::Now => SnapshotCursor::at(&state.snapshot(), floor, floor),
        Start::Beginning => SnapshotCursor::beginning(),
        Start::At(time) => {
            let young =
                |row: &&LogRow| row.event.as_ref().is_ok_and(|event| event.created_at >= time);
            let rows = state.rows(partition).unwrap_or_default();
            let first = rows.iter().filter(young).map(|row| row.row.seq).min();
            SnapshotCursor::above(first.map_or(floor, |first| floor.min(first - 1)))
        }
    }
}

pub(super) fn has_passed(cursor: &SnapshotCursor, row: &LogRow) -> bool {
    cursor.has_passed(drawn(row))
}

/// Where a cursor stands that is set back to a target: before both. None if nothing is read again.
pub(super) fn set_back(
    state: &State,
    partition: u16,
    stands: &SnapshotCursor,
    to: &SnapshotCursor,
) -> Option<SnapshotCursor> {
    let back = SnapshotCursor::above(to.ground().min(stands.ground()));
    let mut rows = state.rows(partition).unwrap_or_default().iter();
    let again = rows.any(|row| has_passed(stands, row) && !has_passed(&back, row));
    again.then_some(back)
}
