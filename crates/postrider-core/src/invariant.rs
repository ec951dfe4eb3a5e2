//! The promise, as one registry: the same ids name the tests, the checkers, and the guarantee page.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What Postrider promises. At-least-once delivery, at-most-once effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Invariant {
    /// Committed means delivered at least once, or visibly dead-lettered.
    NoLoss = 1,
    /// Delivered means committed.
    NoGhost = 2,
    /// First deliveries of one key, per destination, are in commit order.
    KeyOrder = 3,
    /// Per (source, event id, handler) the effect happens at most once.
    OneEffect = 4,
    /// One poison event or dead destination delays only its own key or route.
    Isolation = 5,
    /// Memory, flight, batches, retries, payloads: each has a limit.
    Bounded = 6,
    /// What is recorded as published was acknowledged by the broker before.
    Truth = 7,
    /// With a backlog and a healthy broker the cursor moves, or health names who holds it.
    Progress = 8,
}

impl Invariant {
    /// All of them, in order.
    pub const ALL: [Invariant; 8] = [
        Invariant::NoLoss,
        Invariant::NoGhost,
        Invariant::KeyOrder,
        Invariant::OneEffect,
        Invariant::Isolation,
        Invariant::Bounded,
        Invariant::Truth,
        Invariant::Progress,
    ];

    /// The promise in one sentence.
    pub const fn promise(self) -> &'static str {
        match self {
            Invariant::NoLoss => {
                "what was committed is delivered at least once, or visibly dead-lettered"
            }
            Invariant::NoGhost => "what was delivered had been committed",
            Invariant::KeyOrder => {
                "first deliveries of one key's events, per destination, are in commit order"
            }
            Invariant::OneEffect => {
                "per source, event id and handler the transactional effect happens at most once"
            }
            Invariant::Isolation => {
                "one poison event or one dead destination delays only its own key or route"
            }
            Invariant::Bounded => "memory, flight, batches, retries and payloads have limits",
            Invariant::Truth => "what is recorded as published was acknowledged by the broker",
            Invariant::Progress => {
                "with a backlog and a healthy broker the cursor moves, or health says who holds it"
            }
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "INV-{}", *self as u8)
    }
}
