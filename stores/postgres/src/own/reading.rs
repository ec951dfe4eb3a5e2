//! What was handed out since a load: the memory of a source whose rows say themselves that they are
//! pending.
//!
//! Invariants: a row that is under way is not handed out a second time in one reading, unless it is asked
//! for from a place before it; places stay what they are; and what is settled is forgotten, so that a
//! reading is never larger than the window.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use postrider_core::waiting::RowRef;
use postrider_core::{Cursor, DestinationId, Error, ErrorKind, Result};
use uuid::Uuid;

/// The readings of one handle, by destination.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    of: HashMap<DestinationId, Reading>,
    /// Rows that are done, and are not marked yet; of each, whether it was not for want of its lock. They are not handed out
    /// again, in no reading.
    owed: BTreeMap<RowRef, bool>,
}

#[derive(Debug)]
struct Reading {
    /// Tells this reading's cursors from those of any other.
    base: Arc<[u8]>,
    /// The place of the first of `handed`.
    first: u64,
    /// Numbers of rows, by their place.
    handed: VecDeque<u64>,
    /// Those of them that are not settled.
    under_way: BTreeSet<u64>,
    /// Bytes of a row, as the last page had it.
    row_bytes: u64,
}

/// What a fetch has to know of the reading.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Handed out behind the place that is asked for, in order: each with its place.
    pub(crate) again: Vec<(u64, u64)>,
    /// Everything that is under way.
    pub(crate) under_way: Vec<u64>,
    /// What a row weighs, if that is known.
    pub(crate) row_bytes: u64,
}

impl Readings {
    /// Begins a reading anew: what was handed out before is handed out again.
    pub(crate) fn begin(&mut self, destination: &DestinationId) -> Cursor {
        let base: Arc<[u8]> = Uuid::now_v7().into_bytes().as_slice().into();
        let reading = Reading {
            base: Arc::clone(&base),
            first: 1,
            handed: VecDeque::new(),
            under_way: BTreeSet::new(),
            row_bytes: 0,
        };
        self.of.insert(destination.clone(), reading);
        Cursor::new(base, 0)
    }

    fn at(&mut self, destination: &DestinationId, after: &Cursor) -> Result<&mut Reading> {
        let reading = self.of.get_mut(destination);
        reading.filter(|reading| reading.base == *after.base()).ok_or_else(|| {
            Error::new(ErrorKind::Conflict, "fetch")
                .message("another reading has begun since; nothing was read")
                .context("destination", destination)
        })
    }

    /// Where a fetch stands.
    pub(crate) fn standing(
        &mut self,
        destination: &DestinationId,
        after: &Cursor,
    ) -> Result<Standing> {
        let owed: Vec<u64> = self.owed.keys().map(|row| row.seq).collect();
        let reading = self.at(destination, after)?;
        let under_way = reading.under_way.iter().copied().chain(owed).collect();
        let skip = (after.position() + 1).saturating_sub(reading.first);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let again = (reading.first..).zip(&reading.handed).skip(skip);
        let again = again.filter(|(_, seq)| reading.under_way.contains(seq));
        Ok(Standing {
            again: again.map(|(place, seq)| (place, *seq)).collect(),
            under_way,
            row_bytes: reading.row_bytes,
        })
    }

    /// Notes that a row is handed out, and gives its place.
    pub(crate) fn hand_out(
        &mut self,
        destination: &DestinationId,
        after: &Cursor,
        seq: u64,
    ) -> Result<u64> {
        let reading = self.at(destination, after)?;
        let place = reading.first + reading.handed.len() as u64;
        reading.handed.push_back(seq);
        reading.under_way.insert(seq);
        Ok(place)
    }

    /// Notes what rows weigh.
    pub(crate) fn weigh(&mut self, destination: &DestinationId, bytes: u64, rows: usize) {
        if let Some(reading) = self.of.get_mut(destination)
            && let Some(mean) = bytes.checked_div(rows as u64)
        {
            reading.row_bytes = mean.max(1);
        }
    }

    /// What is done, and could not be marked.
    pub(crate) fn owed(&self) -> &BTreeMap<RowRef, bool> {
        &self.owed
    }

    /// Notes what could not be marked of what was asked for.
    pub(crate) fn owe(
        &mut self,
        asked: &BTreeSet<RowRef>,
        left: impl Iterator<Item = (RowRef, bool)>,
    ) {
        self.owed.retain(|row, _| !asked.contains(row));
        self.owed.extend(left);
    }

    /// Forgets what is settled: the table itself says from now on that it is not to be read.
    pub(crate) fn settle(&mut self, destination: &DestinationId, seqs: impl Iterator<Item = u64>) {
        let Some(reading) = self.of.get_mut(destination) else { return };
        for seq in seqs {
            reading.under_way.remove(&seq);
        }
        while let Some(seq) = reading.handed.front()
            && !reading.under_way.contains(seq)
        {
            reading.handed.pop_front();
            reading.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_out_is_under_way_until_it_is_settled() {
        let id = DestinationId::new("a").unwrap();
        let mut readings = Readings::default();
        let start = readings.begin(&id);
        let places: Vec<u64> =
            [7, 3, 9].map(|seq| readings.hand_out(&id, &start, seq).unwrap()).into();
        assert_eq!(places, [1, 2, 3]);
        let again = readings.standing(&id, &start).unwrap().again;
        assert_eq!(again, [(1, 7), (2, 3), (3, 9)]);
        assert_eq!(readings.standing(&id, &start.at(2)).unwrap().again, [(3, 9)]);
        readings.settle(&id, [7, 9].into_iter());
        let standing = readings.standing(&id, &start.at(1)).unwrap();
        assert_eq!((standing.again, standing.under_way), (vec![(2, 3)], vec![3]));
        assert_eq!(readings.hand_out(&id, &start, 11).unwrap(), 4, "places stay");
        let other = readings.begin(&id);
        assert_eq!(readings.standing(&id, &start).unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(readings.standing(&id, &other).unwrap(), Standing::default());
    }
}
