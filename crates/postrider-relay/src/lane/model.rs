//! Lanes and windows as the machine runs them, against a ledger that knows only what was committed,
//! sent, and answered. Every call that the machine makes may be answered in any order, or not.
//!
//! The ledger insists that at most one delivery of a key is under way (or a run of one batch, where the
//! broker declares prefix order), that a key's events go out in their order, that no cursor passes
//! what is neither acknowledged nor waiting, and that no window outgrows its rows and bytes. Machines
//! with a flaw each are caught.

mod flawed;
mod ledger;
mod play;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use postrider_core::EventId;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use self::flawed::{Flaw, Flawed};
use self::play::{Call, Engine, Play, call};
use super::*;

/// Plays random calls and answers, then answers everything, and looks what is left.
fn judge<E: Engine>(
    prefix_order: bool,
    seed: RngSeed,
    engine: impl Fn(crate::Machine) -> E,
) -> Result<BTreeSet<&'static str>, String> {
    let config = Config { cases: 60, max_shrink_iters: 128, rng_seed: seed, ..Config::default() };
    let config = Config { failure_persistence: None, ..config };
    let met = std::cell::RefCell::new(BTreeSet::new());
    let outcome = TestRunner::new(config).run(&vec(call(), 1..80), |calls: Vec<Call>| {
        let mut play = Play::new(prefix_order, &engine);
        calls.iter().try_for_each(|call| play.perform(call))?;
        play.make_peace()?;
        met.borrow_mut().append(&mut play.met());
        Ok(())
    });
    outcome.map_err(|error| error.to_string()).map(|()| met.into_inner())
}

fn seed() -> RngSeed {
    Config::default().rng_seed
}

/// R069, R071: one delivery of a key under way, in its order, whatever is answered and when.
#[test]
fn one_of_a_key_is_under_way() {
    judge(false, seed(), |machine| machine).unwrap_or_else(|broken| panic!("{broken}"));
}

/// R069, R071: with prefix order, a run of a key under way, in its order, in one batch.
#[test]
fn a_run_of_a_key_is_under_way_where_the_broker_keeps_prefixes() {
    judge(true, seed(), |machine| machine).unwrap_or_else(|broken| panic!("{broken}"));
}

/// A run that met none of these would prove nothing about them.
#[test]
fn the_calls_reach_what_they_are_to_show() {
    let met = judge(true, RngSeed::Fixed(1), |machine| machine).unwrap();
    let expected = [
        "a run of a key was sent",
        "an event failed",
        "an event was refused",
        "an answer was lost",
        "an answer came late",
        "a save was lost",
        "events waited",
        "a key was parked",
        "a window was full",
    ];
    let missing: Vec<_> = expected.iter().filter(|situation| !met.contains(*situation)).collect();
    assert!(missing.is_empty(), "{missing:?} not met: {met:?}");
}

/// Each of these breaks a promise; the ledger names it. Always the same calls: a control says that the ledger can tell, and
/// calls that happen to miss a flaw, or to meet another of its promises first, say nothing of that.
#[test]
fn machines_with_a_flaw_are_caught() {
    let with = |flaw| move |machine| Flawed::new(machine, flaw);
    for (prefix_order, flaw, promise) in [
        (false, Flaw::SendsAgain, "is under way already"),
        (true, Flaw::SendsAgain, "is under way already"),
        (false, Flaw::TakesRetryForAck, "before|neither acknowledged nor waiting"),
        (true, Flaw::TurnsRunsRound, "before"),
        (false, Flaw::SavesTooFar, "the cursor is saved"),
        (false, Flaw::SavesUnsettled, "neither acknowledged nor waiting"),
        (false, Flaw::ReadsTooFar, "rows for a window"),
        (false, Flaw::ReadsTooMuch, "bytes for a window"),
    ] {
        let broken = judge(prefix_order, RngSeed::Fixed(1), with(flaw)).expect_err(promise);
        let named = promise.split('|').any(|promise| broken.contains(promise));
        assert!(named, "{flaw:?} was caught for another reason: {broken}");
    }
}

fn entry(n: u64) -> Entry {
    let id = EventId::from_u128(u128::from(n));
    Entry {
        event: Arc::new(Event::new(id, "order", "42", "order.changed")),
        row: RowRef { seq: n, id },
        origin: Origin::Waiting { attempts: 0, late: false, suspect: false, held: false },
        endpoint: 0,
        route: 0,
        bytes: n,
        tried: None,
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(200) })]

    /// A lane is a queue, though its head stands apart.
    #[test]
    fn a_lane_is_a_queue(calls in vec(0u8..8, 1..60)) {
        let (mut lane, mut queue) = (Lane::default(), VecDeque::new());
        for (n, call) in (1..).zip(calls) {
            match call {
                0..4 => {
                    lane.push(entry(n));
                    queue.push_back(n);
                }
                4..7 => {
                    let popped = lane.pop().map(|entry| entry.row.seq);
                    prop_assert_eq!(popped, queue.pop_front());
                }
                _ => {
                    let drained: Vec<u64> = lane.drain().map(|entry| entry.row.seq).collect();
                    prop_assert_eq!(drained, queue.drain(..).collect::<Vec<_>>());
                }
            }
            let seqs: Vec<u64> = lane.iter().map(|entry| entry.row.seq).collect();
            prop_assert_eq!(&seqs, &queue.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(lane.len(), queue.len());
            prop_assert_eq!(lane.head().map(|entry| entry.row.seq), queue.front().copied());
        }
    }
}
