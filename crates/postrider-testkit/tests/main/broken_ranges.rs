//! Stores with one flaw each in what they know of ranges: the suite's case for it must fail on them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::operate::{RequestId, RequestState, Submission};
use postrider_core::range::{Range, RangeChange};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, Page, RenewRequest, RetireRequest, Retired, SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement, SettlementPart};
use postrider_core::{
    BoxFuture, Clock, Cursor, Destination, DestinationId, Event, Lease, NewEvent, OutboxSource,
    RelayId, Result, Timestamp,
};
use postrider_testkit::suite::{OpenTransaction, StoreHarness, source};

use crate::harness::OnePartition;
use crate::{fails, passes};

const NOTHING: u8 = 0;
const FORGETS_MOVED: u8 = 1;
const MOVES_FROM_ANYWHERE: u8 = 2;
const READS_BEYOND: u8 = 3;
const STOPS_EARLY: u8 = 4;
const FREES_RANGES: u8 = 5;
const CHANGES_FOR_ANYBODY: u8 = 6;
const COPIES_NOTHING_BEHIND: u8 = 7;
const TELLS_NOTHING: u8 = 8;

/// The memory store with a flaw.
struct Broken<const FLAW: u8>(OnePartition);

impl<const FLAW: u8> StoreHarness for Broken<FLAW> {
    async fn start() -> Broken<FLAW> {
        Broken(OnePartition::start().await)
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(BrokenSource::<FLAW> { store: self.0.source(), aside: Mutex::default() })
    }

    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        self.0.commit(events)
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        self.0.roll_back(events)
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn OpenTransaction>>> {
        self.0.begin()
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.0.pass(span)
    }

    fn now(&self) -> BoxFuture<'_, Timestamp> {
        Box::pin(async { self.0.0.clock().now() })
    }

    fn unit(&self) -> Duration {
        self.0.unit()
    }

    fn submit<'a>(
        &'a self,
        submission: &'a Submission,
    ) -> Option<BoxFuture<'a, Result<RequestId>>> {
        StoreHarness::submit(&self.0, submission)
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<RequestState>> {
        StoreHarness::request(&self.0, id)
    }
}

struct BrokenSource<const FLAW: u8> {
    store: Arc<dyn OutboxSource>,
    /// Ranges that are told and pin nothing.
    aside: Mutex<Vec<(DestinationId, Range)>>,
}

impl<const FLAW: u8> BrokenSource<FLAW> {
    /// Who holds a partition at present, whoever asks.
    async fn holder(&self, lease: &Lease) -> Result<Lease> {
        let request = AcquireRequest {
            owner: RelayId::mint(),
            lease_duration: Duration::ZERO,
            wanted: 0,
            free_for: Duration::ZERO,
            presence: None,
            current: false,
            dead: None,
        };
        let held = self.store.acquire(&request).await?.held;
        let mut leases = held.into_iter().map(|held| held.lease);
        let holder = leases.find(|held| held.partition == lease.partition);
        Ok(holder.unwrap_or_else(|| lease.clone()))
    }

    /// Where the range of a change stands, if there is one.
    async fn stands(
        &self,
        lease: &Lease,
        part: &SettlementPart,
        change: &RangeChange,
    ) -> Option<Cursor> {
        let key = match change {
            RangeChange::Open(range) => range.key_hash,
            RangeChange::Move { key_hash, .. } | RangeChange::Close { key_hash, .. } => *key_hash,
        };
        let loaded = self.store.load(lease, &part.destination).await.ok()?;
        let mut ranges = loaded.ranges?.into_iter();
        Some(ranges.find(|range| range.key_hash == key)?.cursor)
    }

    async fn flawed(&self, lease: &Lease, part: &mut SettlementPart) {
        if FLAW == COPIES_NOTHING_BEHIND && part.cursor.is_none() {
            part.waiting.clear();
        }
        if FLAW == FREES_RANGES {
            self.keep_aside(part);
        }
        for n in 0..part.ranges.len() {
            let stands = self.stands(lease, part, &part.ranges[n]).await;
            match &mut part.ranges[n] {
                RangeChange::Move { key_hash, from, .. } if FLAW == FORGETS_MOVED => {
                    let (key_hash, from) = (*key_hash, from.clone());
                    part.ranges[n] = RangeChange::Close { key_hash, from };
                }
                RangeChange::Move { from, .. } | RangeChange::Close { from, .. }
                    if FLAW == MOVES_FROM_ANYWHERE =>
                {
                    *from = stands.unwrap_or_else(|| from.clone());
                }
                _ => {}
            }
        }
    }

    fn keep_aside(&self, part: &mut SettlementPart) {
        let mut aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
        for change in part.ranges.drain(..) {
            match change {
                RangeChange::Open(range) => aside.push((part.destination.clone(), range)),
                RangeChange::Move { key_hash, to, .. } => {
                    let ours = aside.iter_mut().filter(|(_, range)| range.key_hash == key_hash);
                    ours.for_each(|(_, range)| range.cursor = to.clone());
                }
                RangeChange::Close { key_hash, .. } => {
                    aside.retain(|(_, range)| range.key_hash != key_hash);
                }
            }
        }
    }
}

impl<const FLAW: u8> OutboxSource for BrokenSource<FLAW> {
    fn capabilities(&self) -> SourceCapabilities {
        self.store.capabilities()
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        self.store.open()
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        self.store.register(definitions)
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        self.store.apply(change)
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        self.store.destinations()
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        self.store.acquire(request)
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        self.store.renew(request)
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        self.store.release(leases)
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        Box::pin(async move {
            let mut loaded = self.store.load(lease, destination).await?;
            let aside = self.aside.lock().unwrap_or_else(PoisonError::into_inner);
            let ours = aside.iter().filter(|(id, _)| id == destination);
            let ours = ours.map(|(_, range)| range.clone());
            loaded.ranges.get_or_insert_default().extend(ours);
            if FLAW == TELLS_NOTHING {
                loaded.ranges = Some(Vec::new());
            }
            Ok(loaded)
        })
    }

    fn head<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        self.store.head(lease)
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            let mut request = request.clone();
            let ends = request.until.is_some();
            if FLAW == READS_BEYOND {
                request.until = None;
            }
            let mut page = self.store.fetch(&request).await?;
            page.more &= FLAW != STOPS_EARLY || !ends;
            Ok(page)
        })
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut settlement = settlement.clone();
            if FLAW == CHANGES_FOR_ANYBODY {
                settlement.lease = self.holder(&settlement.lease).await?;
            }
            for part in &mut settlement.parts {
                self.flawed(&settlement.lease, part).await;
            }
            self.store.settle(&settlement).await
        })
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        self.store.due(request)
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        self.store.admit(lease, rows_max)
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        self.store.carry_out(request)
    }

    fn retirable<'a>(
        &'a self,
        request: &'a RetireRequest,
    ) -> BoxFuture<'a, Result<Vec<Arc<Event>>>> {
        self.store.retirable(request)
    }

    fn retire<'a>(&'a self, request: &'a RetireRequest) -> BoxFuture<'a, Result<Retired>> {
        self.store.retire(request)
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        self.store.counts(destination)
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        self.store.wake()
    }
}

/// INV-1: what is not copied has nothing but its range, so one that is lost loses events.
#[test]
fn a_store_that_forgets_a_range_is_caught() {
    fails(source::a_range_is_told_until_it_ends::<Broken<FORGETS_MOVED>>());
    fails(source::a_range_that_stands_elsewhere_is_left::<Broken<FORGETS_MOVED>>());
    fails(source::what_is_copied_behind_the_cursor_is_due_in_its_order::<Broken<FORGETS_MOVED>>());
    fails(source::a_range_is_told_until_it_ends::<Broken<TELLS_NOTHING>>());
    type Idle = Broken<COPIES_NOTHING_BEHIND>;
    fails(source::what_is_copied_behind_the_cursor_is_due_in_its_order::<Idle>());
}

/// R114, R005: a range is moved from where it stands, by who owns the partition.
#[test]
fn a_store_that_moves_ranges_for_anybody_is_caught() {
    fails(source::a_range_that_stands_elsewhere_is_left::<Broken<MOVES_FROM_ANYWHERE>>());
    fails(source::a_late_owner_changes_no_range::<Broken<CHANGES_FOR_ANYBODY>>());
}

/// INV-1: what lies between two places is all of it, and no more than that.
#[test]
fn a_store_that_reads_beyond_a_place_or_stops_before_it_is_caught() {
    fails(source::what_lies_between_two_places_is_read::<Broken<READS_BEYOND>>());
    fails(source::a_page_ends_where_it_was_to_end::<Broken<READS_BEYOND>>());
    fails(source::a_page_until_a_place_has_at_least_one_row::<Broken<READS_BEYOND>>());
    fails(source::what_lies_between_two_places_is_read::<Broken<STOPS_EARLY>>());
    fails(source::a_page_ends_where_it_was_to_end::<Broken<STOPS_EARLY>>());
}

/// R117, R098: the flaws that delete, send again, or leave behind what a range stands for.
#[test]
fn a_store_that_frees_what_a_range_stands_for_is_caught() {
    type Flawed = Broken<FREES_RANGES>;
    fails(source::what_a_range_stands_for_is_not_retired::<Flawed>());
    fails(source::what_a_range_stands_for_is_not_requeued::<Flawed>());
    fails(source::a_rewind_goes_back_before_its_ranges::<Flawed>());
    fails(source::a_removed_destination_takes_its_ranges_along::<Flawed>());
}

/// The harness itself is sound: without a flaw the same cases pass, and where it concerns another.
#[test]
fn what_a_flaw_of_ranges_does_not_concern_passes() {
    type Sound = Broken<NOTHING>;
    passes(source::a_range_is_told_until_it_ends::<Sound>());
    passes(source::a_range_that_stands_elsewhere_is_left::<Sound>());
    passes(source::a_late_owner_changes_no_range::<Sound>());
    passes(source::what_is_copied_behind_the_cursor_is_due_in_its_order::<Sound>());
    passes(source::what_lies_between_two_places_is_read::<Sound>());
    passes(source::a_page_ends_where_it_was_to_end::<Sound>());
    passes(source::a_page_until_a_place_has_at_least_one_row::<Sound>());
    passes(source::what_a_range_stands_for_is_not_retired::<Sound>());
    passes(source::what_a_range_stands_for_is_not_requeued::<Sound>());
    passes(source::a_rewind_goes_back_before_its_ranges::<Sound>());
    passes(source::a_removed_destination_takes_its_ranges_along::<Sound>());
    passes(source::what_lies_between_two_places_is_read::<Broken<FREES_RANGES>>());
    passes(source::a_range_is_told_until_it_ends::<Broken<READS_BEYOND>>());
}
