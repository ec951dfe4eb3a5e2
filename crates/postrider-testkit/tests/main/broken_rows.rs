//! Inboxes that break one rule of their rows each: the model names the rule.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_core::inbox::Accepted;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, ErrorKind, Event, HandlerName, InboxStore, Result,
    Tried,
};
use postrider_testkit::suite::model::{Effort, Mixed, Rule, inbox_rows_follow_their_model};
use postrider_testkit::suite::{InboxHarness, Then, TransactionalProbe};

use crate::harness::Inbox;

const TOKEN_STANDS: u8 = 0;
const GIVES_AWAY: u8 = 1;
const NEVER_ENDS: u8 = 2;
const FORGETS_RESULTS: u8 = 3;
const TAKES_ANY_PAYLOAD: u8 = 4;
const HEARS_ANYBODY: u8 = 5;
const HEARS_NOBODY: u8 = 6;
const COMPLETES_FOR_ANYBODY: u8 = 7;
const KEEPS_WHAT_IS_LET_GO: u8 = 8;
const FORGETS_STEPS: u8 = 9;
const PURGES_THE_YOUNG: u8 = 10;
const PURGES_WITHOUT_LIMIT: u8 = 11;
const COMMITS_FAILURES: u8 = 12;
const FORGETS_MARKERS: u8 = 13;

struct Broken<const FLAW: u8>(Inbox);

impl<const FLAW: u8> InboxHarness for Broken<FLAW> {
    async fn start() -> Broken<FLAW> {
        Broken(Inbox::start().await)
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(Flawed::<FLAW>(self.0.inbox()))
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.0.pass(span)
    }

    fn unit(&self) -> Duration {
        self.0.unit()
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        let probe = self.0.transactional()?;
        Some(Arc::new(FlawedProbe::<FLAW>(probe)))
    }
}

struct Flawed<const FLAW: u8>(Arc<dyn InboxStore>);

/// An answer that hides that the lease was lost.
fn unfenced(answer: Result<()>) -> Result<()> {
    match answer {
        Err(error) if error.kind() == ErrorKind::Fenced => Ok(()),
        answer => answer,
    }
}

impl<const FLAW: u8> InboxStore for Flawed<FLAW> {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move {
            let key = request.key.clone();
            Ok(match (FLAW, self.0.claim(request).await?) {
                (TOKEN_STANDS, Claim::Claimed(lease)) => {
                    Claim::Claimed(ClaimLease { token: 1, ..lease })
                }
                (GIVES_AWAY, Claim::Leased { .. }) => {
                    Claim::Claimed(ClaimLease { key, token: u64::MAX, tries: 1, lost: 0 })
                }
                (NEVER_ENDS, Claim::Claimed(lease)) if lease.token > 1 => {
                    Claim::Leased { remaining: Duration::ZERO }
                }
                (FORGETS_RESULTS, Claim::Processed { .. }) => {
                    Claim::Processed { result: Bytes::new() }
                }
                (TAKES_ANY_PAYLOAD, Claim::Mismatch) => Claim::Processed { result: Bytes::new() },
                (_, answer) => answer,
            })
        })
    }

    fn heartbeat<'a>(
        &'a self,
        lease: &'a ClaimLease,
        duration: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let answer = self.0.heartbeat(lease, duration).await;
            match FLAW {
                HEARS_ANYBODY => unfenced(answer),
                HEARS_NOBODY => {
                    let unknown = ClaimLease { token: u64::MAX, ..lease.clone() };
                    self.0.heartbeat(&unknown, duration).await
                }
                _ => answer,
            }
        })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a ClaimLease,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let answer = self.0.complete(lease, result).await;
            if FLAW == COMPLETES_FOR_ANYBODY { unfenced(answer) } else { answer }
        })
    }

    fn release<'a>(&'a self, lease: &'a ClaimLease, tried: Tried) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if FLAW == KEEPS_WHAT_IS_LET_GO { Ok(()) } else { self.0.release(lease, tried).await }
        })
    }

    fn step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(async move {
            let found = self.0.step(lease, step).await?;
            Ok(found.filter(|_| FLAW != FORGETS_STEPS))
        })
    }

    fn complete_step<'a>(
        &'a self,
        lease: &'a ClaimLease,
        step: &'a str,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        self.0.complete_step(lease, step, result)
    }

    fn record_horizon<'a>(
        &'a self,
        handler: &'a HandlerName,
        horizon: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.0.record_horizon(handler, horizon)
    }

    fn purge(&self, older_than: Duration, rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        match FLAW {
            PURGES_THE_YOUNG => self.0.purge(Duration::ZERO, rows_max),
            PURGES_WITHOUT_LIMIT => self.0.purge(older_than, u32::MAX),
            _ => self.0.purge(older_than, rows_max),
        }
    }
}

struct FlawedProbe<const FLAW: u8>(Arc<dyn TransactionalProbe>);

impl<const FLAW: u8> TransactionalProbe for FlawedProbe<FLAW> {
    fn accept<'a>(
        &'a self,
        event: &'a Event,
        handler: &'a HandlerName,
        then: Then,
    ) -> BoxFuture<'a, Result<Accepted>> {
        Box::pin(async move {
            let then = if FLAW == COMMITS_FAILURES { Then::Commit } else { then };
            let accepted = self.0.accept(event, handler, then).await?;
            Ok(if FLAW == FORGETS_MARKERS { Accepted::FirstTime } else { accepted })
        })
    }

    fn effects(&self) -> BoxFuture<'_, u64> {
        self.0.effects()
    }
}

/// Insists that the model finds the flaw, and says which rule it breaks.
fn caught<const FLAW: u8>(rule: Rule) {
    let outcome = inbox_rows_follow_their_model::<Broken<FLAW>>(Effort::of(64, 40), Mixed::No);
    let broken = outcome.expect_err("the flaw was not found");
    let named = broken.contains(&format!("{rule:?} is broken"));
    assert!(named, "flaw {FLAW} breaks {rule:?}, and was caught for another reason: {broken}");
}

#[test]
fn tokens_that_stand_are_caught() {
    caught::<TOKEN_STANDS>(Rule::TokenGrows);
}

#[test]
fn claims_that_are_shared_or_never_end_are_caught() {
    caught::<GIVES_AWAY>(Rule::OneHolder);
    caught::<NEVER_ENDS>(Rule::FreeIsGiven);
    caught::<KEEPS_WHAT_IS_LET_GO>(Rule::FreeIsGiven);
}

#[test]
fn an_inbox_that_forgets_is_caught() {
    caught::<FORGETS_RESULTS>(Rule::DoneStaysDone);
    caught::<TAKES_ANY_PAYLOAD>(Rule::OnePayload);
    caught::<FORGETS_STEPS>(Rule::StepsStay);
}

#[test]
fn a_missing_fence_is_caught_and_so_is_one_too_high() {
    caught::<HEARS_ANYBODY>(Rule::StaleIsRefused);
    caught::<COMPLETES_FOR_ANYBODY>(Rule::StaleIsRefused);
    caught::<HEARS_NOBODY>(Rule::EndedIsKept);
}

#[test]
fn purges_of_what_is_young_or_without_a_limit_are_caught() {
    caught::<PURGES_THE_YOUNG>(Rule::PurgeIsBounded);
    caught::<PURGES_WITHOUT_LIMIT>(Rule::PurgeIsBounded);
}

#[test]
fn effects_without_a_marker_are_caught() {
    caught::<COMMITS_FAILURES>(Rule::OneEffect);
    caught::<FORGETS_MARKERS>(Rule::OneEffect);
}
