//! Stores whose lease table breaks one rule each: the model names the rule.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::{
    Admitted, DefinitionChange, Definitions, DueRequest, FetchRequest, Loaded, Page, RenewRequest,
    SourceCapabilities, StoreFacts,
};
use postrider_core::waiting::{Counts, Due, Settlement};
use postrider_core::{
    BoxFuture, Cursor, Destination, DestinationId, Lease, NewEvent, OutboxSource, RelayId, Result,
};
use postrider_testkit::suite::StoreHarness;
use postrider_testkit::suite::model::{Effort, Rule, leases_follow_their_model};

use crate::harness::OnePartition;

const TOKEN_STANDS: u8 = 0;
const GIVES_AWAY: u8 = 1;
const GIVES_NOTHING: u8 = 2;
const RENEWS_WHAT_IS_LOST: u8 = 3;
const DROPS_WHAT_ENDED: u8 = 4;
const SETTLES_FOR_ANYBODY: u8 = 5;
const FREES_FOR_ANYBODY: u8 = 6;
const COUNTS_NO_TAKEOVERS: u8 = 7;
const TELLS_NOBODY: u8 = 8;
const BELIEVES_OLD_PROOFS: u8 = 9;

struct Broken<const FLAW: u8>(OnePartition);

impl<const FLAW: u8> StoreHarness for Broken<FLAW> {
    async fn start() -> Broken<FLAW> {
        Broken(OnePartition::start().await)
    }

    fn source(&self) -> Arc<dyn OutboxSource> {
        Arc::new(Flawed::<FLAW>(self.0.source()))
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
}

struct Flawed<const FLAW: u8>(Arc<dyn OutboxSource>);

impl<const FLAW: u8> Flawed<FLAW> {
    /// What is held at present and has not ended.
    async fn held(&self) -> Result<Vec<Lease>> {
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
        Ok(held.into_iter().map(|held| held.lease).collect())
    }

    async fn holder(&self, lease: &Lease) -> Result<Lease> {
        let mut held = self.held().await?.into_iter();
        let holder = held.find(|held| held.partition == lease.partition);
        Ok(holder.unwrap_or_else(|| lease.clone()))
    }
}

impl<const FLAW: u8> OutboxSource for Flawed<FLAW> {
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
            match (FLAW, request.dead.clone()) {
                (GIVES_AWAY, _) => request.dead = self.held().await?.pop(),
                (BELIEVES_OLD_PROOFS, Some(dead)) => request.dead = Some(self.holder(&dead).await?),
                (GIVES_NOTHING, _) => request.wanted = 0,
                _ => {}
            }
            let mut acquired = self.0.acquire(&request).await?;
            for granted in &mut acquired.granted {
                match FLAW {
                    TOKEN_STANDS => granted.lease.token = 1,
                    COUNTS_NO_TAKEOVERS => granted.takeovers = 0,
                    _ => {}
                }
            }
            if FLAW == TELLS_NOBODY {
                acquired.held.clear();
            }
            Ok(acquired)
        })
    }

    fn renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<Renewed>> {
        Box::pin(async move {
            let held = self.held().await?;
            let mut renewed = self.0.renew(request).await?;
            match FLAW {
                RENEWS_WHAT_IS_LOST => renewed.kept.clone_from(&request.leases),
                DROPS_WHAT_ENDED => renewed.kept.retain(|lease| held.contains(lease)),
                _ => {}
            }
            Ok(renewed)
        })
    }

    fn release<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut leases = leases.to_vec();
            if FLAW == FREES_FOR_ANYBODY {
                for lease in &mut leases {
                    *lease = self.holder(lease).await?;
                }
            }
            self.0.release(&leases).await
        })
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
        self.0.fetch(request)
    }

    fn settle<'a>(&'a self, settlement: &'a Settlement) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut settlement = settlement.clone();
            if FLAW == SETTLES_FOR_ANYBODY {
                settlement.lease = self.holder(&settlement.lease).await?;
            }
            self.0.settle(&settlement).await
        })
    }

    fn due<'a>(&'a self, request: &'a DueRequest) -> BoxFuture<'a, Result<Due>> {
        self.0.due(request)
    }

    fn admit<'a>(&'a self, lease: &'a Lease, rows_max: u32) -> BoxFuture<'a, Result<Admitted>> {
        self.0.admit(lease, rows_max)
    }

    fn counts<'a>(&'a self, destination: &'a DestinationId) -> BoxFuture<'a, Result<Counts>> {
        self.0.counts(destination)
    }

    fn wake(&self) -> BoxFuture<'_, ()> {
        self.0.wake()
    }
}

/// Insists that the model finds the flaw, and says which rule it breaks.
fn caught<const FLAW: u8>(rules: &[Rule]) {
    let outcome = leases_follow_their_model::<Broken<FLAW>>(Effort::of(64, 40));
    let broken = outcome.expect_err("the flaw was not found");
    let named = rules.iter().any(|rule| broken.contains(&format!("{rule:?} is broken")));
    assert!(named, "flaw {FLAW} breaks {rules:?}, and was caught for another reason: {broken}");
}

#[test]
fn tokens_that_stand_are_caught() {
    caught::<TOKEN_STANDS>(&[Rule::TokenGrows]);
}

#[test]
fn two_owners_are_caught() {
    caught::<GIVES_AWAY>(&[Rule::OneHolder]);
    caught::<BELIEVES_OLD_PROOFS>(&[Rule::OneHolder]);
    caught::<FREES_FOR_ANYBODY>(&[Rule::OneHolder, Rule::TakeoversAreCounted]);
}

#[test]
fn a_table_that_keeps_what_is_free_is_caught() {
    caught::<GIVES_NOTHING>(&[Rule::FreeIsGiven]);
}

#[test]
fn renewals_of_what_is_lost_and_losses_of_what_nobody_took_are_caught() {
    caught::<RENEWS_WHAT_IS_LOST>(&[Rule::StaleIsRefused]);
    caught::<DROPS_WHAT_ENDED>(&[Rule::EndedIsKept]);
}

#[test]
fn settlements_without_a_fence_are_caught() {
    caught::<SETTLES_FOR_ANYBODY>(&[Rule::StaleIsRefused]);
}

#[test]
fn takeovers_and_holders_that_are_not_told_are_caught() {
    caught::<COUNTS_NO_TAKEOVERS>(&[Rule::TakeoversAreCounted]);
    caught::<TELLS_NOBODY>(&[Rule::HoldersAreTold]);
}
