//! The relay's side of a broker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::operate::Finding;
use crate::{BoxFuture, ErrorKind, Event, Format, Layout, Result, Route};

/// A broker, as the relay sees it. Object-safe; shared by all tasks of a relay.
///
/// **Outcomes.** `publish` answers with one outcome per event, in the order of the batch. `Acked`
/// means that the broker has the event as durably as it is configured to have anything: never that
/// it was sent. An `Err` names no event: what became of each is unknown, so each counts as not
/// published and is sent again, with the same id.
/// **Order.** Events of one key are sent one at a time, unless the broker declares *prefix order*: a
/// refused event also stops those of its key behind it in the batch.
/// **Duplicates.** May be made by any retry. A broker that absorbs them does so by the event's id.
/// **Concurrency.** At most `batches_in_flight_max` calls at once, besides those whose deadline has
/// passed: the engine goes on listening to them, because a late answer still counts, and drops each
/// before its lease can end. With the default times that is at most three times as many more.
/// **Cancellation.** The engine drops the future at its deadline; what was sent may still arrive.
/// What a dropped call may leave in a client's queue is bounded, and said in the broker's
/// documentation.
/// **Shutdown.** `close` returns when nothing more will be sent.
pub trait Broker: Send + Sync {
    /// What this broker can do. Constant for its lifetime.
    fn capabilities(&self) -> BrokerCapabilities;

    /// What the broker is, for traces: the conventions' name of its kind, where they have one, in lower case.
    fn system(&self) -> &'static str {
        "postrider"
    }

    /// Sends a batch, all to one endpoint (topic).
    ///
    /// # Errors
    /// A failure that names no event of the batch.
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>>;

    /// Looks at the broker as it is set up now: what could lose, double, or hold up what these routes send
    /// there, each with what to do about it. Nothing is changed, and nothing is published.
    ///
    /// A finding of the level [`Good`](crate::operate::Level::Good) says what was looked at. A broker that has
    /// nothing to ask finds nothing.
    ///
    /// # Errors
    /// The broker could not be asked.
    fn examine<'a>(&'a self, routes: &'a [Route]) -> BoxFuture<'a, Result<Vec<Finding>>> {
        let _ = routes;
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Sends nothing more, and returns when that is so.
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// What a broker can do and take. The engine uses the limits; the rest chooses the cases of the
/// contract suite and is shown in the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerCapabilities {
    /// Events of one key may share a batch: if one is not acknowledged, none behind it of its key
    /// is.
    pub prefix_order: bool,
    /// Keeps the order of a key from publisher to consumer.
    pub keeps_key_order: bool,
    /// Absorbs a second publish of an id, for how long at least.
    pub deduplicates_for: Option<Duration>,
    /// What was acknowledged survives a crash of the broker, where its server is set up so that it can:
    /// [`examine`](Broker::examine) tells of one that is not.
    pub durable: bool,
    /// Events of one batch.
    pub batch_rows_max: u32,
    /// Bytes of one batch; a batch has at least one event.
    pub batch_bytes_max: u64,
    /// Batches under way at once.
    pub batches_in_flight_max: u32,
    /// Batches under way at once to one endpoint.
    pub endpoint_batches_max: u32,
    /// The longest pause between two probes of an endpoint that is down, where the relay's own is longer: of one whose probe
    /// costs nobody anything, and from which much is waited for when it is back.
    pub pause_max: Duration,
    /// How it can write an event. A relay does not start with a route that asks for another format.
    pub formats: &'static [Format],
    /// Its messages have keys, so a route may say of what they are made.
    pub message_keys: bool,
}

impl BrokerCapabilities {
    /// A broker that promises nothing but its answers, with modest limits: 100 events or 1 MiB a
    /// batch, 4 batches at once; it writes CloudEvents, and is probed as seldom as the relay likes.
    pub const fn least() -> BrokerCapabilities {
        BrokerCapabilities {
            prefix_order: false,
            keeps_key_order: false,
            deduplicates_for: None,
            durable: false,
            batch_rows_max: 100,
            batch_bytes_max: 1024 * 1024,
            batches_in_flight_max: 4,
            endpoint_batches_max: 4,
            pause_max: Duration::MAX,
            formats: &[Format::Structured, Format::Binary],
            message_keys: false,
        }
    }
}

/// One event on its way to a broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Outgoing {
    /// The event.
    pub event: Arc<Event>,
    /// The topic, subject, queue, or URL within the destination.
    pub topic: Arc<str>,
    /// How to write it.
    pub format: Format,
    /// What its route says about messages besides.
    pub layout: Option<Arc<Layout>>,
    /// How it is marked, for consumers that care.
    pub marks: Marks,
    /// Which attempt this is, from 1, for the logs.
    pub attempt: u32,
}

impl Outgoing {
    /// A first attempt, with the defaults.
    pub fn new(event: Arc<Event>, topic: impl Into<Arc<str>>) -> Outgoing {
        Outgoing {
            event,
            topic: topic.into(),
            format: Format::default(),
            layout: None,
            marks: Marks::default(),
            attempt: 1,
        }
    }
}

/// What a delivery says about itself besides the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Marks {
    /// Out of its key's order on purpose, redriven or requeued: carries `postrider-late: true`.
    pub late: bool,
    /// Sent before, and again because its destination was rewound: carries `postrider-replay: true`.
    pub replay: bool,
}

/// What became of one event of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The broker has it.
    Acked,
    /// This event failed, and may succeed later.
    Retry {
        /// What was answered.
        fault: Fault,
        /// The server's wish.
        after: Option<Duration>,
    },
    /// This event will never be taken: too large, not encodable, refused by a schema.
    Rejected(Fault),
    /// The endpoint takes nothing: it does not exist, or does not accept who we are. Never the
    /// event's fault.
    Unroutable(Fault),
    /// The part of the endpoint that this event goes to takes nothing now, though others may: a partition
    /// without a leader, a quota that is used up. Never the event's fault.
    Hindered(Fault),
    /// The endpoint says that it is gone, and wants nothing any more (HTTP 410). It is disabled until
    /// an operator enables it; its events wait. Never the event's fault.
    Gone(Fault),
    /// Not tried, because an event before it failed.
    Skipped,
}

/// What a broker answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// The answer's text. Never a secret.
    pub detail: String,
}

impl Fault {
    /// A failure with its text.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Fault {
        Fault { kind, detail: detail.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.detail)
    }
}
