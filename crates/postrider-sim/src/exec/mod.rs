//! One thread, virtual time, seeded order: where every actor of a world runs.
//!
//! Actors are futures that belong to processes. A process can be killed, at whatever await point each
//! of its tasks stands, or paused while time goes on. Time passes only when nobody can move.

mod executor;
mod kernel;
mod waker;

pub use executor::{Executor, Stop};
pub use kernel::{Kernel, ProcessNo};
