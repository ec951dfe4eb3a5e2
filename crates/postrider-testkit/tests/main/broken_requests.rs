//! Stores with one flaw each in what operators ask for, in disabled endpoints, or in retention: the
//! suite's case for it must fail on them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::operate::{RequestId, RequestState, Submission};
use postrider_core::source::{
    Admitted, CarriedOut, CarryOutRequest, DefinitionChange, Definitions, DueRequest, FetchRequest,
    Loaded, Page, RenewRequest, RetireRequest, Retired, SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{
    Counts, DisabledEndpoint, Due, Placement, Settlement, WaitingChange,
};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Event, Lease, NewEvent, OutboxSource,
    PartitionId, RelayId, Result,
};
use postrider_testkit::suite::{StoreHarness, source};

use crate::harness::OnePartition;
use crate::{fails, passes};

const NOTHING: u8 = 0;
const FORGETS_FREED: u8 = 1;
const CARRIES_OUT_FOR_ANYBODY: u8 = 2;
const CARRIES_OUT_WITHOUT_LIMIT: u8 = 3;
const FORGETS_LATE: u8 = 4;
const HIDES_DISABLED: u8 = 5;
const STRANDS: u8 = 6;
const IGNORES_PAUSES: u8 = 7;
const HIDES_SURRENDER: u8 = 8;
const MARKS_EVERYTHING: u8 = 9;
const FORGETS_AHEAD: u8 = 10;
const RETIRES_UNARCHIVED: u8 = 11;
const RETIRES_FOR_ANYBODY: u8 = 12;
const RETIRES_YOUNG: u8 = 13;
const RETIRES_UNPASSED: u8 = 14;
const RETIRES_WITHOUT_LIMIT: u8 = 15;
const KEEPS_ERASED: u8 = 16;
const HIDES_ENABLED: u8 = 17;
const CARRIES_OUT_NOTHING: u8 = 18;
const ERASES_NOTHING: u8 = 19;
const FORGETS_DISABLED: u8 = 20;

/// The memory store with a flaw.
struct Broken<const FLAW: u8>(OnePartition);

impl<const FLAW: u8> StoreHarness for Broken<FLAW> {
    async fn start() -> Broken<FLAW> {
        Broken(OnePartition::start().await)
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(BrokenSource::<FLAW>(self.0.source()))
    }

    fn commit(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        self.0.commit(events)
    }

    fn roll_back(&self, events: Vec<NewEvent>) -> BoxFuture<'_, Result<()>> {
        self.0.roll_back(events)
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.0.pass(span)
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

    fn set_partition(
        &self,
        partition: PartitionId,
        paused: bool,
    ) -> Option<BoxFuture<'_, Result<()>>> {
        if FLAW == IGNORES_PAUSES {
            return Some(Box::pin(async { Ok(()) }));
        }
        StoreHarness::set_partition(&self.0, partition, paused)
    }

    fn erase<'a>(&'a self, key: &'a str) -> Option<BoxFuture<'a, Result<()>>> {
        if FLAW == ERASES_NOTHING {
            return Some(Box::pin(async { Ok(()) }));
        }
        StoreHarness::erase(&self.0, key)
    }
}

struct BrokenSource<const FLAW: u8>(Arc<dyn OutboxSource>);

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
        let held = self.0.acquire(&request).await?.held;
        let mut leases = held.into_iter().map(|held| held.lease);
        let holder = leases.find(|held| held.partition == lease.partition);
        Ok(holder.unwrap_or_else(|| lease.clone()))
    }

    async fn flawed(&self, request: &RetireRequest) -> Result<RetireRequest> {
        let mut request = request.clone();
        match FLAW {
            RETIRES_UNARCHIVED => request.only = None,
            RETIRES_FOR_ANYBODY => request.lease = self.holder(&request.lease).await?,
            RETIRES_YOUNG => request.older_than = Duration::ZERO,
            RETIRES_WITHOUT_LIMIT => request.rows_max = u32::MAX,
            _ => {}
        }
        Ok(request)
    }
}

impl<const FLAW: u8> OutboxSource for BrokenSource<FLAW> {
    fn capabilities(&self) -> SourceCapabilities {
        self.0.capabilities()
    }

    fn open(&self) -> BoxFuture<'_, Result<StoreFacts>> {
        self.0.open()
    }

    fn register<'a>(&'a self, definitions: &'a [Destination]) -> BoxFuture<'a, Result<()>> {
        self.0.register(definitions)
    }

    fn apply<'a>(&'a self, change: &'a DefinitionChange) -> BoxFuture<'a, Result<u64>> {
        self.0.apply(change)
    }

    fn destinations(&self) -> BoxFuture<'_, Result<Definitions>> {
        Box::pin(async move {
            let mut definitions = self.0.destinations().await?;
            if FLAW == HIDES_DISABLED {
                definitions.disabled.clear();
            }
            Ok(definitions)
        })
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        self.0.acquire(request)
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        self.0.renew(request)
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        self.0.release(leases)
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        Box::pin(async move {
            let mut loaded = self.0.load(lease, destination).await?;
            match FLAW {
                MARKS_EVERYTHING => loaded.replay_through = u64::MAX,
                FORGETS_AHEAD => loaded.waiting_ahead.clear(),
                _ => {}
            }
            Ok(loaded)
        })
    }

    fn head<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        self.0.head(lease)
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        self.0.fetch(request)
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut settlement = settlement.clone();
            for part in &mut settlement.parts {
                let disabled = part.waiting.iter().filter_map(|new| match &new.placement {
                    Placement::Disabled { endpoint, .. } => Some(endpoint.clone()),
                    _ => None,
                });
                let disabled: Vec<_> = disabled.collect();
                let strand = |topic| DisabledEndpoint { topic, detail: String::new() };
                match FLAW {
                    STRANDS => part.disabled.extend(disabled.into_iter().map(strand)),
                    FORGETS_DISABLED => part.disabled.clear(),
                    KEEPS_ERASED => {
                        part.changes.retain(|c| !matches!(c, WaitingChange::Erased(_)));
                    }
                    _ => {}
                }
            }
            self.0.settle(&settlement).await
        })
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        Box::pin(async move {
            let mut due = self.0.due(request).await?;
            if FLAW == FORGETS_LATE {
                due.rows.iter_mut().for_each(|row| row.late = false);
            }
            Ok(due)
        })
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        self.0.admit(lease, rows_max)
    }

    fn carry_out<'a>(&'a self, request: &'a CarryOutRequest) -> BoxFuture<'a, Result<CarriedOut>> {
        Box::pin(async move {
            let mut request = request.clone();
            match FLAW {
                CARRIES_OUT_NOTHING => return Ok(CarriedOut::default()),
                CARRIES_OUT_WITHOUT_LIMIT => request.rows_max = u32::MAX,
                CARRIES_OUT_FOR_ANYBODY => {
                    for lease in &mut request.leases {
                        *lease = self.holder(lease).await?;
                    }
                }
                _ => {}
            }
            let mut done = self.0.carry_out(&request).await?;
            match FLAW {
                FORGETS_FREED => done.freed.clear(),
                HIDES_SURRENDER => done.surrendered.clear(),
                HIDES_ENABLED => done.enabled.clear(),
                _ => {}
            }
            Ok(done)
        })
    }

    fn retirable<'a>(
        &'a self,
        request: &'a RetireRequest,
    ) -> BoxFuture<'a, Result<Vec<Arc<Event>>>> {
        Box::pin(async move {
            if FLAW == RETIRES_UNPASSED {
                let request = FetchRequest {
                    lease: request.lease.clone(),
                    destinations: Vec::new(),
                    after: Cursor::number(0),
                    until: None,
                    rows_max: request.rows_max,
                    bytes_max: u64::MAX,
                };
                let page = self.0.fetch(&request).await?;
                return Ok(page.rows.into_iter().filter_map(|row| row.event.ok()).collect());
            }
            let request = self.flawed(request).await?;
            self.0.retirable(&request).await
        })
    }

    fn retire<'a>(&'a self, request: &'a RetireRequest) -> BoxFuture<'a, Result<Retired>> {
        Box::pin(async move {
            let request = self.flawed(request).await?;
            self.0.retire(&request).await
        })
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        self.0.counts(destination)
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        self.0.wake()
    }
}

/// R096: requests that are not carried out, or by whoever asks, or without end.
#[test]
fn a_store_that_carries_out_wrongly_is_caught() {
    type Idle = Broken<CARRIES_OUT_NOTHING>;
    fails(source::a_redriven_dead_letter_comes_out_in_its_place::<Idle>());
    fails(source::what_is_not_dead_any_more_is_not_redriven::<Idle>());
    fails(source::requests_are_carried_out_in_order::<Idle>());
    fails(source::a_request_is_carried_out_once::<Idle>());
    fails(source::a_late_owner_carries_out_nothing::<Broken<CARRIES_OUT_FOR_ANYBODY>>());
    fails(source::carrying_out_keeps_its_limit::<Broken<CARRIES_OUT_WITHOUT_LIMIT>>());
}

/// INV-3, INV-8: a key that is let go on, and nobody hears of it; an event out of its order that does
/// not say so.
#[test]
fn a_store_that_forgets_what_it_freed_or_what_is_late_is_caught() {
    fails(source::a_discarded_head_lets_its_key_go_on::<Broken<FORGETS_FREED>>());
    fails(source::a_discard_in_the_middle_keeps_the_rest_parked::<Broken<FORGETS_FREED>>());
    fails(source::a_discard_in_the_middle_keeps_the_rest_parked::<Broken<FORGETS_AHEAD>>());
    fails(source::a_requeued_event_is_sent_again_late::<Broken<FORGETS_LATE>>());
    type Unmarked = Broken<FORGETS_LATE>;
    fails(source::a_redriven_dead_letter_that_let_its_key_pass_is_late::<Unmarked>());
}

/// INV-5: an endpoint that is gone and not known to be, or in service and not known to be.
#[test]
fn a_store_that_is_wrong_about_endpoints_is_caught() {
    fails(source::a_disabled_endpoint_is_told_to_everybody::<Broken<HIDES_DISABLED>>());
    fails(source::events_of_a_disabled_endpoint_wait::<Broken<FORGETS_DISABLED>>());
    fails(source::a_waiting_event_can_wait_for_its_endpoint::<Broken<FORGETS_DISABLED>>());
    fails(source::an_event_of_a_disabled_endpoint_can_be_discarded::<Broken<FORGETS_DISABLED>>());
    fails(source::an_enabled_endpoint_lets_its_events_out_in_order::<Broken<HIDES_ENABLED>>());
    fails(source::nothing_waits_for_an_endpoint_that_is_in_service::<Broken<STRANDS>>());
    fails(source::an_erased_event_leaves_and_its_key_goes_on::<Broken<KEEPS_ERASED>>());
    fails(source::an_erasure_reaches_what_waits::<Broken<ERASES_NOTHING>>());
}

#[test]
fn a_store_that_grants_what_is_paused_is_caught() {
    fails(source::a_paused_partition_is_granted_to_nobody::<Broken<IGNORES_PAUSES>>());
    fails(source::a_paused_partition_is_kept_until_it_is_let_go::<Broken<IGNORES_PAUSES>>());
}

/// A rewind that nobody hears of, or that marks what was never sent, or forgets what waits.
#[test]
fn a_store_that_rewinds_wrongly_is_caught() {
    fails(source::a_rewound_destination_is_read_again::<Broken<HIDES_SURRENDER>>());
    fails(source::what_was_not_passed_is_no_replay::<Broken<MARKS_EVERYTHING>>());
    fails(source::a_rewind_concerns_one_destination::<Broken<MARKS_EVERYTHING>>());
    type Forgetful = Broken<FORGETS_AHEAD>;
    fails(source::what_waits_stays_when_its_destination_is_rewound::<Forgetful>());
}

/// R117, R102, R114: the flaws that delete what nobody has delivered, or archived.
#[test]
fn a_store_that_deletes_too_much_is_caught() {
    fails(source::only_what_every_cursor_has_passed_is_retired::<Broken<RETIRES_UNPASSED>>());
    fails(source::what_waits_is_not_retired::<Broken<RETIRES_UNPASSED>>());
    fails(source::nothing_younger_than_the_retention_is_retired::<Broken<RETIRES_YOUNG>>());
    fails(source::only_what_was_archived_is_retired::<Broken<RETIRES_UNARCHIVED>>());
    fails(source::a_late_owner_retires_nothing::<Broken<RETIRES_FOR_ANYBODY>>());
    fails(source::retiring_keeps_its_limit::<Broken<RETIRES_WITHOUT_LIMIT>>());
}

/// The harness itself is sound: without a flaw the same cases pass.
#[test]
fn without_a_flaw_the_same_cases_pass() {
    type Sound = Broken<NOTHING>;
    passes(source::a_discarded_head_lets_its_key_go_on::<Sound>());
    passes(source::an_enabled_endpoint_lets_its_events_out_in_order::<Sound>());
    passes(source::a_paused_partition_is_granted_to_nobody::<Sound>());
    passes(source::a_rewound_destination_is_read_again::<Sound>());
    passes(source::only_what_was_archived_is_retired::<Sound>());
}
