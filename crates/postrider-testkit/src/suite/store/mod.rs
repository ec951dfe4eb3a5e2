//! The cases of `store_suite!`: what a producer commits is what a relay reads, and nothing else
//! (INV-1, INV-2).

mod commits;
mod content;
mod overlap;
mod scheduled;

pub use commits::*;
pub use content::*;
pub use overlap::*;
pub use scheduled::*;

/// Why the cases cannot run.
#[doc(hidden)]
pub fn unavailable<H: crate::suite::StoreHarness>() -> Option<String> {
    H::unavailable()
}

/// Applies the suite to a harness: `store_suite!(Harness);` makes a module `store_suite` with one
/// test per case.
#[macro_export]
macro_rules! store_suite {
    ($harness:ty) => {
        mod store_suite {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases!(
                $harness,
                store,
                what_is_committed_is_read_in_order,
                a_rolled_back_transaction_leaves_nothing,
                numbers_ascend_across_rolled_back_transactions,
                an_id_is_committed_once,
                a_large_transaction_keeps_its_order,
                concurrent_producers_lose_nothing,
                json_is_kept_byte_for_byte,
                opaque_bytes_are_kept_byte_for_byte,
                every_field_survives,
                the_fact_and_the_row_have_times_of_their_own,
                the_store_signs_what_has_no_source,
                what_breaks_a_rule_is_refused_with_its_whole_transaction,
                a_malformed_row_is_handed_out_as_such_and_stops_nobody,
                an_open_transaction_shows_nothing,
                a_late_commit_behind_the_cursor_is_read,
                random_overlapping_transactions_are_all_read,
                a_scheduled_event_enters_when_it_is_due,
                scheduled_events_enter_in_the_order_they_are_due,
                a_stale_owner_admits_nothing,
            );
        }
    };
}
