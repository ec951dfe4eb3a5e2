//! Contract suites: one per role, passed by every backend.
//!
//! A backend's test file implements a harness and names it in a macro; each case becomes a test of
//! its own name. Declared capabilities choose the cases, and a case that does not apply says so on
//! standard output: `skipped: <case>: <reason>`.
//!
//! ```text
//! struct Harness { … }
//! impl postrider_testkit::suite::StoreHarness for Harness { … }
//! postrider_testkit::store_suite!(Harness);
//! postrider_testkit::source_suite!(Harness);
//! ```

mod broker_harness;
mod inbox_harness;
mod late;
mod relay;
mod store_harness;

pub mod again;
pub mod broker;
pub mod inbox;
pub mod model;
pub mod report;
pub mod source;
pub mod store;

use std::time::Duration;

pub use broker_harness::BrokerHarness;
pub use inbox_harness::{InboxHarness, Then, TransactionalProbe};
pub use store_harness::{OpenTransaction, StoreHarness};

/// The longest a case may take, in real time. A case that waits for what never comes fails with
/// its name instead of hanging the run. The slowest one takes 30 s on an emulator that does nothing else, and over
/// a minute on one that many use.
pub const CASE_TIME_MAX: Duration = Duration::from_secs(180);

/// Runs one case to its end on a runtime of its own with two worker threads.
///
/// # Panics
/// If the case panics, or takes longer than [`CASE_TIME_MAX`].
pub fn run(name: &str, case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("invariant: a test may start a runtime");
    let outcome = runtime.block_on(async { tokio::time::timeout(CASE_TIME_MAX, case).await });
    runtime.shutdown_timeout(Duration::from_secs(1));
    assert!(outcome.is_ok(), "{name}: not finished after {CASE_TIME_MAX:?}");
}

/// Says that a case does not apply, and why, where CI collects it.
#[allow(clippy::print_stdout, reason = "the list of skips is this function's product")]
pub fn skip(case: &str, reason: &str) {
    println!("skipped: {case}: {reason}");
}

/// One test per case of a suite. Not called by hand: the suites' own macros do.
#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($harness:ty, $suite:ident, $($case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                if let Some(reason) = $crate::suite::$suite::unavailable::<$harness>() {
                    return $crate::suite::skip(
                        concat!(stringify!($case), " (", module_path!(), ")"),
                        &reason,
                    );
                }
                $crate::suite::run(
                    stringify!($case),
                    $crate::suite::$suite::$case::<$harness>(),
                );
            }
        )*
    };
}
