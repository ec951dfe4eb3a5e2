//! Stores with one flaw each: the suite's case for it must fail on them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, DefinitionChange, Definitions, DueRequest, FetchRequest, Loaded, Page, RenewRequest,
    SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement, WaitingChange};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Lease, NewEvent, OutboxSource, RelayId, Result,
};
use postrider_testkit::suite::{OpenTransaction, StoreHarness, source, store};

use crate::harness::OnePartition;
use crate::{fails, passes};

const NO_FENCE: u8 = 0;
const CURSOR_ON_NUMBERS: u8 = 1;
const NOBODY_OWNS: u8 = 2;
const FORGETS_WAITING: u8 = 3;
const NO_DELAY: u8 = 4;
const ROLLBACK_COMMITS: u8 = 5;
const NEVER_WAKES: u8 = 6;
const PAGES_WITHOUT_LIMIT: u8 = 7;
const RENEWS_WHAT_IS_LOST: u8 = 8;
const COUNTS_POSTPONEMENTS: u8 = 9;
const READS_WHEN_GONE: u8 = 10;
const HELD_FOR_GOOD: u8 = 11;
const HELD_IS_RETRYING: u8 = 12;

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
        if FLAW == ROLLBACK_COMMITS {
            return self.0.commit(events);
        }
        self.0.roll_back(events)
    }

    fn begin(&self) -> BoxFuture<'_, Result<Box<dyn OpenTransaction>>> {
        self.0.begin()
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.0.pass(span)
    }

    fn unit(&self) -> Duration {
        self.0.unit()
    }

    fn wakes_within(&self) -> Duration {
        Duration::from_secs(3)
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

    /// Everything, by number, with the number as the cursor: what a relay does that takes the
    /// sequence for the commit order.
    async fn fetch_by_number(&self, request: &FetchRequest) -> Result<Page> {
        let all = FetchRequest { after: Cursor::number(0), ..request.clone() };
        let mut page = self.0.fetch(&all).await?;
        page.rows.sort_by_key(|row| row.row.seq);
        page.rows.retain(|row| row.row.seq > request.after.position());
        for row in &mut page.rows {
            row.cursor = Cursor::number(row.row.seq);
        }
        let last = page.rows.last().map(|row| row.cursor.clone());
        page.end = last.unwrap_or_else(|| request.after.clone());
        page.more = false;
        Ok(page)
    }

    /// Reads on for a destination that is gone, as if it were the one that always is there.
    async fn fetch_when_gone(&self, request: &FetchRequest) -> Result<Page> {
        let there = DestinationId::new(Destination::UNROUTED)?;
        self.0.fetch(&FetchRequest { destinations: vec![there], ..request.clone() }).await
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
        self.0.destinations()
    }

    fn acquire<'a>(&'a self, request: &'a AcquireRequest) -> BoxFuture<'a, Result<Acquired>> {
        Box::pin(async move {
            let mut request = request.clone();
            if FLAW == NOBODY_OWNS {
                let asks = AcquireRequest { wanted: 0, ..request.clone() };
                let held = self.0.acquire(&asks).await?.held;
                request.dead = held.into_iter().next().map(|held| held.lease);
            }
            self.0.acquire(&request).await
        })
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        Box::pin(async move {
            let mut renewed = self.0.renew(request).await?;
            if FLAW == RENEWS_WHAT_IS_LOST {
                renewed.kept.clone_from(&request.leases);
            }
            Ok(renewed)
        })
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        self.0.release(leases)
    }

    fn load<'a>(
        &'a self,
        lease: &'a Lease,
        destination: &'a DestinationId,
    ) -> BoxFuture<'a, Result<Loaded>> {
        self.0.load(lease, destination)
    }

    fn head<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Cursor>> {
        self.0.head(lease)
    }

    fn fetch<'a>(&'a self, request: &'a FetchRequest) -> BoxFuture<'a, Result<Page>> {
        Box::pin(async move {
            match FLAW {
                CURSOR_ON_NUMBERS => self.fetch_by_number(request).await,
                READS_WHEN_GONE => self.fetch_when_gone(request).await,
                PAGES_WITHOUT_LIMIT => {
                    let all =
                        FetchRequest { rows_max: u32::MAX, bytes_max: u64::MAX, ..request.clone() };
                    self.0.fetch(&all).await
                }
                _ => self.0.fetch(request).await,
            }
        })
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut settlement = settlement.clone();
            if FLAW == NO_FENCE {
                settlement.lease = self.holder(&settlement.lease).await?;
            }
            for part in &mut settlement.parts {
                if FLAW == FORGETS_WAITING {
                    part.waiting.clear();
                }
                for change in &mut part.changes {
                    match change {
                        WaitingChange::Retry { delay, .. } if FLAW == NO_DELAY => {
                            *delay = Duration::ZERO;
                        }
                        WaitingChange::Postpone { row, delay } if FLAW == COUNTS_POSTPONEMENTS => {
                            *change = WaitingChange::Retry {
                                row: *row,
                                delay: *delay,
                                attempted: postrider_core::waiting::Attempted {
                                    attempts: 2,
                                    reason: postrider_core::waiting::Reason::Failed,
                                    detail: String::new(),
                                },
                            };
                        }
                        _ => {}
                    }
                }
            }
            self.0.settle(&settlement).await
        })
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        Box::pin(async move {
            if FLAW == HELD_FOR_GOOD && self.0.counts(&request.destination).await?.held > 0 {
                return Ok(Due::default());
            }
            self.0.due(request).await
        })
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        Box::pin(async move {
            let lease = match FLAW {
                NO_FENCE => self.holder(lease).await?,
                _ => lease.clone(),
            };
            self.0.admit(&lease, rows_max).await
        })
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        Box::pin(async move {
            let mut counts = self.0.counts(destination).await?;
            if FLAW == HELD_IS_RETRYING {
                counts.retrying += std::mem::take(&mut counts.held);
            }
            Ok(counts)
        })
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        if FLAW == NEVER_WAKES {
            return Box::pin(std::future::pending());
        }
        self.0.wake()
    }
}

/// R114: the flaw a paused relay turns into lost and repeated events.
#[test]
fn a_store_that_ignores_the_token_is_caught() {
    type Flawed = Broken<NO_FENCE>;
    fails(source::a_late_owner_settles_nothing::<Flawed>());
    fails(source::the_same_owner_with_an_old_token_settles_nothing::<Flawed>());
    fails(source::a_late_owner_changes_nothing_that_waits::<Flawed>());
    fails(source::a_late_owner_disables_nothing::<Flawed>());
    fails(store::a_stale_owner_admits_nothing::<Flawed>());
}

/// R118: the flaw that loses whatever commits late.
#[test]
fn a_store_with_a_cursor_on_numbers_is_caught() {
    type Flawed = Broken<CURSOR_ON_NUMBERS>;
    fails(store::a_late_commit_behind_the_cursor_is_read::<Flawed>());
    fails(store::random_overlapping_transactions_are_all_read::<Flawed>());
}

#[test]
fn a_store_that_gives_away_what_is_owned_is_caught() {
    type Flawed = Broken<NOBODY_OWNS>;
    fails(source::a_partition_has_one_owner::<Flawed>());
    fails(source::of_many_that_acquire_at_once_one_wins::<Flawed>());
    fails(source::a_lease_expires_by_the_stores_clock_alone::<Flawed>());
}

#[test]
fn a_store_that_forgets_what_waits_is_caught() {
    type Flawed = Broken<FORGETS_WAITING>;
    fails(source::events_of_a_failed_key_wait_in_order::<Flawed>());
    fails(source::a_dead_letter_parks_its_key::<Flawed>());
    fails(source::what_waits_before_the_cursor_passed_is_told::<Flawed>());
}

#[test]
fn a_store_that_retries_at_once_is_caught() {
    fails(source::attempts_are_kept::<Broken<NO_DELAY>>());
}

#[test]
fn a_store_that_blames_the_event_for_an_outage_is_caught() {
    fails(source::a_postponed_event_counts_no_attempt::<Broken<COUNTS_POSTPONEMENTS>>());
}

#[test]
fn a_store_that_commits_what_was_rolled_back_is_caught() {
    fails(store::a_rolled_back_transaction_leaves_nothing::<Broken<ROLLBACK_COMMITS>>());
}

#[test]
fn a_store_that_reads_on_for_a_removed_destination_is_caught() {
    type Flawed = Broken<READS_WHEN_GONE>;
    fails(source::a_page_for_a_removed_destination_is_refused::<Flawed>());
}

#[test]
fn a_store_that_ignores_the_limits_of_a_page_is_caught() {
    type Flawed = Broken<PAGES_WITHOUT_LIMIT>;
    fails(source::a_page_keeps_its_limits_and_has_at_least_one_row::<Flawed>());
}

#[test]
fn a_store_that_renews_a_lost_lease_is_caught() {
    fails(source::a_lost_lease_is_never_renewed::<Broken<RENEWS_WHAT_IS_LOST>>());
}

#[test]
fn a_store_that_never_wakes_is_caught() {
    fails(source::a_commit_wakes_the_relay::<Broken<NEVER_WAKES>>());
}

#[test]
fn a_store_that_never_gives_out_what_is_held_is_caught() {
    type Flawed = Broken<HELD_FOR_GOOD>;
    fails(source::a_held_event_comes_at_its_time::<Flawed>());
    fails(source::a_postponed_held_event_stays_held::<Flawed>());
    fails(source::the_last_attempt_says_what_is_held::<Flawed>());
    fails(source::an_event_that_enters_before_a_held_one_parks_it::<Flawed>());
}

#[test]
fn a_store_that_counts_what_is_held_as_retrying_is_caught() {
    type Flawed = Broken<HELD_IS_RETRYING>;
    fails(source::a_held_event_comes_at_its_time::<Flawed>());
    fails(source::a_postponed_held_event_stays_held::<Flawed>());
    fails(source::the_last_attempt_says_what_is_held::<Flawed>());
    fails(source::a_held_event_holds_what_follows::<Flawed>());
    fails(source::a_held_event_leaves_like_another::<Flawed>());
}

/// The harness itself is sound: what a flaw does not concern passes.
#[test]
fn what_a_flaw_does_not_concern_passes() {
    passes(store::every_field_survives::<Broken<NO_FENCE>>());
    passes(source::a_partition_has_one_owner::<Broken<NO_FENCE>>());
    passes(store::what_is_committed_is_read_in_order::<Broken<CURSOR_ON_NUMBERS>>());
    passes(source::attempts_are_kept::<Broken<NOBODY_OWNS>>());
    passes(source::a_late_owner_settles_nothing::<Broken<NO_DELAY>>());
    passes(source::attempts_are_kept::<Broken<HELD_FOR_GOOD>>());
    passes(source::events_of_a_failed_key_wait_in_order::<Broken<HELD_IS_RETRYING>>());
}
