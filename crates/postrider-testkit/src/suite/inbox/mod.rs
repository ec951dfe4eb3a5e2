//! The cases of `inbox_suite!`: of any number of deliveries one acts (INV-4).

mod claims;
mod retention;
mod steps;
mod transactional;

pub use claims::*;
pub use retention::*;
pub use steps::*;
pub use transactional::*;

/// Why the cases cannot run.
#[doc(hidden)]
pub fn unavailable<H: crate::suite::InboxHarness>() -> Option<String> {
    H::unavailable()
}

use std::time::Duration;

use postrider_core::{
    Claim, ClaimLease, ClaimRequest, Event, EventId, HandlerName, InboxStore, Payload,
};

/// Longer than any case: such a claim does not end by itself.
const LONG: Duration = Duration::from_secs(3_600);

/// Applies the suite to a harness: `inbox_suite!(Harness);` makes a module `inbox_suite` with one
/// test per case.
#[macro_export]
macro_rules! inbox_suite {
    ($harness:ty) => {
        mod inbox_suite {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases!(
                $harness,
                inbox,
                // claims
                the_four_row_states_answer_as_documented,
                of_a_thousand_claims_at_once_one_wins,
                of_many_that_reclaim_at_once_one_wins,
                a_claim_expires_by_the_stores_clock,
                a_heartbeat_keeps_a_claim,
                a_late_worker_is_refused,
                a_released_claim_is_free_at_once,
                tries_are_all_that_was_not_given_back,
                the_stored_result_is_returned,
                the_largest_result_is_returned,
                a_result_that_was_left_out_is_told_from_an_empty_one,
                completing_twice_is_completing_once,
                two_handlers_are_independent,
                two_sources_may_use_the_same_id,
                the_same_id_with_another_payload_is_no_duplicate,
                // steps
                a_stored_step_is_found_again,
                steps_survive_a_takeover,
                a_late_worker_stores_no_step,
                steps_of_two_handlers_are_apart,
                a_step_whose_result_was_left_out_is_found_again,
                // retention
                a_purge_deletes_what_is_done_and_old,
                a_purge_keeps_what_is_young_or_claimed,
                a_purge_takes_claims_that_nobody_took_again,
                a_purge_is_bounded,
                a_purge_leaves_what_may_come_again,
                a_purge_goes_by_the_longest_horizon,
                a_purge_keeps_what_a_silent_handler_did,
                // transactional
                a_committed_effect_happens_once,
                a_failed_handler_leaves_no_marker,
                an_abandoned_handler_leaves_no_marker,
                of_many_transactions_at_once_one_acts,
                a_transaction_refuses_another_payload,
                transactions_of_two_handlers_both_act,
            );
        }
    };
}

fn event(n: u128) -> Event {
    let mut event = Event::new(EventId::from_u128(n), "order", "42", "order.placed");
    event.source = "/shop".into();
    event.payload = Payload::json(format!("{{\"n\":{n}}}")).expect("JSON");
    event
}

fn handler(name: &str) -> HandlerName {
    HandlerName::new(name).expect("invariant: the name is valid")
}

fn request(event: &Event, name: &str, duration: Duration) -> ClaimRequest {
    ClaimRequest::new(event, &handler(name), duration).expect("the event has a source")
}

async fn claim(inbox: &dyn InboxStore, event: &Event, duration: Duration) -> Claim {
    let request = request(event, "billing", duration);
    inbox.claim(&request).await.expect("claim answers")
}

async fn claimed(inbox: &dyn InboxStore, event: &Event, duration: Duration) -> ClaimLease {
    match claim(inbox, event, duration).await {
        Claim::Claimed(lease) => lease,
        other => panic!("expected a claim, got {other:?}"),
    }
}
