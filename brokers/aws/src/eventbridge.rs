//! Buses of EventBridge as a destination.
//!
//! Invariant: the event's id stands in its envelope, the detail; the id that EventBridge gives is another one with
//! each attempt.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::primitives::DateTime;
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use postrider_core::operate::Finding;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, ErrorKind, Fault, Format, Outcome, Outgoing, Result,
    Route,
};
use tokio::time::Instant;

use crate::answer::{Call, Trouble, judge, judge_words};
use crate::call::{Carrier, Prepared, carry, nameless};
use crate::capabilities;
use crate::connection::Connection;
use crate::message::encode;
use crate::settings::AwsSettings;
use crate::sqs::closed;

/// What traces call it.
const SYSTEM: &str = "aws_eventbridge";
/// Bytes of an entry, and of the entries of a call.
const BYTES_MAX: usize = 256 * 1024;
/// What the time of an entry counts.
const TIME_BYTES: usize = 14;
/// Characters of a detail type.
const TYPE_CHARS_MAX: usize = 128;
/// How long a bus that was seen is believed to be there: what is put on one that vanished may be answered with a yes.
/// Ten relays ask once a second by it, of the fifty that an account has.
const SEEN_FOR: Duration = Duration::from_secs(10);
/// Buses that are remembered. Past this many all are asked for again.
const SEEN_MAX: usize = 1_024;

/// A broker that puts events on buses of EventBridge. The topic of a route is a bus's name or ARN.
///
/// The entry's source is the event's, its detail type the event's type, and its detail the event as a CloudEvent.
///
/// **Durability.** An acknowledged event is kept on several servers of the region until it was handed to the targets
/// of the rules that match it, or EventBridge gave up on one. An event that no rule matches is gone, and no answer
/// says so.
/// **Order.** None. One event of a key is under way at a time all the same.
/// **Duplicates.** Not absorbed. EventBridge writes JSON anew, so bytes of a payload may differ, never its meaning.
/// **Cancellation.** What a dropped call had sent may arrive; nothing is sent later.
pub struct EventBridgeBroker {
    pub(crate) connection: Connection,
    seen: Mutex<HashMap<Arc<str>, Instant>>,
    closed: AtomicBool,
}

impl EventBridgeBroker {
    /// Checks the settings and makes a broker. Nobody is called before the first event.
    ///
    /// # Errors
    /// `Config`, naming the setting.
    pub fn new(settings: AwsSettings) -> Result<EventBridgeBroker> {
        let connection = Connection::new(settings)?;
        let (seen, closed) = (Mutex::default(), AtomicBool::new(false));
        Ok(EventBridgeBroker { connection, seen, closed })
    }

    async fn publish_batch(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(closed("EventBridge"));
        }
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let settings = self.connection.settings();
        let until = Instant::now() + settings.deadline;
        let client = Client::new(self.connection.config(until).await?);
        let bytes_max = settings.message_bytes_max.map_or(BYTES_MAX, |max| max as usize);
        let prepared = batch.iter().enumerate();
        let prepared = prepared.map(|(at, outgoing)| prepare(at, outgoing, bytes_max)).collect();
        let sender = Sender { client, bus: &first.topic, seen: &self.seen };
        carry(&sender, prepared, bytes_max, until).await
    }
}

fn prepare(
    at: usize,
    outgoing: &Outgoing,
    bytes_max: usize,
) -> Result<Prepared<PutEventsRequestEntry>, Fault> {
    let invalid = |detail: &str| Fault::new(ErrorKind::Invalid, detail);
    let event = &outgoing.event;
    if outgoing.format != Format::Structured {
        let detail =
            format!("there is no format {} for EventBridge: write structured", outgoing.format);
        return Err(invalid(&detail));
    }
    if event.source.is_empty() || event.source.starts_with("aws.") {
        return Err(invalid("the source of an entry is not empty, and does not begin with `aws.`"));
    }
    if event.event_type.chars().count() > TYPE_CHARS_MAX {
        return Err(invalid("the type of an entry has at most 128 characters"));
    }
    // Its own envelope is said by the service's, so only the body is sent.
    let detail = encode(outgoing, usize::MAX)?.body;
    let bytes = TIME_BYTES + event.source.len() + event.event_type.len() + detail.len();
    if bytes > bytes_max {
        let said = format!("the entry has {bytes} bytes, the limit is {bytes_max}");
        return Err(Fault::new(ErrorKind::TooLarge, said));
    }
    let entry = PutEventsRequestEntry::builder()
        .time(DateTime::from_millis(event.occurred_at.as_micros() / 1_000))
        .source(&*event.source)
        .detail_type(&*event.event_type)
        .detail(detail)
        .event_bus_name(&*outgoing.topic)
        .build();
    Ok(Prepared { at, bytes, entry })
}

struct Sender<'a> {
    client: Client,
    bus: &'a Arc<str>,
    seen: &'a Mutex<HashMap<Arc<str>, Instant>>,
}

impl Sender<'_> {
    /// Looks whether there is such a bus: not every answer to an entry would say that there is none. Who may not look
    /// goes on without.
    async fn look(&self) -> Result<(), Trouble> {
        let seen = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen().get(self.bus).is_some_and(|at| at.elapsed() < SEEN_FOR) {
            return Ok(());
        }
        let call = Call { action: "events:DescribeEventBus", what: "the bus", name: self.bus };
        let asked = self.client.describe_event_bus().name(&**self.bus).send().await;
        if let Err(error) = asked {
            let trouble = judge(call, &error);
            let denied = |fault: &Fault| fault.kind == ErrorKind::Unauthorized;
            match &trouble {
                Trouble::Said(Outcome::Unroutable(fault)) if denied(fault) => {}
                Trouble::Blames(_) | Trouble::Said(Outcome::Retry { .. }) => {}
                _ => return Err(trouble),
            }
        }
        let mut seen = seen();
        if seen.len() >= SEEN_MAX {
            seen.clear();
        }
        seen.insert(Arc::clone(self.bus), Instant::now());
        Ok(())
    }
}

impl Carrier for Sender<'_> {
    type Entry = PutEventsRequestEntry;

    async fn call(&self, entries: &[&Self::Entry]) -> Result<Vec<Outcome>, Trouble> {
        self.look().await?;
        let call = Call { action: "events:PutEvents", what: "the bus", name: self.bus };
        let owned = entries.iter().map(|entry| (*entry).clone()).collect();
        let sent = self.client.put_events().set_entries(Some(owned)).send().await;
        let answer = sent.map_err(|error| judge(call, &error))?;
        // Entries of the answer stand in the order of those of the call.
        let of = |at: usize| match answer.entries().get(at) {
            Some(entry) => match (entry.event_id(), entry.error_code()) {
                (_, Some(code)) => {
                    judge_words(call, code, entry.error_message().unwrap_or_default(), false)
                }
                (Some(_), None) => Outcome::Acked,
                (None, None) => nameless(),
            },
            None => nameless(),
        };
        Ok((0..entries.len()).map(of).collect())
    }
}

impl Broker for EventBridgeBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut can = capabilities::of(self.connection.settings());
        can.formats = &[Format::Structured];
        can
    }

    fn system(&self) -> &'static str {
        SYSTEM
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(self.publish_batch(batch))
    }

    fn examine<'a>(&'a self, routes: &'a [Route]) -> BoxFuture<'a, Result<Vec<Finding>>> {
        Box::pin(crate::examine::buses(&self.connection, routes))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.closed.store(true, Ordering::Release);
        Box::pin(async { Ok(()) })
    }
}

impl fmt::Debug for EventBridgeBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBridgeBroker")
            .field("settings", self.connection.settings())
            .finish_non_exhaustive()
    }
}
