//! What was handed out since a load: the memory of a source whose items say themselves that they are
//! pending.
//!
//! Invariants: an event keeps its number while one owner holds the partition under one token, and is under
//! way at most once in one reading; numbers are never used twice, because a token is never; and what is
//! settled is forgotten, so that the memory is never larger than the window.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{
    Cursor, Destination, DestinationId, Error, ErrorKind, Lease, PartitionId, Result,
};
use uuid::Uuid;

use crate::index::Listed;
use crate::record::{Decoded, Place};
use crate::turns::Turns;

/// How many places that were settled last are remembered: the index may still name them for a moment.
const SETTLED_MAX: usize = 10_000;
/// How many places are remembered that a stream named and nobody has read yet.
const NAMED_MAX: usize = 10_000;
/// The bits of a number that are the row's own. Fifteen million events are read under a token, in hours; then the
/// partition is loaded anew.
const ORDINAL_BITS: u32 = 24;
/// The bits above them that are the token's: functions take a token with each invocation, and a number that comes
/// round while a dead letter still has it would be another event's.
const TOKEN_BITS: u32 = 31;
/// From this ordinal on the partition is loaded anew, under another token; a page is less than what is left.
const ORDINAL_MAX: u64 = (1 << ORDINAL_BITS) - (1 << 20);

/// The readings of one handle, by partition.
#[derive(Debug, Default)]
pub(crate) struct Readings(HashMap<PartitionId, Partition>);

/// What an owner remembers of a partition.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    token: u64,
    /// What the numbers of this token begin with.
    first: u64,
    ordinal: u64,
    seqs: HashMap<Place, u64>,
    places: HashMap<u64, Place>,
    settled: VecDeque<Place>,
    is_settled: HashSet<Place>,
    readings: HashMap<DestinationId, Reading>,
}

/// A row that was handed out.
#[derive(Clone, Debug)]
pub(crate) struct Handed {
    /// Its place in the reading.
    pub(crate) at: u64,
    pub(crate) seq: u64,
    pub(crate) decoded: Decoded,
}

/// One destination's reading.
#[derive(Debug)]
pub(crate) struct Reading {
    base: Arc<[u8]>,
    last: u64,
    handed: BTreeMap<u64, Handed>,
    under_way: HashSet<u64>,
    /// The number up to which everything of a collection was handed out, or is not pending.
    pub(crate) through: HashMap<Arc<str>, u64>,
    /// What the index, and what the stream, named and was not read yet; and whose turn it is.
    named: VecDeque<Listed>,
    told: VecDeque<Listed>,
    told_next: bool,
    is_named: HashSet<Place>,
    pub(crate) listing: Turns,
    /// The head of the drain that left something beyond it, in microseconds, until another reading has come.
    pub(crate) beyond: Option<u64>,
    /// How many events wait, in whatever state.
    pub(crate) waiting: usize,
}

impl Readings {
    /// Begins a reading anew: what was handed out before and is not settled is handed out again.
    pub(crate) fn begin(&mut self, lease: &Lease, destination: &DestinationId) -> Cursor {
        let partition = self.under(lease);
        let base: Arc<[u8]> = Uuid::now_v7().into_bytes().as_slice().into();
        let reading = Reading {
            base: Arc::clone(&base),
            last: 0,
            handed: BTreeMap::new(),
            under_way: HashSet::new(),
            through: HashMap::new(),
            named: VecDeque::new(),
            told: VecDeque::new(),
            told_next: false,
            is_named: HashSet::new(),
            listing: Turns::default(),
            beyond: None,
            waiting: 0,
        };
        partition.readings.insert(destination.clone(), reading);
        Cursor::new(base, 0)
    }

    /// The partition of a lease, with nothing remembered of another token.
    pub(crate) fn under(&mut self, lease: &Lease) -> &mut Partition {
        let partition = self.0.entry(lease.partition).or_default();
        if partition.token != lease.token {
            let first = first_number(lease);
            *partition = Partition { token: lease.token, first, ..Partition::default() };
        }
        partition
    }

    /// Forgets the partitions whose tokens are lost, or let go; which they are.
    pub(crate) fn forget(&mut self, lost: impl Fn(PartitionId, u64) -> bool) -> Vec<PartitionId> {
        let gone = self.0.extract_if(|partition, known| lost(*partition, known.token));
        gone.map(|(partition, _)| partition).collect()
    }

    pub(crate) fn partition(&mut self, partition: PartitionId) -> Option<&mut Partition> {
        self.0.get_mut(&partition)
    }

    /// The reading that a cursor is of.
    pub(crate) fn at(
        &mut self,
        partition: PartitionId,
        destination: &DestinationId,
        after: &Cursor,
    ) -> Result<&mut Partition> {
        let found = self.0.get_mut(&partition).filter(|known| {
            let ours = |reading: &Reading| reading.base == *after.base();
            known.readings.get(destination).is_some_and(ours) && known.ordinal < ORDINAL_MAX
        });
        found.ok_or_else(|| {
            Error::new(ErrorKind::Conflict, "fetch")
                .message("another reading has begun since; nothing was read")
                .context("partition", partition)
                .context("destination", destination)
        })
    }

    /// Takes note of how many events wait.
    pub(crate) fn note_waiting(
        &mut self,
        partition: PartitionId,
        destination: &DestinationId,
        rows: usize,
    ) {
        let readings = self.0.get_mut(&partition).map(|known| &mut known.readings);
        if let Some(reading) = readings.and_then(|readings| readings.get_mut(destination)) {
            reading.waiting = rows;
        }
    }

    /// Takes note of an event that was committed, in a partition that is read here.
    pub(crate) fn hear(&mut self, partition: PartitionId, place: Place) {
        let Some(known) = self.0.get_mut(&partition) else { return };
        let ids: Vec<DestinationId> = known.readings.keys().cloned().collect();
        for id in ids.into_iter().filter(|id| id.as_str() != Destination::UNROUTED) {
            if known.reading(&id).told.len() >= NAMED_MAX {
                // The index has it too.
                known.reading(&id).listing.sweep();
            } else {
                known.name(&id, vec![Listed { place: place.clone() }], By::Stream);
            }
        }
    }

    /// Has the index read from its front for every reading.
    pub(crate) fn sweep_all(&mut self) {
        let readings = self.0.values_mut().flat_map(|known| known.readings.values_mut());
        readings.for_each(|reading| reading.listing.sweep());
    }

    /// Tells the readings of other destinations that the index may name something new for them.
    pub(crate) fn stir_others(&mut self, partition: PartitionId, destination: &DestinationId) {
        let readings = self.0.get_mut(&partition).map(|known| &mut known.readings);
        for (other, reading) in readings.into_iter().flatten() {
            // From its front: what is handed on is as old as it was.
            if other != destination {
                reading.listing.sweep();
            }
        }
    }
}

/// The number before the first one of a lease: its partition, so that a number says where its row waits, and
/// its token. Tokens of 31 bits begin anew after two milliards of acquisitions of one partition: at five a second,
/// after thirteen years.
fn first_number(lease: &Lease) -> u64 {
    let token = lease.token & ((1 << TOKEN_BITS) - 1);
    u64::from(lease.partition.0) << (TOKEN_BITS + ORDINAL_BITS) | token << ORDINAL_BITS
}

/// The numbers of a partition.
pub(crate) fn numbers_of(partition: PartitionId) -> std::ops::RangeInclusive<u64> {
    let first = u64::from(partition.0) << (TOKEN_BITS + ORDINAL_BITS);
    first..=first + ((1 << (TOKEN_BITS + ORDINAL_BITS)) - 1)
}

/// The partition that a number was given in.
pub(crate) fn partition_of_number(seq: u64) -> Option<PartitionId> {
    u16::try_from(seq >> (TOKEN_BITS + ORDINAL_BITS)).ok().map(PartitionId)
}

impl Partition {
    /// A number that nothing has yet.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.ordinal += 1;
        self.first | self.ordinal
    }

    pub(crate) fn reading(&mut self, destination: &DestinationId) -> &mut Reading {
        self.readings.get_mut(destination).expect("invariant: the reading was looked up before")
    }

    /// Where the row of a number stands, if it was handed out and is not settled.
    pub(crate) fn place(&self, seq: u64) -> Option<&Place> {
        self.places.get(&seq)
    }

    /// Takes note of what was named, but for what is known.
    pub(crate) fn name(&mut self, destination: &DestinationId, listed: Vec<Listed>, by: By) {
        let Partition { is_settled, readings, seqs, .. } = self;
        let Some(reading) = readings.get_mut(destination) else { return };
        for entry in listed {
            let place = &entry.place;
            let known = seqs.get(place).is_some_and(|seq| reading.under_way.contains(seq));
            if !known && !is_settled.contains(place) && reading.is_named.insert(place.clone()) {
                match by {
                    By::Index => reading.named.push_back(entry),
                    By::Stream => reading.told.push_back(entry),
                }
            }
        }
    }

    /// The next that was named to a reading and is not known by now: what was handed out or settled since is
    /// not read again.
    pub(crate) fn next_named(&mut self, destination: &DestinationId) -> Option<Listed> {
        let Partition { is_settled, readings, seqs, .. } = self;
        let reading = readings.get_mut(destination)?;
        loop {
            let next = reading.next_named()?;
            let seq = seqs.get(&next.place);
            let known = seq.is_some_and(|seq| reading.under_way.contains(seq));
            if !known && !is_settled.contains(&next.place) {
                return Some(next);
            }
        }
    }

    /// Hands out a row, under the number that it has, or a new one.
    pub(crate) fn hand_out(
        &mut self,
        destination: &DestinationId,
        place: &Place,
        stored: Option<u64>,
        decoded: Decoded,
    ) -> Option<Handed> {
        let known = stored.or_else(|| self.seqs.get(place).copied());
        let seq = known.unwrap_or_else(|| self.next_number());
        let reading = self.readings.get_mut(destination)?;
        if !reading.under_way.insert(seq) {
            return None;
        }
        self.seqs.insert(place.clone(), seq);
        self.places.insert(seq, place.clone());
        reading.last += 1;
        if let Some(n) = place.n() {
            reading.pass(&place.pk, n);
        }
        let handed = Handed { at: reading.last, seq, decoded };
        reading.handed.insert(reading.last, handed.clone());
        Some(handed)
    }

    /// Forgets rows that are settled: the items themselves say from now on that they are not pending.
    pub(crate) fn settle(&mut self, seqs: &HashSet<u64>) {
        for reading in self.readings.values_mut() {
            reading.forget(seqs);
            if reading.through.len() > SETTLED_MAX + reading.under_way.len() {
                // What has nothing under way may be read from what the index names.
                let places = reading.under_way.iter().filter_map(|seq| self.places.get(seq));
                let busy: HashSet<&Arc<str>> = places.map(|place| &place.pk).collect();
                reading.through.retain(|pk, _| busy.contains(pk));
            }
        }
        for seq in seqs {
            let Some(place) = self.places.remove(seq) else { continue };
            self.seqs.remove(&place);
            if self.is_settled.insert(place.clone()) {
                self.settled.push_back(place);
            }
        }
        while self.settled.len() > SETTLED_MAX {
            if let Some(place) = self.settled.pop_front() {
                self.is_settled.remove(&place);
            }
        }
    }

    /// Forgets rows that one reading handed on to the others: they are pending anew, and one of those may have them
    /// under way by now.
    pub(crate) fn hand_on(&mut self, from: &DestinationId, seqs: &HashSet<u64>) {
        if let Some(reading) = self.readings.get_mut(from) {
            reading.forget(seqs);
        }
        for seq in seqs {
            if !self.readings.values().any(|reading| reading.under_way.contains(seq))
                && let Some(place) = self.places.remove(seq)
            {
                self.seqs.remove(&place);
            }
        }
    }
}

/// Who named a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Index,
    Stream,
}

impl Reading {
    /// Forgets rows that it has under way no more.
    fn forget(&mut self, seqs: &HashSet<u64>) {
        self.handed.retain(|_, handed| !seqs.contains(&handed.seq));
        self.under_way.retain(|seq| !seqs.contains(seq));
    }

    /// What was handed out behind a place and is not settled, in order.
    pub(crate) fn again(&self, after: u64) -> impl Iterator<Item = &Handed> {
        self.handed.range(after + 1..).map(|(_, handed)| handed)
    }

    /// Whether something was named that was not read yet.
    pub(crate) fn has_named(&self) -> bool {
        !self.named.is_empty() || !self.told.is_empty()
    }

    /// Whether the front of the index is to be listed, or being listed, and there is room for what it names:
    /// it has its turn whatever the stream tells.
    pub(crate) fn owes_front(&self, backstop: Duration) -> bool {
        self.named.is_empty() && self.listing.owes_front(backstop)
    }

    /// The next that was named: by the index and by the stream in turns, so that neither waits for a lull of
    /// the other.
    fn next_named(&mut self) -> Option<Listed> {
        self.told_next = !self.told_next;
        let (first, second) = match self.told_next {
            true => (&mut self.told, &mut self.named),
            false => (&mut self.named, &mut self.told),
        };
        let next = first.pop_front().or_else(|| second.pop_front())?;
        self.is_named.remove(&next.place);
        Some(next)
    }

    /// Everything of a collection up to a number was looked at, and what was pending is handed out.
    pub(crate) fn pass(&mut self, pk: &Arc<str>, number: u64) {
        let through = self.through.entry(Arc::clone(pk)).or_insert(number);
        *through = number.max(*through);
    }

    /// Puts back what was named and could not be taken.
    pub(crate) fn put_back(&mut self, listed: Listed) {
        // Whatever version there is by then.
        let listed = Listed { place: listed.place.whichever() };
        if self.is_named.insert(listed.place.clone()) {
            self.told.push_front(listed);
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::RelayId;

    use super::*;

    /// What was read of a partition that is lost leaves memory, and what was begun under a newer token stays.
    #[test]
    fn what_is_lost_is_forgotten_and_nothing_else() {
        let mut readings = Readings::default();
        let id = DestinationId::new("a").unwrap();
        for (partition, token) in [(1, 4), (2, 9)] {
            let partition = PartitionId(partition);
            readings.begin(&Lease { partition, owner: RelayId::mint(), token }, &id);
        }
        assert_eq!(readings.forget(|_, token| token < 9), [PartitionId(1)]);
        assert!(readings.partition(PartitionId(1)).is_none());
        assert!(readings.partition(PartitionId(2)).is_some());
    }
}
