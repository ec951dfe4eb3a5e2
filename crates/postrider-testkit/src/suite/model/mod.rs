//! Model tests: random calls by several relays or workers, one after the other, each answer compared
//! with a model that is as naive as the contract's own table.
//!
//! The suites ask one question at a time; here thousands of orders of calls are tried that nobody
//! thought of. A failure is shrunk to the fewest calls that show it, and names the rule, the call,
//! and the seed. Whatever the contract leaves to the store, the model takes from its answer.
//!
//! ```text
//! postrider_testkit::lease_model!(Harness, Effort::of(64, 40));
//! postrider_testkit::inbox_model!(Inbox, Effort::of(64, 40), Mixed::Yes);
//! ```

mod inbox;
mod inbox_calls;
mod lease;
mod lease_calls;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use proptest::collection::vec;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

pub use inbox_calls::{Mixed, inbox_rows_follow_their_model};
pub use lease_calls::leases_follow_their_model;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    cases: u32,
    calls: usize,
}

impl Effort {
    /// So many fresh stores, each with at most so many calls.
    pub const fn of(cases: u32, calls: usize) -> Effort {
        Effort { cases, calls }
    }
}

/// The calls that a failure is cut down to are looked for with at most so many fresh stores.
const SHRINKS_MAX: u32 = 256;

/// A rule of a contract, as the failure names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A token is greater than every token before it.
    TokenGrows,
    /// What somebody holds, nobody else is given.
    OneHolder,
    /// What is free, or has ended, is given.
    FreeIsGiven,
    /// Whoever has an old token writes nothing.
    StaleIsRefused,
    /// What ended and nobody took is kept by whoever asks for it.
    EndedIsKept,
    /// Owners that did not let go are counted.
    TakeoversAreCounted,
    /// Who holds what, and for how long, is told.
    HoldersAreTold,
    /// What was done stays done, with its result.
    DoneStaysDone,
    /// What is known under one id has one payload.
    OnePayload,
    /// Steps are there for whoever takes over.
    StepsStay,
    /// What is deleted is done and old, and no more than was asked for.
    PurgeIsBounded,
    /// One effect, and none without a marker.
    OneEffect,
    /// A call that must succeed does.
    Answers,
}

/// What a call showed to be wrong.
pub(crate) struct Broken(String);

/// Fails with the rule unless it holds.
pub(crate) fn holds(rule: Rule, holds: bool, what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(format!("{rule:?} is broken: {}", what()))) }
}

/// The value of an answer that cannot be an error.
pub(crate) fn answered<T>(answer: postrider_core::Result<T>, what: &str) -> Result<T, Broken> {
    answer.map_err(|error| Broken(format!("{:?} is broken: {what}: {error}", Rule::Answers)))
}

/// Which situations were met: a run that met none of a kind proves nothing about it.
#[derive(Default)]
pub(crate) struct Met(RefCell<BTreeMap<&'static str, u64>>);

impl Met {
    pub(crate) fn note(&self, situation: &'static str) {
        *self.0.borrow_mut().entry(situation).or_default() += 1;
    }

    fn all_of(&self, situations: &[&'static str]) -> Result<(), String> {
        let met = self.0.borrow();
        let missing: Vec<_> = situations.iter().filter(|name| !met.contains_key(*name)).collect();
        match missing[..] {
            [] => Ok(()),
            _ => Err(format!("the run proves nothing about {missing:?}; it met {met:?}")),
        }
    }
}

/// Plays a script that meets every situation, then random calls.
fn explore<Call: Clone + std::fmt::Debug>(
    effort: Effort,
    script: Vec<Call>,
    call: impl Strategy<Value = Call>,
    situations: &[&'static str],
    play: impl AsyncFn(&[Call], &Met) -> Result<(), Broken>,
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("invariant: a test may start a runtime");
    let met = Met::default();
    let told = |broken: Broken| broken.0;
    runtime.block_on(play(&script, &met)).map_err(told).map_err(|e| format!("script: {e}"))?;
    met.all_of(situations)?;
    let seed = match Config::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(0),
    };
    // Whoever asks for more gets more.
    let asked = std::env::var("PROPTEST_CASES").is_ok();
    let config = Config {
        cases: if asked { Config::default().cases } else { effort.cases },
        max_shrink_iters: SHRINKS_MAX,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&vec(call, 1..=effort.calls), |calls| {
            let outcome = runtime.block_on(play(&calls, &met));
            outcome.map_err(|broken| TestCaseError::fail(broken.0))
        })
        .map_err(|error| format!("{error}\nPROPTEST_RNG_SEED={seed} tries the same again"))
}

/// Part of a unit that lies between two moments that a model must tell apart: durations are whole
/// units and a half, spans that must have passed whole ones and a quarter, and time passes in whole
/// ones, so that no answer depends on how long a call takes.
pub(crate) fn units(unit: Duration, whole: u32, quarters: u32) -> Duration {
    unit * whole + unit * quarters / 4
}

/// The lease table follows its model: `lease_model!(Harness, Effort::of(cases, calls));` makes one
/// test. The harness's `unit` must be far longer than a case takes.
#[macro_export]
macro_rules! lease_model {
    ($harness:ty, $effort:expr) => {
        /// R030, R114, R115: random calls of several relays, compared with a naive table.
        #[test]
        fn leases_follow_their_model() {
            if let Some(reason) = <$harness as $crate::suite::StoreHarness>::unavailable() {
                return $crate::suite::skip(module_path!(), &reason);
            }
            let outcome = $crate::suite::model::leases_follow_their_model::<$harness>($effort);
            outcome.unwrap_or_else(|broken| panic!("{broken}"));
        }
    };
}

/// The rows of the inbox follow their model: `inbox_model!(Harness, Effort::of(cases, calls),
/// Mixed::Yes);` makes one test. The harness's `unit` must be far longer than a case takes.
#[macro_export]
macro_rules! inbox_model {
    ($harness:ty, $effort:expr, $mixed:expr) => {
        /// R077, R083, R085, R087, R114: random calls of several workers, compared with a naive
        /// table.
        #[test]
        fn inbox_rows_follow_their_model() {
            if let Some(reason) = <$harness as $crate::suite::InboxHarness>::unavailable() {
                return $crate::suite::skip(module_path!(), &reason);
            }
            let outcome =
                $crate::suite::model::inbox_rows_follow_their_model::<$harness>($effort, $mixed);
            outcome.unwrap_or_else(|broken| panic!("{broken}"));
        }
    };
}
