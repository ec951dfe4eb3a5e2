//! From one cursor to another: what the one has not passed and the other has.
//!
//! Keeps INV-1 for what a [range](crate::range) stands for: that is all of its key between the two, and no more than
//! that, for what lies beyond the second is read by whoever stands there.

use super::SnapshotCursor;
use crate::Result;

/// A stretch of the way between two cursors: the rows that come next in one difference of snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// A cursor whose next rows these are.
    pub link: SnapshotCursor,
    /// The last number of them: what has a greater one in this difference is not passed by the other cursor.
    pub through: u64,
    /// Whether the way ends with it. If not, it goes on behind the link's target.
    pub last: bool,
}

impl SnapshotCursor {
    /// The next stretch of the way to another cursor; nothing if there is none, because this one has passed all that the
    /// other has.
    ///
    /// The other one is a head, which is a snapshot and no more, or a cursor that this one has been: each base on the way
    /// from here to there is seen by the next. So the way leads to the end of this cursor's target, from there to the
    /// other's base, and from there to its position: in the first two differences the other has passed everything, and in the
    /// last it has passed what is not beyond its position.
    ///
    /// # Errors
    /// `Rewound` if the other's base is older than this one, and does not see all that this one has.
    pub fn leg(&self, until: &SnapshotCursor) -> Result<Option<Leg>> {
        let whole = |link| Some(Leg { link, through: u64::MAX, last: false });
        let through = until.position();
        if let Some(target) = self.target() {
            if until.target().is_some() && self.at_position(0) == until.at_position(0) {
                let last = Leg { link: self.clone(), through, last: true };
                return Ok(Some(last).filter(|_| self.position() < through));
            }
            // A head may lie on the way to the target, and then what is left of it is in there.
            let goes_on =
                until.covers(target) || (until.target().is_none() && !self.covers(&until.base()));
            return Ok(if goes_on { whole(self.clone()) } else { None });
        }
        if !self.covers(&until.base()) {
            return Ok(whole(self.toward(until.base(), Some(until.floor()))?));
        }
        let here = until.covers(&self.base()) && through > 0;
        Ok(here.then(|| Leg { link: until.at_position(0), through, last: true }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::{Drawn, Snapshot};
    use super::*;

    /// Transactions that overlap, with what each has written.
    #[derive(Default)]
    struct World {
        xmax: u64,
        seq: u64,
        open: Vec<(u64, Vec<Drawn>)>,
        rows: Vec<Drawn>,
    }

    impl World {
        fn act(&mut self, choice: u8) {
            match choice % 4 {
                0 => {
                    self.xmax += 1;
                    self.open.push((self.xmax, Vec::new()));
                }
                1 | 2 if !self.open.is_empty() => {
                    let of = usize::from(choice / 4) % self.open.len();
                    // At times the sequence leaps.
                    self.seq += if choice > 230 { 1_000 } else { 1 };
                    let (xid, rows) = &mut self.open[of];
                    rows.push(Drawn { xid: *xid, seq: self.seq });
                }
                3 if !self.open.is_empty() => {
                    let of = usize::from(choice / 4) % self.open.len();
                    self.rows.extend(self.open.remove(of).1);
                }
                _ => {}
            }
        }

        fn snapshot(&self) -> Snapshot {
            Snapshot::with_running(self.xmax + 1, self.open.iter().map(|(xid, _)| *xid))
        }

        /// Where a floor may stand now: below all that is open.
        fn floor(&self) -> u64 {
            let open = self.open.iter().filter_map(|(_, rows)| Some(rows.first()?.seq - 1));
            open.min().unwrap_or(self.seq)
        }

        fn next(&self, link: &SnapshotCursor) -> Vec<Drawn> {
            let mut rows: Vec<Drawn> =
                self.rows.iter().copied().filter(|row| link.is_next(*row)).collect();
            rows.sort_by_key(|row| row.seq);
            rows
        }
    }

    /// Every place that a reader stands at who reads all there is, page by page.
    fn places(world: &mut World, acts: &[u8]) -> Vec<SnapshotCursor> {
        let mut places = vec![SnapshotCursor::beginning()];
        for acts in acts.chunks(5) {
            acts.iter().for_each(|act| world.act(*act));
            let at = places.last().unwrap().clone();
            let link = at.toward(world.snapshot(), Some(world.floor())).unwrap();
            places.extend(world.next(&link).iter().map(|row| link.at_position(row.seq)));
            places.push(link.drained());
        }
        places
    }

    /// Walks from one to the other by pages of so many rows, each of which reads so many numbers, saving and reading the place
    /// as a store does.
    fn walk(
        world: &World,
        from: &SnapshotCursor,
        until: &SnapshotCursor,
        (page, stretch): (usize, u64),
    ) -> Vec<Drawn> {
        let (mut at, mut found) = (from.clone(), Vec::new());
        while let Some(leg) = at.leg(until).unwrap() {
            let begins = leg.link.position().max(leg.link.ground());
            let through = leg.through.min(begins + stretch);
            let mut rows = world.next(&leg.link);
            rows.retain(|row| row.seq <= through);
            let full = rows.len() > page;
            rows.truncate(page);
            found.extend(&rows);
            // Numbers that nobody has are leapt over, whoever sees what comes next.
            let behind = world.rows.iter().map(|row| row.seq).filter(|seq| *seq > through).min();
            let next = behind.filter(|next| through < leg.through && *next <= leg.through);
            at = match (rows.last(), next) {
                (Some(last), _) if full => leg.link.at_position(last.seq),
                (_, Some(next)) => leg.link.at_position(next - 1),
                _ if leg.last => return found,
                _ => leg.link.drained(),
            };
        }
        found
    }

    proptest! {
        /// INV-1: from any place of a reading to any later one, pages of any size give what lies between them, once;
        /// backwards there is nothing.
        #[test]
        fn the_way_between_two_places_is_what_lies_between_them(
            acts in proptest::collection::vec(any::<u8>(), 20..150),
            (from, until) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
            size in (1..8_usize, 1..60_u64),
            later in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut world = World::default();
            let places = places(&mut world, &acts);
            let (from, until) = (from.index(places.len()), until.index(places.len()));
            let (first, last) = (&places[from.min(until)], &places[from.max(until)]);
            // What is committed since is beyond both.
            later.iter().for_each(|act| world.act(*act));
            let between = |row: &&Drawn| !first.has_passed(**row) && last.has_passed(**row);
            let expected: BTreeSet<Drawn> = world.rows.iter().filter(between).copied().collect();
            let found = walk(&world, first, last, size);
            prop_assert_eq!(found.len(), expected.len(), "none twice");
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
            if last != first {
                let back = last.leg(first).unwrap();
                prop_assert_eq!(back, None);
            }
        }

        /// INV-1: a drain reads all that its head has, from wherever its cursor stands, also on the way to a target that
        /// lies beyond the head; and then it has come to its end.
        #[test]
        fn the_way_to_a_head_has_all_that_the_head_sees(
            before in proptest::collection::vec(any::<u8>(), 0..80),
            acts in proptest::collection::vec(any::<u8>(), 20..80),
            from in any::<prop::sample::Index>(),
            size in (1..8_usize, 1..60_u64),
        ) {
            let mut world = World::default();
            before.iter().for_each(|act| world.act(*act));
            let head = SnapshotCursor::at(&world.snapshot(), world.floor(), 0);
            let places = places(&mut world, &acts);
            let from = &places[from.index(places.len())];
            let left = |row: &&Drawn| !from.has_passed(**row) && head.base().sees(row.xid);
            let expected: BTreeSet<Drawn> = world.rows.iter().filter(left).copied().collect();
            let found: BTreeSet<Drawn> = walk(&world, from, &head, size).into_iter().collect();
            prop_assert!(found.is_superset(&expected), "{found:?} has not all of {expected:?}");
        }
    }
}
