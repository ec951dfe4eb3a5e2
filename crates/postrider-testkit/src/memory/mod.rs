//! A store and a broker in memory that keep the whole contract, with a clock the test advances.
//!
//! They are what the engines are tested and simulated against: nothing to install, no time passes
//! unless the test says so, and everything that happened can be looked at afterwards. They pass
//! the same suites as every other backend.
//!
//! The store is one of five [kinds](Kind), by how a reader finds what is new. Its
//! [handles](MemoryStore::on) may have a [line](Line) between them and the server, and the server
//! crashes, fails over, or refuses writes when it is told to.
//!
//! ```
//! use std::time::Duration;
//! use postrider_core::NewEvent;
//! use postrider_testkit::memory::{MemoryClock, MemoryStore};
//!
//! let clock = MemoryClock::new();
//! let store = MemoryStore::new(4, clock.clone());
//! store.commit(vec![NewEvent::new("order", "42", "order.placed")])?;
//! clock.advance(Duration::from_secs(15));
//! assert_eq!(store.committed().len(), 1);
//! # Ok::<(), postrider_core::Error>(())
//! ```

mod archive;
mod broker;
mod carry;
mod clock;
mod destinations;
mod fence;
mod group;
mod handle;
mod inbox;
mod kind;
mod lag;
mod lease;
mod ledger;
mod line;
mod range;
mod reading;
mod rename;
mod request;
mod retire;
mod schedule;
mod server;
mod settle;
mod source;
mod state;
mod store;
mod subscription;
mod transaction;
mod waiting;
mod xid;

pub use archive::MemoryArchive;
pub use broker::{MemoryBroker, Published};
pub use clock::MemoryClock;
pub use kind::Kind;
pub use lag::Lag;
pub use line::{Access, Line};
pub use server::Standby;
pub use store::{CommittedRow, MemoryStore};
pub use subscription::MemorySubscription;
pub use transaction::MemoryTransaction;
pub use waiting::WaitingView;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic elsewhere: a test that failed should not hide behind a poisoned lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
