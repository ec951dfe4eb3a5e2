//! Postrider's history checker: what happened, judged against INV-1 to INV-8.
//!
//! A test, a simulation, or a run of real processes records what happened: commits, deliveries,
//! effects, what waits. The checker is a pure function of that record, so the same rules judge all
//! of them, and a record that was written down can be judged again.
//!
//! ```
//! use postrider_core::{EventId, Invariant};
//! use postrider_history::{History, check};
//!
//! let (first, second) = (EventId::from_u128(1), EventId::from_u128(2));
//! let mut history = History::new();
//! history.commit(first, "order/42");
//! history.commit(second, "order/42");
//! history.deliver("kafka", second);
//! history.deliver("kafka", first);
//!
//! let verdict = check(&history);
//! assert_eq!(verdict.violations.len(), 1);
//! assert_eq!(verdict.violations[0].invariant, Invariant::KeyOrder);
//! assert_eq!(history.ledger().order_violations, 1);
//! ```
//!
//! A verdict without violations over a history in which nothing happened proves nothing:
//! [`Verdict::judged`] says how many facts each invariant was judged on.

mod check;
mod history;
mod index;
mod ledger;
mod record;
mod verdict;

pub use check::check;
pub use history::History;
pub use ledger::Ledger;
pub use record::{
    Ack, Commit, Delay, Delivery, Effect, Gauge, Progress, Published, Record, Standing, Waiting,
};
pub use verdict::{Verdict, Violation};
