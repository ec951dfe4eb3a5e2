//! Reading what is pending: the index names it, and the items are read as they are.
//!
//! Invariants: within a key, rows are handed out in the order of its numbers, none over one that is
//! pending; and a row that cannot be read as an event is handed on as such, and stops nobody.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use postrider_core::source::{FetchRequest, FetchedRow, Page};
use postrider_core::waiting::RowRef;
use postrider_core::{Code, DestinationId, Error, ErrorKind, Result};

use crate::collection::{From, SINGLES_MAX};
use crate::index::{Listed, list};
use crate::item::number;
use crate::job::{Found, Job, Pending};
use crate::mark;
use crate::reading::{By, Handed};
use crate::record::{SEQ, pending_in, unrouted_in};
use crate::store::{DynamoStore, now_ms};
use crate::turns::Turn;

/// How many keys are read at once.
const KEYS_AT_ONCE: usize = 8;
/// The most keys that one round of a fetch reads.
const KEYS_MAX: usize = 64;
/// The most pages of the index that one fetch reads without finding anything new.
const PAGES_MAX: u32 = 8;

/// The most rounds of one fetch that find nothing pending: what the index names at once takes fewer. A fetch that
/// ends here says that there is more.
const BARREN_MAX: u32 = 192;

/// The page behind a place of a reading.
pub(crate) async fn fetch(store: &DynamoStore, request: &FetchRequest) -> Result<Page> {
    let [destination] = &*request.destinations else {
        return Err(Error::new(ErrorKind::Internal, "fetch")
            .message("readings of items that carry their mark are not shared"));
    };
    let mut filling = Filling {
        request,
        destination,
        bytes: 0,
        page: Page { rows: Vec::new(), end: request.after.clone(), more: false },
    };
    if filling.again(store)? {
        return Ok(filling.page);
    }
    filling.check_room(store)?;
    filling.end_of_drain(store)?;
    let mut pages = 0;
    let mut listed_all = false;
    if filling.owes_front(store)? {
        pages += 1;
        listed_all = !filling.list(store).await?;
    }
    let mut barren = 0;
    while !filling.is_full() && barren < BARREN_MAX {
        let jobs = filling.next_jobs(store)?;
        if !jobs.is_empty() {
            let before = filling.page.rows.len();
            filling.read(store, jobs).await?;
            barren += u32::from(filling.page.rows.len() == before);
            continue;
        }
        if listed_all || !filling.page.rows.is_empty() || pages == PAGES_MAX {
            break;
        }
        pages += 1;
        listed_all = !filling.list(store).await?;
    }
    filling.finish(store)
}

/// A page that is being filled.
struct Filling<'a> {
    request: &'a FetchRequest,
    destination: &'a DestinationId,
    bytes: u64,
    page: Page,
}

impl Filling<'_> {
    fn is_full(&self) -> bool {
        self.page.rows.len() >= self.request.rows_max.max(1) as usize
            || (!self.page.rows.is_empty() && self.bytes >= self.request.bytes_max)
    }

    /// Whether a row of so many bytes still fits.
    fn fits(&self, bytes: u64) -> bool {
        self.page.rows.is_empty()
            || (self.page.rows.len() < self.request.rows_max as usize
                && self.bytes.saturating_add(bytes) <= self.request.bytes_max)
    }

    fn shard(&self) -> String {
        match self.is_unrouted() {
            true => unrouted_in(self.request.lease.partition),
            false => pending_in(self.request.lease.partition),
        }
    }

    fn is_unrouted(&self) -> bool {
        self.destination.as_str() == postrider_core::Destination::UNROUTED
    }

    fn push(&mut self, handed: Handed) {
        let cursor = self.request.after.at(handed.at);
        self.bytes = self.bytes.saturating_add(handed.decoded.bytes);
        self.page.end = cursor.clone();
        self.page.rows.push(FetchedRow {
            row: RowRef { seq: handed.seq, id: handed.decoded.id },
            cursor,
            key_hash: handed.decoded.key_hash,
            bytes: handed.decoded.bytes,
            event: handed.decoded.event,
        });
    }

    /// Hands out again what was handed out behind this place, and is not settled.
    fn again(&mut self, store: &DynamoStore) -> Result<bool> {
        let after = &self.request.after;
        let mut readings = store.readings();
        let partition = readings.at(self.request.lease.partition, self.destination, after)?;
        let reading = partition.reading(self.destination);
        for handed in reading.again(after.position()) {
            if !self.fits(handed.decoded.bytes) {
                break;
            }
            if self.is_within(&handed.decoded.event) {
                self.push(handed.clone());
            }
        }
        self.page.more = true;
        Ok(!self.page.rows.is_empty())
    }

    /// Reads nothing new while so many wait that their owner can remember no more of them.
    fn check_room(&self, store: &DynamoStore) -> Result<()> {
        let (partition, after) = (self.request.lease.partition, &self.request.after);
        let mut readings = store.readings();
        let waiting =
            readings.at(partition, self.destination, after)?.reading(self.destination).waiting;
        if waiting < store.options().waiting_max {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Backpressure, "fetch")
            .code(Code::WaitingFull)
            .message(
                "so many events wait that nothing new is read of the partition; nothing is lost, and \
                 retries go on: mend what refuses them, then redrive or discard what is dead",
            )
            .context("waiting", waiting)
            .context("destination", self.destination)
            .context("partition", partition))
    }

    /// Whether an event is before the head of a drain.
    fn is_within<E>(&self, event: &Result<Arc<postrider_core::Event>, E>) -> bool {
        match (self.head(), event) {
            (Some(head), Ok(event)) => event.created_at.as_micros().max(0).cast_unsigned() < head,
            _ => true,
        }
    }

    /// Takes what was named, one job for each collection.
    fn next_jobs(&self, store: &DynamoStore) -> Result<Vec<Job>> {
        let mut readings = store.readings();
        let after = &self.request.after;
        let partition = readings.at(self.request.lease.partition, self.destination, after)?;
        let room = (self.request.rows_max as usize).saturating_sub(self.page.rows.len()).max(1);
        let (mut jobs, mut lowest): (Vec<Job>, HashMap<Arc<str>, usize>) = Default::default();
        let mut apart = 0;
        while jobs.len() < room.min(KEYS_MAX) && apart < room {
            let Some(Listed { place }) = partition.next_named(self.destination) else { break };
            let through = partition.reading(self.destination).through.get(&place.pk).copied();
            match (place.n(), through) {
                (Some(n), None) if !self.is_unrouted() => match lowest.get(&place.pk) {
                    Some(index) => {
                        if let Job::Window(_, From::Named(least, most)) = &mut jobs[*index] {
                            (*least, *most) = (n.min(*least), n.max(*most));
                        }
                    }
                    None => {
                        lowest.insert(Arc::clone(&place.pk), jobs.len());
                        jobs.push(Job::Window(place.pk, From::Named(n, n)));
                    }
                },
                (Some(n), Some(through)) if n > through && !self.is_unrouted() => {
                    match lowest.get(&place.pk) {
                        Some(index) => {
                            if let Job::Window(_, From::Behind(_, named)) = &mut jobs[*index] {
                                *named = n.max(*named);
                            }
                        }
                        None => {
                            lowest.insert(Arc::clone(&place.pk), jobs.len());
                            jobs.push(Job::Window(place.pk, From::Behind(through, n)));
                        }
                    }
                }
                _ => {
                    apart += 1;
                    match jobs.last_mut() {
                        Some(Job::Singles(places)) if places.len() < SINGLES_MAX => {
                            places.push(place);
                        }
                        _ => jobs.push(Job::Singles(vec![place])),
                    }
                }
            }
        }
        Ok(jobs)
    }

    /// Reads collections side by side, and hands out what is pending of them, in the order of the jobs.
    async fn read(&mut self, store: &DynamoStore, jobs: Vec<Job>) -> Result<()> {
        let shard = self.shard();
        let mut taken = Taken { store, request: self.request, jobs: jobs.clone().into() };
        let reads: Vec<_> = jobs.into_iter().map(|job| job.read(store, &shard)).collect();
        let mut reads = stream::iter(reads).buffered(KEYS_AT_ONCE);
        while let Some(found) = reads.next().await {
            let mut found = found?;
            self.leave_beyond(store, &mut found)?;
            if store.options().mark_first && !self.is_unrouted() {
                let lease = &self.request.lease;
                let marked = mark::first(store, lease, &shard, found.items).await?;
                found.items = marked.items;
                // Where a later owner has the key, nothing behind it is ours.
                found.next = found.next.filter(|_| !marked.later);
            }
            self.hand_out(store, found)?;
            taken.jobs.pop_front();
        }
        Ok(())
    }

    /// Leaves what is beyond the head of a drain for a reading that goes further: it is not marked, and its key
    /// is done for this one.
    fn leave_beyond(&self, store: &DynamoStore, found: &mut Found) -> Result<()> {
        let beyond = |pending: &Pending| !self.is_within(&pending.decoded.event);
        let Some(first) = found.items.iter().position(beyond) else { return Ok(()) };
        if found.is_apart {
            found.items.retain(|pending| !beyond(pending));
        } else {
            found.items.truncate(first);
            found.next = None;
        }
        let (partition, after) = (self.request.lease.partition, &self.request.after);
        let mut readings = store.readings();
        let known = readings.at(partition, self.destination, after)?;
        known.reading(self.destination).beyond = self.head();
        Ok(())
    }

    /// Has the front of the index listed where a drain with another head has left something: once, and not by
    /// that drain itself, which would never end.
    fn end_of_drain(&self, store: &DynamoStore) -> Result<()> {
        let (partition, after) = (self.request.lease.partition, &self.request.after);
        let mut readings = store.readings();
        let reading = readings.at(partition, self.destination, after)?.reading(self.destination);
        if reading.beyond.take_if(|head| Some(*head) != self.head()).is_some() {
            reading.listing.sweep();
        }
        Ok(())
    }

    /// The head of a drain, in microseconds.
    fn head(&self) -> Option<u64> {
        self.request.until.as_ref().map(postrider_core::Cursor::position)
    }

    fn hand_out(&mut self, store: &DynamoStore, found: Found) -> Result<()> {
        let mut readings = store.readings();
        let after = &self.request.after;
        let partition = readings.at(self.request.lease.partition, self.destination, after)?;
        let mut items = found.items.into_iter();
        while let Some(Pending { place, item, decoded }) = items.next() {
            if !self.fits(decoded.bytes) {
                let reading = partition.reading(self.destination);
                let rest = items.map(|rest| rest.place).filter(|_| found.is_apart);
                for place in std::iter::once(place).chain(rest) {
                    reading.put_back(Listed { place });
                }
                self.page.more = true;
                return Ok(());
            }
            let stored = number(&item, SEQ);
            if let Some(handed) = partition.hand_out(self.destination, &place, stored, decoded) {
                self.push(handed);
            }
        }
        if let Some((place, looked_at)) = found.next {
            let reading = partition.reading(self.destination);
            // What is not pending is passed as well: else the same window would be read for ever.
            reading.pass(&place.pk, looked_at);
            reading.put_back(Listed { place });
        }
        Ok(())
    }

    /// Whether the front of the index has its turn before what was named.
    fn owes_front(&self, store: &DynamoStore) -> Result<bool> {
        let (partition, after) = (self.request.lease.partition, &self.request.after);
        let mut readings = store.readings();
        let known = readings.at(partition, self.destination, after)?;
        Ok(known.reading(self.destination).owes_front(store.options().backstop))
    }

    /// Reads a page of the index, if it is time to; whether there is more of this listing. What it named is read
    /// before another begins.
    async fn list(&self, store: &DynamoStore) -> Result<bool> {
        let partition = self.request.lease.partition;
        let after = &self.request.after;
        let turn = {
            let mut readings = store.readings();
            let known = readings.at(partition, self.destination, after)?;
            let polls = !self.is_unrouted() && !store.is_live();
            known.reading(self.destination).listing.next(store.options().backstop, polls)
        };
        let Some(Turn { resume, from }) = turn else { return Ok(false) };
        let listing =
            list(store.connection(), &self.shard(), resume, from, store.derives()).await?;
        store.tally().saw_foreign(&listing.foreign);
        let mut readings = store.readings();
        let known = readings.at(partition, self.destination, after)?;
        known.name(self.destination, listing.entries, By::Index);
        let reading = known.reading(self.destination);
        let now = u64::try_from(now_ms()).unwrap_or_default();
        reading.listing.read(listing.resume, listing.newest, now);
        Ok(reading.listing.is_under_way())
    }

    fn finish(mut self, store: &DynamoStore) -> Result<Page> {
        let mut readings = store.readings();
        let after = &self.request.after;
        let partition = readings.at(self.request.lease.partition, self.destination, after)?;
        let reading = partition.reading(self.destination);
        self.page.more = reading.has_named() || reading.listing.is_under_way();
        Ok(self.page)
    }
}

/// Names that were taken to be read, until they are: where a read fails, or is given up, they come back.
struct Taken<'a> {
    store: &'a DynamoStore,
    request: &'a FetchRequest,
    jobs: VecDeque<Job>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let FetchRequest { lease, after, destinations, .. } = self.request;
        let mut readings = self.store.readings();
        let Some(destination) = destinations.first().filter(|_| !self.jobs.is_empty()) else {
            return;
        };
        let Ok(known) = readings.at(lease.partition, destination, after) else { return };
        let reading = known.reading(destination);
        for job in self.jobs.drain(..).rev() {
            for place in job.names().into_iter().rev() {
                reading.put_back(Listed { place });
            }
        }
    }
}

/// How long an idle relay may leave the index alone, if the stream tells it of commits.
pub(crate) const BACKSTOP_DEFAULT: Duration = Duration::from_secs(30);
