//! Planted bugs: each breaks something that a test of this crate sees, so none of them is only a name.
//! Built with `--cfg postrider_sim` alone.

use std::panic::catch_unwind;

use postrider_core::probe::{Mutant, plant};

use crate::{crowd, delivery, failure, holding, isolation, ownership, raced, random, wild};

/// What has to fail: one test, or a random world of some seed.
enum Seen {
    By(fn()),
    InSome(fn(u64)),
}

/// Seeds of a random world that are tried at most.
const SEEDS: u64 = 60;

const PLANTED: &[(Mutant, Seen)] = &[
    (Mutant::SettleBeforeAck, Seen::InSome(random::run)),
    (Mutant::CursorPastUnacknowledged, Seen::InSome(random::run)),
    (Mutant::FetchBeforeWaitingKeys, Seen::InSome(random::run)),
    (
        Mutant::EndpointCountsAgainstEvents,
        Seen::By(isolation::a_dead_endpoint_does_not_hold_the_cursor),
    ),
    (Mutant::OutageCountsAgainstEvents, Seen::By(failure::an_outage_of_hours_kills_nothing)),
    (Mutant::RetryOvertakes, Seen::InSome(wild::run)),
    (Mutant::BreakerDrops, Seen::InSome(wild::run)),
    (Mutant::WindowForgetsOnRebalance, Seen::InSome(random::run)),
    (Mutant::WaitingAheadTriedEarly, Seen::InSome(random::run)),
    (
        Mutant::EnteringForgotten,
        Seen::By(raced::what_waits_behind_a_hot_lane_does_not_pass_it_on_its_way_out),
    ),
    (Mutant::LateAckForNext, Seen::By(failure::a_late_acknowledgement_settles_nothing_else)),
    (
        Mutant::LeaseCountedFromAnswer,
        Seen::By(ownership::a_lease_counts_from_when_its_renewal_was_sent),
    ),
    (Mutant::PublishAfterLease, Seen::By(ownership::an_owner_that_wakes_late_is_refused)),
    (Mutant::SkippedCountsAsAcked, Seen::InSome(random::run)),
    (Mutant::PrefixAssumed, Seen::By(delivery::dead_letters_park_skip_or_halt_their_key)),
    (Mutant::SettleNotResent, Seen::InSome(random::run)),
    (Mutant::DrainLetsGoUnsaved, Seen::By(delivery::a_drained_relay_leaves_no_duplicates_behind)),
    (Mutant::TimeoutCountsAsAcked, Seen::InSome(random::run)),
    (Mutant::SpillForgetsRest, Seen::InSome(random::run)),
    (Mutant::DeadKeyFlows, Seen::By(delivery::what_follows_a_dead_letter_comes_after_it)),
    (Mutant::OneAckForBatch, Seen::InSome(random::run)),
    (
        Mutant::SettleUndoesRequest,
        Seen::By(raced::a_settlement_that_is_sent_again_does_not_undo_a_redrive),
    ),
    (
        Mutant::SettleUndoesRequest,
        Seen::By(raced::a_settlement_that_was_crossed_by_a_redrive_is_not_sent_again),
    ),
    (Mutant::HinderedCounts, Seen::By(failure::a_part_of_an_endpoint_that_is_away_kills_nothing)),
    (Mutant::HeldForEver, Seen::By(holding::a_type_that_is_refused_waits_and_others_flow)),
    (Mutant::RangeForgetsWindow, Seen::InSome(wild::run)),
    (Mutant::WaitingUnbounded, Seen::By(crowd::a_full_destination_stops_and_goes_on_by_itself)),
];

impl Seen {
    fn fails(&self) -> bool {
        match self {
            Seen::By(test) => catch_unwind(test).is_err(),
            Seen::InSome(run) => (0..SEEDS).any(|seed| catch_unwind(|| run(seed)).is_err()),
        }
    }
}

#[test]
fn every_planted_bug_is_seen() {
    let mut missed = Vec::new();
    for (mutant, seen) in PLANTED {
        plant(Some(*mutant));
        let fails = seen.fails();
        plant(None);
        missed.extend((!fails).then_some(mutant.name()));
    }
    assert!(missed.is_empty(), "not seen: {missed:?}");
}
