//! An inbox as it is often written: look whether it is there, then insert; no token, no steps that
//! outlive a worker, a marker that is committed before the work. The suite must fail on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::inbox::Accepted;
use postrider_core::{
    BoxFuture, Claim, ClaimLease, ClaimRequest, Clock, Event, HandlerName, InboxKey, InboxStore,
    Result, Tried,
};
use postrider_testkit::fault::TestSignal;
use postrider_testkit::memory::MemoryClock;
use postrider_testkit::suite::{InboxHarness, Then, TransactionalProbe, inbox};

use crate::{fails, passes};

#[derive(Clone)]
struct Naive {
    clock: MemoryClock,
    rows: Arc<Mutex<BTreeMap<InboxKey, Row>>>,
    effects: Arc<Mutex<u64>>,
    looked: TestSignal,
}

#[derive(Clone)]
struct Row {
    ends: Duration,
    result: Option<Bytes>,
}

impl Naive {
    fn elapsed(&self) -> Duration {
        self.clock.tick().since(postrider_core::Tick::default())
    }

    /// The time between the look and the insert: long enough for another worker to look as well,
    /// if there is one.
    async fn round_trip(&self) {
        let another = self.looked.wait();
        self.looked.happened();
        let patience = Duration::from_millis(200);
        let _ = tokio::time::timeout(patience, another.times(2)).await;
    }

    fn finish(&self, key: &InboxKey, result: &[u8]) {
        let row = Row { ends: self.elapsed(), result: Some(Bytes::copy_from_slice(result)) };
        self.rows.lock().unwrap().insert(key.clone(), row);
    }
}

impl InboxStore for Naive {
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move {
            let found = self.rows.lock().unwrap().get(&request.key).cloned();
            self.round_trip().await;
            let now = self.elapsed();
            Ok(match found {
                Some(Row { result: Some(result), .. }) => Claim::Processed { result },
                Some(row) if row.ends > now => Claim::Leased { remaining: row.ends - now },
                _ => {
                    let ends = now + request.duration;
                    let row = Row { ends, result: None };
                    self.rows.lock().unwrap().insert(request.key.clone(), row);
                    Claim::Claimed(ClaimLease {
                        key: request.key.clone(),
                        token: 1,
                        tries: 1,
                        lost: 0,
                    })
                }
            })
        })
    }

    fn heartbeat<'a>(
        &'a self,
        _lease: &'a ClaimLease,
        _duration: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn complete<'a>(
        &'a self,
        lease: &'a ClaimLease,
        result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.finish(&lease.key, result);
            Ok(())
        })
    }

    fn release<'a>(&'a self, lease: &'a ClaimLease, _: Tried) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.rows.lock().unwrap().remove(&lease.key);
            Ok(())
        })
    }

    fn step<'a>(
        &'a self,
        _lease: &'a ClaimLease,
        _step: &'a str,
    ) -> BoxFuture<'a, Result<Option<Bytes>>> {
        Box::pin(async { Ok(None) })
    }

    fn complete_step<'a>(
        &'a self,
        _lease: &'a ClaimLease,
        _step: &'a str,
        _result: &'a [u8],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn record_horizon<'a>(
        &'a self,
        _handler: &'a HandlerName,
        _horizon: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn purge(&self, _older_than: Duration, _rows_max: u32) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async {
            let mut rows = self.rows.lock().unwrap();
            let count = rows.len() as u64;
            rows.clear();
            Ok(count)
        })
    }
}

impl TransactionalProbe for Naive {
    fn accept<'a>(
        &'a self,
        event: &'a Event,
        handler: &'a HandlerName,
        then: Then,
    ) -> BoxFuture<'a, Result<Accepted>> {
        Box::pin(async move {
            let key = InboxKey::of(event, handler)?;
            let known = self.rows.lock().unwrap().contains_key(&key);
            self.round_trip().await;
            if known {
                return Ok(Accepted::Duplicate);
            }
            self.finish(&key, b"");
            if then == Then::Commit {
                *self.effects.lock().unwrap() += 1;
            }
            Ok(Accepted::FirstTime)
        })
    }

    fn effects(&self) -> BoxFuture<'_, u64> {
        Box::pin(async { *self.effects.lock().unwrap() })
    }
}

impl InboxHarness for Naive {
    async fn start() -> Naive {
        Naive {
            clock: MemoryClock::new(),
            rows: Arc::default(),
            effects: Arc::default(),
            looked: TestSignal::default(),
        }
    }

    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(self.clone())
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.clock.advance(span) })
    }

    fn unit(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        Some(Arc::new(self.clone()))
    }
}

/// R078: of many at once several act.
#[test]
fn an_inbox_that_checks_then_inserts_is_caught() {
    fails(inbox::of_a_thousand_claims_at_once_one_wins::<Naive>());
    fails(inbox::of_many_that_reclaim_at_once_one_wins::<Naive>());
    fails(inbox::of_many_transactions_at_once_one_acts::<Naive>());
}

/// R114: a worker that was replaced completes all the same.
#[test]
fn an_inbox_without_a_token_is_caught() {
    fails(inbox::the_four_row_states_answer_as_documented::<Naive>());
    fails(inbox::a_late_worker_is_refused::<Naive>());
    fails(inbox::a_released_claim_is_free_at_once::<Naive>());
    fails(inbox::a_late_worker_stores_no_step::<Naive>());
    fails(inbox::a_step_whose_result_was_left_out_is_found_again::<Naive>());
}

/// R079: what has died ten times looks as if it were new.
#[test]
fn an_inbox_that_counts_no_tries_is_caught() {
    fails(inbox::tries_are_all_that_was_not_given_back::<Naive>());
}

/// R074: the marker is committed first, and the work is never done.
#[test]
fn an_inbox_that_commits_its_marker_first_is_caught() {
    fails(inbox::a_failed_handler_leaves_no_marker::<Naive>());
    fails(inbox::an_abandoned_handler_leaves_no_marker::<Naive>());
}

#[test]
fn an_inbox_that_confuses_payloads_is_caught() {
    fails(inbox::the_same_id_with_another_payload_is_no_duplicate::<Naive>());
    fails(inbox::a_transaction_refuses_another_payload::<Naive>());
}

#[test]
fn an_inbox_that_forgets_steps_and_heartbeats_is_caught() {
    fails(inbox::a_stored_step_is_found_again::<Naive>());
    fails(inbox::steps_survive_a_takeover::<Naive>());
    fails(inbox::a_heartbeat_keeps_a_claim::<Naive>());
}

/// R087: a purge that deletes what is young lets a redelivery act again.
#[test]
fn an_inbox_that_purges_too_much_is_caught() {
    fails(inbox::a_purge_keeps_what_is_young_or_claimed::<Naive>());
    fails(inbox::a_purge_is_bounded::<Naive>());
    fails(inbox::a_purge_leaves_what_may_come_again::<Naive>());
    fails(inbox::a_purge_goes_by_the_longest_horizon::<Naive>());
    fails(inbox::a_purge_keeps_what_a_silent_handler_did::<Naive>());
}

/// The harness itself is sound: what works in it passes.
#[test]
fn what_the_flaws_do_not_concern_passes() {
    passes(inbox::the_stored_result_is_returned::<Naive>());
    passes(inbox::two_handlers_are_independent::<Naive>());
    passes(inbox::a_claim_expires_by_the_stores_clock::<Naive>());
    passes(inbox::transactions_of_two_handlers_both_act::<Naive>());
}
