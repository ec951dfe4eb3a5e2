//! How far a destination is, and what is new to it.

use super::Snapshot;
use crate::{Error, ErrorKind, Result};

/// The numbers a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drawn {
    /// Of the transaction that wrote it.
    pub xid: u64,
    /// From the sequence.
    pub seq: u64,
}

/// A transaction that was running at a cursor's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pending {
    /// Which.
    pub xid: u64,
    /// What it wrote at or below this number is passed; usually it has written nothing there.
    pub floor: u64,
}

/// Where a cursor is going.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) snapshot: Snapshot,
    pub(super) floor: u64,
}

/// How far a (partition, destination) is settled: a base snapshot C, and while the difference to a
/// later snapshot S is drained, that target and a position in it.
///
/// C is kept as what is needed of it: `xmax`, the transactions that were running below it, each with a
/// floor, and the floor of all others.
///
/// **What is passed.** A row is passed by the base if its transaction was finished at C, or if it lies
/// at or below the floor that goes for its transaction: its own if it was running at C, the common one
/// if its number is `C.xmax` or above. It is passed by the position if it lies in S and its `seq` is
/// not above it.
///
/// **Nothing is lost.** Let a transaction commit rows, and take the first base B that sees it as
/// finished. The base A before did not: the rows were not in A, but in B, so they are in the difference
/// that was drained between the two, unless a floor of A hid them. If the transaction was at or beyond
/// `A.xmax`, the floor comes from a tick, and its proof says that the rows lie above. If it was running
/// below `A.xmax`, it has the floor of the base at which it was first listed, whose predecessor had it
/// beyond `xmax`: the same proof, for an earlier and so lower floor. ∎
///
/// **Nothing twice.** What is in B is not in the difference of anything later to B, for snapshots are
/// nested; and pages of one difference go on from the position. ∎
///
/// **In order.** A writer that owns its key's serialisation point before it draws from the sequence has
/// lower numbers than the next owner, who draws after the first one's end. So within a difference `seq`
/// is the order of a key. And a later owner is not in an earlier difference than an earlier one, since
/// a snapshot that sees the later one as finished sees the earlier one too. ∎
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotCursor {
    pub(super) xmax: u64,
    pub(super) floor: u64,
    /// Ascending by number.
    pub(super) pending: Vec<Pending>,
    pub(super) target: Option<Target>,
    /// 0 without a target.
    pub(super) position: u64,
}

impl SnapshotCursor {
    /// Before everything.
    pub fn beginning() -> SnapshotCursor {
        SnapshotCursor { xmax: 0, floor: 0, pending: Vec::new(), target: None, position: 0 }
    }

    /// Before everything above a number of the sequence, whoever wrote it: where a replay begins. At or
    /// below it nothing may be on its way that is to be read.
    pub fn above(floor: u64) -> SnapshotCursor {
        SnapshotCursor { floor, ..SnapshotCursor::beginning() }
    }

    /// Behind everything that a snapshot sees. `floor` is that of a tick that serves it, or 0;
    /// `pending_floor` goes for what was running, and is 0 unless something is known of it.
    pub fn at(snapshot: &Snapshot, floor: u64, pending_floor: u64) -> SnapshotCursor {
        let pending = |xid: &u64| Pending { xid: *xid, floor: pending_floor.min(floor) };
        SnapshotCursor {
            xmax: snapshot.xmax(),
            floor,
            pending: snapshot.xip().iter().map(pending).collect(),
            ..SnapshotCursor::beginning()
        }
    }

    /// One past the last transaction that was finished at the base; 0 if the base sees nothing.
    pub fn xmax(&self) -> u64 {
        self.xmax
    }

    /// No transaction from `xmax` on has written, or will write, at or below it.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The base as a snapshot.
    pub fn base(&self) -> Snapshot {
        Snapshot::with_running(self.xmax, self.pending.iter().map(|pending| pending.xid))
    }

    /// The transactions that were running at the base, ascending.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// The snapshot whose difference to the base is being drained.
    pub fn target(&self) -> Option<&Snapshot> {
        self.target.as_ref().map(|target| &target.snapshot)
    }

    /// How far it is drained: the last number passed. 0 without a target.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where a scan for what `seen` sees and the base does not must begin: the least of the floor and
    /// the floors of those pending transactions that have finished by then. What still runs is not
    /// visible, and is found from its own floor when it ends; so an open transaction costs nothing.
    pub fn lo(&self, seen: &Snapshot) -> u64 {
        let finished =
            self.pending.iter().filter(|pending| self.is_rebased() || seen.sees(pending.xid));
        finished.map(|pending| pending.floor).fold(self.floor, u64::min)
    }

    /// The same for the next page of the target: not before the position either.
    pub fn lo_of_page(&self, seen: &Snapshot) -> u64 {
        self.lo(seen).max(self.position)
    }

    /// Whether a row is in the difference `seen` minus the base, and beyond the position.
    ///
    /// The row's visibility must be decided by this arithmetic on its column `xid` on every page, the
    /// first included, so that all pages agree on what belongs to the target.
    pub fn is_new(&self, seen: &Snapshot, seen_floor: u64, row: Drawn) -> bool {
        row.seq > self.position && !self.is_in_base(row) && self.is_in(seen, seen_floor, row)
    }

    /// Whether a row is in the difference of the target and the base, and beyond the position; false
    /// without a target.
    pub fn is_next(&self, row: Drawn) -> bool {
        self.target.as_ref().is_some_and(|target| self.is_new(&target.snapshot, target.floor, row))
    }

    /// Whether a row is passed: by the base, or by the position in the target.
    pub fn has_passed(&self, row: Drawn) -> bool {
        let by_position = |target: &Target| {
            row.seq <= self.position && self.is_in(&target.snapshot, target.floor, row)
        };
        self.is_in_base(row) || self.target.as_ref().is_some_and(by_position)
    }

    /// Whether everything that a snapshot sees is passed by the base: a drain to it is at its end.
    pub fn covers(&self, snapshot: &Snapshot) -> bool {
        self.xmax >= snapshot.xmax()
            && self.pending.iter().all(|pending| !snapshot.sees(pending.xid))
    }

    /// At or below this nothing is still to come, whoever commits: what retention may delete.
    pub fn ground(&self) -> u64 {
        self.pending.iter().map(|pending| pending.floor).fold(self.floor, u64::min)
    }

    /// The same base on the way to a target: a snapshot taken after it, with the floor of a tick that
    /// serves it, or nothing.
    ///
    /// The floor of the base goes for the target too, for what is beyond the later `xmax` is beyond the
    /// earlier one; so the higher of both is taken.
    ///
    /// # Errors
    /// `Rewound` if the snapshot is older than the base: the server's numbers run backwards, as they do
    /// after a dump is restored, or another server answered.
    pub fn toward(&self, snapshot: Snapshot, floor: Option<u64>) -> Result<SnapshotCursor> {
        let was_listed = |xid: &u64| *xid >= self.xmax || self.find(*xid).is_some();
        if snapshot.xmax() < self.xmax || !snapshot.xip().iter().all(was_listed) {
            return Err(Error::new(ErrorKind::Rewound, "fetch")
                .message("the server's transaction numbers lie behind the cursor; nothing was read")
                .context("cursor", self.xmax)
                .context("server", snapshot.xmax()));
        }
        let floor = floor.unwrap_or(0).max(self.floor);
        let target = Some(Target { snapshot, floor });
        Ok(SnapshotCursor { target, position: 0, ..self.clone() })
    }

    /// The floor that a cursor will have when its target is drained; its present one without a target.
    pub fn floor_ahead(&self) -> u64 {
        self.target.as_ref().map_or(self.floor, |target| target.floor)
    }

    /// The same base and target, at another position. Without a target there is none.
    #[must_use]
    pub fn at_position(&self, position: u64) -> SnapshotCursor {
        let position = if self.target.is_some() { position } else { 0 };
        SnapshotCursor { position, ..self.clone() }
    }

    /// The cursor when the difference is drained: the target becomes the base.
    ///
    /// What was running at the target is pending. If it was pending before, it keeps its floor. If not,
    /// its number lies beyond the old `xmax`, so the old floor is below all it can have written.
    #[must_use]
    pub fn drained(&self) -> SnapshotCursor {
        let Some(target) = &self.target else {
            return self.clone();
        };
        let pending = |xid: &u64| {
            let floor = self.find(*xid).map_or(self.floor, |pending| pending.floor);
            Pending { xid: *xid, floor }
        };
        SnapshotCursor {
            xmax: target.snapshot.xmax(),
            floor: target.floor,
            pending: target.snapshot.xip().iter().map(pending).collect(),
            target: None,
            position: 0,
        }
    }

    /// Whether draining the target makes later scans shorter: the floor rises, or something that was
    /// pending is over. If the difference is empty and this is false, the base may as well stay, and
    /// an idle partition's cursor does not change.
    pub fn gains(&self) -> bool {
        self.target.as_ref().is_some_and(|target| {
            target.floor > self.floor
                || self.pending.iter().any(|pending| target.snapshot.sees(pending.xid))
        })
    }

    /// Whether this link of a chain of read-ahead begins where an earlier one ends. Then nothing lies
    /// between them, and the later one may be saved as soon as all of the earlier one is settled.
    pub fn follows(&self, earlier: &SnapshotCursor) -> bool {
        let end = earlier.drained();
        (end.xmax, end.floor, &end.pending) == (self.xmax, self.floor, &self.pending)
    }

    /// The cursor for a server whose transaction numbers were set back, by a restored dump or a
    /// migration, while the sequence was not: the base sees nothing, the floors stay.
    ///
    /// Nothing is lost: whatever is written from now on lies above the floor, whatever its number; and
    /// rows of those that were running keep their old number, which is data, and are looked for by it.
    /// What lies above the floor and was settled already comes again. So does what was drained of the
    /// target.
    #[must_use]
    pub fn rebased(&self) -> SnapshotCursor {
        SnapshotCursor { xmax: 0, target: None, position: 0, ..self.clone() }
    }

    /// Numbers below may be of another count: the base sees nothing.
    fn is_rebased(&self) -> bool {
        self.xmax == 0
    }

    fn find(&self, xid: u64) -> Option<&Pending> {
        let index = self.pending.binary_search_by_key(&xid, |pending| pending.xid).ok()?;
        self.pending.get(index)
    }

    fn is_in_base(&self, row: Drawn) -> bool {
        match self.find(row.xid) {
            Some(pending) => row.seq <= pending.floor,
            None => row.xid < self.xmax || row.seq <= self.floor,
        }
    }

    /// Whether a snapshot taken at or after the base sees a row. On a rebased cursor a number beyond
    /// `xmax` may be of the old count. Nobody of the new count has written at or below the snapshot's
    /// floor, so what stands there is old, and there.
    fn is_in(&self, seen: &Snapshot, seen_floor: u64, row: Drawn) -> bool {
        seen.sees(row.xid) || (self.is_rebased() && row.xid >= seen.xmax() && row.seq <= seen_floor)
    }
}
