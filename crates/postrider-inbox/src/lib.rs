//! Postrider's consumer engine: acts once on a message that may come twice.
//!
//! At-least-once delivery, at-most-once effect: the broker may bring a message again, and the inbox
//! absorbs it. The decisions are made by a pure state machine ([`machine::Machine`]); a thin shell
//! ([`Consumer`]) carries them out on a [`Subscription`](postrider_core::Subscription) and a
//! [`Receiver`](postrider_core::inbox::Receiver).
//!
//! | To | look at |
//! |---|---|
//! | receive and act | [`Consumer`], [`ConsumerHandle`], [`ConsumerOptions`] |
//! | act outside the database, with a lease and steps | [`Leased`], [`Context`], [`Outcome`] |
//! | see why nothing moves | [`Health`], [`Stats`] |
//!
//! Effects inside the database need no lease: the store's own transactional receiver writes the
//! marker and the change in one transaction. The state tables and the arithmetic of leases are in
//! `docs/internals/inbox.md`.

mod away;
mod breaker;
pub mod clock;
pub mod command;
pub mod consumer;
mod held;
mod lane;
pub mod leased;
pub mod machine;
pub mod options;
mod settle;
mod shell;
pub mod signal;
pub mod stats;

pub use clock::BootClock;
pub use consumer::{Consumer, ConsumerBuilder, ConsumerHandle};
pub use leased::{
    Claims, Context, Heartbeat, Leased, LeasedBuilder, LeasedHandler, Outcome, Performed,
};
pub use machine::Machine;
pub use options::ConsumerOptions;
pub use stats::{Health, Stats};
