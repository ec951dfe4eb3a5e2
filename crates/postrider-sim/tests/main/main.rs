//! The simulator's own tests: what was found once stays found, each fault alone is survived, and the
//! same seed is the same run.
//!
//! They are few, as they also run without optimisation. The step "simulator" of `cargo x test` runs the
//! many, and with the planted bugs.

#![allow(clippy::unwrap_used, reason = "part of a test")]

mod alone;
mod fixtures;
mod same;

use std::sync::Arc;

use postrider_sim::attempt::Runner;
use postrider_sim::world;

/// The real world.
fn runner() -> Runner {
    Arc::new(world::run)
}
