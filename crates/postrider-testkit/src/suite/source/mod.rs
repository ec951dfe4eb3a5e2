//! The cases of `source_suite!`: leases, cursors, waiting, and destinations, as a relay uses them
//! (INV-3, INV-7, INV-8).

mod destinations;
mod endpoints;
mod held;
mod leases;
mod pages;
mod pausing;
mod ranges;
mod ranges_read;
mod replay;
mod requests;
mod retiring;
mod settling;
mod waiting;
mod waiting_changes;

pub use destinations::*;
pub use endpoints::*;
pub use held::*;
pub use leases::*;
pub use pages::*;
pub use pausing::*;
pub use ranges::*;
pub use ranges_read::*;
pub use replay::*;
pub use requests::*;
pub use retiring::*;
pub use settling::*;
pub use waiting::*;
pub use waiting_changes::*;

/// Why the cases cannot run.
#[doc(hidden)]
pub fn unavailable<H: crate::suite::StoreHarness>() -> Option<String> {
    H::unavailable()
}

/// Applies the suite to a harness: `source_suite!(Harness);` makes a module `source_suite` with one
/// test per case.
#[macro_export]
macro_rules! source_suite {
    ($harness:ty) => {
        mod source_suite {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases!(
                $harness,
                source,
                // leases
                a_partition_has_one_owner,
                of_many_that_acquire_at_once_one_wins,
                a_token_grows_at_every_acquisition,
                a_lease_expires_by_the_stores_clock_alone,
                a_lost_lease_is_never_renewed,
                a_released_partition_is_free_at_once,
                a_stale_release_frees_nothing,
                a_partition_can_be_asked_for_only_when_long_free,
                takeovers_are_counted_while_the_cursor_stands_still,
                a_proof_of_death_ends_a_lease_early,
                the_census_counts_who_is_alive,
                holders_are_named_with_their_proof_of_life,
                // pages
                a_page_keeps_its_limits_and_has_at_least_one_row,
                reading_again_from_a_cursor_reads_the_same,
                a_drain_stops_at_its_head,
                a_cursor_ahead_of_the_store_is_refused,
                a_key_stays_in_its_partition,
                a_commit_wakes_the_relay,
                // settling
                a_settled_cursor_is_where_the_next_owner_begins,
                a_late_owner_settles_nothing,
                the_same_owner_with_an_old_token_settles_nothing,
                settling_twice_is_settling_once,
                an_expired_lease_that_nobody_took_still_settles,
                // destinations
                destinations_are_registered_once,
                a_change_needs_the_expected_version,
                a_new_destination_starts_where_it_was_told,
                cursors_of_destinations_are_independent,
                what_waits_for_one_destination_waits_for_no_other,
                a_removed_destination_is_gone_with_what_waited,
                a_page_for_a_removed_destination_is_refused,
                // waiting
                events_of_a_failed_key_wait_in_order,
                a_retry_is_due_after_its_delay,
                a_dead_letter_parks_its_key,
                a_dead_letter_that_lets_its_key_pass_parks_nobody,
                an_event_that_waits_is_not_replaced,
                what_waits_before_the_cursor_passed_is_told,
                an_event_that_enters_before_others_parks_them,
                waiting_events_survive_a_takeover,
                keys_under_way_are_not_due,
                what_is_due_keeps_its_limits,
                a_malformed_row_can_be_a_dead_letter,
                a_delivered_head_promotes_the_next,
                a_head_that_gives_up_parks_or_promotes,
                attempts_are_kept,
                a_postponed_event_counts_no_attempt,
                a_late_owner_changes_nothing_that_waits,
                changes_sent_twice_change_once,
                // held
                a_held_event_comes_at_its_time,
                a_postponed_held_event_stays_held,
                the_last_attempt_says_what_is_held,
                a_held_event_holds_what_follows,
                an_event_that_enters_before_a_held_one_parks_it,
                a_held_event_leaves_like_another,
                // requests
                a_redriven_dead_letter_comes_out_in_its_place,
                a_redriven_dead_letter_that_let_its_key_pass_is_late,
                what_is_not_dead_any_more_is_not_redriven,
                a_discarded_head_lets_its_key_go_on,
                a_discard_in_the_middle_keeps_the_rest_parked,
                a_requeued_event_is_sent_again_late,
                a_request_is_carried_out_once,
                a_late_owner_carries_out_nothing,
                carrying_out_keeps_its_limit,
                requests_are_carried_out_in_order,
                // endpoints
                a_disabled_endpoint_is_told_to_everybody,
                events_of_a_disabled_endpoint_wait,
                an_enabled_endpoint_lets_its_events_out_in_order,
                nothing_waits_for_an_endpoint_that_is_in_service,
                a_waiting_event_can_wait_for_its_endpoint,
                an_event_of_a_disabled_endpoint_can_be_discarded,
                an_endpoint_that_is_disabled_again_stays_so,
                a_late_owner_disables_nothing,
                an_erased_event_leaves_and_its_key_goes_on,
                an_erasure_reaches_what_waits,
                // pausing
                a_paused_partition_is_granted_to_nobody,
                a_paused_partition_is_kept_until_it_is_let_go,
                // replay
                a_rewound_destination_is_read_again,
                what_was_not_passed_is_no_replay,
                what_waits_stays_when_its_destination_is_rewound,
                a_rewind_concerns_one_destination,
                // retiring
                only_what_every_cursor_has_passed_is_retired,
                what_waits_is_not_retired,
                nothing_younger_than_the_retention_is_retired,
                retiring_keeps_its_limit,
                only_what_was_archived_is_retired,
                a_late_owner_retires_nothing,
                // ranges
                a_range_is_told_until_it_ends,
                a_range_that_stands_elsewhere_is_left,
                a_late_owner_changes_no_range,
                what_is_copied_behind_the_cursor_is_due_in_its_order,
                what_lies_between_two_places_is_read,
                a_page_ends_where_it_was_to_end,
                a_page_until_a_place_has_at_least_one_row,
                what_a_range_stands_for_is_not_retired,
                what_a_range_stands_for_is_not_requeued,
                a_rewind_goes_back_before_its_ranges,
                a_removed_destination_takes_its_ranges_along,
            );
        }
    };
}
