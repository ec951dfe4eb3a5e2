//! `postrider consume` with real processes, a real endpoint, and SIGKILL, judged by the history
//! checker.
//!
//! Every test has a folder, an endpoint, and sidecars of its own. A sidecar is ended by its own id,
//! and in any case when the test that started it ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

mod answers;
mod crashes;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(any(feature = "kafka", feature = "nats"))]
mod elsewhere;
mod endpoint;
mod flags;
mod guide;
mod history;
#[cfg(feature = "kafka")]
mod kafka;
mod lease;
#[cfg(feature = "nats")]
mod nats;
mod once;
mod order;
#[cfg(feature = "nats")]
mod partitions;
mod pipeline;
mod postgres;
#[cfg(any(feature = "kafka", feature = "nats"))]
mod remote;
mod sidecar;
mod stage;
mod stopping;
