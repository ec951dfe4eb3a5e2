//! What goes into the machine and what comes out of it.
//!
//! Invariant: everything the engine does or learns is one of these values, so a simulator can stand
//! where the shell stands.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Verdict;
use postrider_core::{Delivery, Error, Fault, Result, Tick};

/// The engine's own number of a delivery: grows with each, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryNo(pub u64);

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The start, or the moment that was waited for.
    Woke,
    /// The answer to [`Command::Receive`].
    Received(Vec<Delivery>),
    /// The broker did not answer [`Command::Receive`].
    ReceiveFailed(Error),
    /// A handler ended.
    Answered(DeliveryNo, Answer),
    /// The broker's answer to an ack, a nack, or a reject.
    Settled(DeliveryNo, Result<()>),
    /// The broker's answer to [`Command::Extend`].
    Extended(DeliveryNo, Result<()>),
    /// Receive nothing more; finish what is in work until the deadline, and give the rest back.
    Drain {
        /// When the handlers are told to stop.
        deadline: Tick,
    },
    /// Tell the handlers to stop now, and give everything back.
    Abort,
}

/// How a handler ended.
#[derive(Debug)]
pub enum Answer {
    /// With a verdict.
    Verdict(Verdict),
    /// The inbox itself did not answer.
    Failed(Error),
    /// By a panic, with its text.
    Panicked(String),
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Ask the broker for deliveries. One question at a time.
    Receive {
        /// How many at most.
        max: usize,
    },
    /// Drop the question that is under way.
    StopReceiving,
    /// Start the handler.
    Dispatch {
        /// Which delivery.
        no: DeliveryNo,
        /// The delivery; its event is there.
        delivery: Arc<Delivery>,
    },
    /// Tell the handler to stop.
    Cancel {
        /// Which delivery.
        no: DeliveryNo,
        /// Because it works too long, and not because the engine stops: then the try counts.
        overtime: bool,
    },
    /// Drop the handler; nobody waits for its answer any more.
    Kill {
        /// Which delivery.
        no: DeliveryNo,
    },
    /// Settle: done.
    Ack {
        /// Which delivery.
        no: DeliveryNo,
        /// The delivery.
        delivery: Arc<Delivery>,
    },
    /// Settle: not done.
    Nack {
        /// Which delivery.
        no: DeliveryNo,
        /// The delivery.
        delivery: Arc<Delivery>,
        /// When it should come again.
        delay: Duration,
        /// Whether the try counts against the message.
        counted: bool,
    },
    /// Settle: to the dead letters.
    Reject {
        /// Which delivery.
        no: DeliveryNo,
        /// The delivery.
        delivery: Arc<Delivery>,
        /// Why.
        fault: Fault,
    },
    /// Prolong the visibility timeout from now.
    Extend {
        /// Which delivery.
        no: DeliveryNo,
        /// The delivery.
        delivery: Arc<Delivery>,
        /// By how much.
        by: Duration,
    },
    /// Come back with [`Input::Woke`] at this time, if nothing happens before. Replaces the one
    /// before; none means that only an answer can change anything.
    WaitUntil(Tick),
}

impl Command {
    /// The delivery that this settles, if it settles one.
    pub fn settles(&self) -> Option<DeliveryNo> {
        match self {
            Command::Ack { no, .. } | Command::Nack { no, .. } | Command::Reject { no, .. } => {
                Some(*no)
            }
            _ => None,
        }
    }
}

/// Whose failure an error of the inbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The store's: no event is to blame, and asking for another one would fail as well.
    Store,
    /// Nobody's: somebody else owns the row now, or has it locked. The store answers.
    Turn,
    /// The event's: this one fails for ever, others do not.
    Event,
}

/// Whose failure an error of the inbox is.
pub(crate) fn blame(error: &Error) -> Blame {
    match error {
        error if error.is_of_store() => Blame::Store,
        error if error.kind().blames_event() => Blame::Event,
        _ => Blame::Turn,
    }
}
