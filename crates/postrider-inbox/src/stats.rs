//! What the engine did and how it is: numbers that only grow, and the state right now.
//!
//! Invariant: whoever asks why nothing moves is told who holds it.

/// Counts since the start, and what is held right now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Deliveries that came in.
    pub received: u64,
    /// Handlers started.
    pub dispatched: u64,
    /// Acted on now.
    pub done: u64,
    /// Acted on before, and acknowledged.
    pub duplicates: u64,
    /// Left on the queue because somebody else was at it.
    pub busy: u64,
    /// Failed, counted, and tried again.
    pub retried: u64,
    /// To the dead letters, which the broker has.
    pub rejected: u64,
    /// Went back uncounted: behind a failed message of their key, too many of one key, or drained.
    pub returned: u64,
    /// Whose visibility ended before a handler was free.
    pub lost: u64,
    /// Handlers that worked longer than they may.
    pub overtime: u64,
    /// Receivers that panicked. A `Transactional` catches its handler's panic, which counts as `retried`.
    pub panicked: u64,
    /// Failures of the inbox's store.
    pub store_failed: u64,
    /// Failures to receive.
    pub receive_failed: u64,
    /// Acks, nacks, and rejects that the broker did not take; these deliveries come again.
    pub settle_failed: u64,
    /// Returned messages whose place in their key's order could not be remembered.
    pub order_forgotten: u64,
    /// With a handler, now.
    pub in_work: u64,
    /// Held in all, now: waiting, with a handler, or being settled.
    pub held: u64,
    /// Of those held, how many ended their process often, as it seems, and are tried alone, now: nothing else begins until there
    /// are none.
    pub suspects: u64,
    /// Given back and expected again, now.
    pub away: u64,
}

/// Whether the engine makes progress, and if not, what holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It receives, or waits for something to come.
    Ready,
    /// The inbox's store does not answer: handlers wait.
    StoreDown {
        /// What it said last.
        detail: String,
    },
    /// The broker does not answer, takes no dead letter of an event that was refused, and whose key waits, or has for long not
    /// taken what was settled.
    BrokerDown {
        /// What it said last.
        detail: String,
    },
    /// It finishes what is in work.
    Draining,
    /// It holds nothing, and does nothing more.
    Stopped,
}
