//! The pre-flight: what the destinations of a store cannot carry is refused when it is enqueued, in the caller's
//! transaction, and not found out by a relay later.
//!
//! A producer needs no broker for it. What a destination can carry stands in its definition in the store; the
//! library reads that once, and again when it is a minute old. An event that fits every destination is compared
//! with numbers, and nothing else is done; only one that may be too much for some of them is looked at more
//! closely.
//!
//! Invariant: what is refused here, its destination would never have delivered. What passes may still be refused
//! there: a server's own limit may be lower.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cloudevents::{self, binary};
use crate::template::Field;
use crate::{
    Destination, Error, ErrorKind, Event, EventId, Format, Marks, Outgoing, Result, Route,
    TopicRule, plain, schema_id,
};

/// How long what was read is believed. A destination that can carry less from now on is heeded then, and until
/// then its relay refuses what it cannot carry.
pub const GOOD_FOR: Duration = Duration::from_secs(60);
/// Bytes of an envelope's fixed parts, whatever the format.
const ENVELOPE_BYTES: u64 = 2_048;
/// How much longer a text may become by being written: an escaped sign in an escaped text.
const ESCAPED: u64 = 8;
/// A field of an event that is no longer than this fits into every topic.
const FIELD_BYTES: usize = 40;

/// What the destinations of a store can carry.
///
/// ```
/// use postrider_core::{Destination, DestinationId, NewEvent, Preflight, Route, TopicRule};
/// let route = Route::all("shop.{aggregate_type}".parse()?);
/// let mut topics = Destination::new(DestinationId::new("topics")?, "queue", vec![route]);
/// topics.topics = TopicRule::Name;
/// topics.limits.message_bytes_max = Some(2_000);
/// let preflight = Preflight::of(vec![topics]);
/// let order = NewEvent::new("order", "42", "order.placed");
/// assert!(preflight.check(order.event()).is_ok());
/// assert!(preflight.check(order.bytes(vec![0; 2_000], "a/b").event()).is_err());
/// let odd = NewEvent::new("an order", "42", "order.placed");
/// assert!(preflight.check(odd.event()).unwrap_err().to_string().contains("an order"));
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Preflight {
    destinations: Vec<Destination>,
    least: Least,
}

/// What every destination can carry.
#[derive(Clone, Debug)]
struct Least {
    payload: u64,
    headers_bytes: u64,
    headers: usize,
    message: u64,
    /// The most that a route adds to its messages.
    added: Added,
    /// A topic may be none whatever the event, so nothing is told by numbers.
    by_itself: bool,
    /// The fields of which topics are made that follow a rule.
    fields: Vec<Field>,
}

impl Preflight {
    /// What these destinations can carry.
    pub fn of(destinations: Vec<Destination>) -> Preflight {
        let mut least = Least {
            payload: u64::MAX,
            headers_bytes: u64::MAX,
            headers: usize::MAX,
            message: u64::MAX,
            added: Added::default(),
            by_itself: false,
            fields: Vec::new(),
        };
        for destination in &destinations {
            let limits = &destination.limits;
            least.payload = least.payload.min(limits.payload_bytes_max);
            least.headers_bytes = least.headers_bytes.min(limits.headers_bytes_max);
            least.headers = least.headers.min(limits.headers_max as usize);
            if let Some(max) = limits.message_bytes_max {
                least.message = least.message.min(max);
            }
            for route in destination.routes.iter().filter(|route| !route.drop) {
                least.added = least.added.max(Added::by(route));
                if !destination.topics.is_any() {
                    least.heed(route, destination.topics);
                }
            }
        }
        Preflight { destinations, least }
    }

    /// What the definitions of destinations say, as stores have them, a line each. One that a newer version wrote
    /// is left out: its relay judges.
    pub fn read(definitions: &str) -> Preflight {
        let read = |text| Destination::from_definition(text).ok();
        let lines = definitions.lines().filter(|line| !line.is_empty());
        Preflight::of(lines.filter_map(read).filter(|read| !read.is_unrouted()).collect())
    }

    /// Checks that each destination which takes the event can carry it.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] or [`ErrorKind::Invalid`], naming the destination, the size, and the limit.
    pub fn check(&self, event: &Event) -> Result<()> {
        if self.fits(event) {
            return Ok(());
        }
        self.destinations.iter().try_for_each(|destination| {
            let Some(route) = destination.route(event).filter(|route| !route.drop) else {
                return Ok(());
            };
            let checked = check_size(destination, route, event)
                .and_then(|()| check_topic(destination, route, event));
            checked.map_err(|error| error.context("destination", &destination.id))
        })
    }

    /// Whether it fits every destination, so far as numbers say. `false` means: look closer.
    fn fits(&self, event: &Event) -> bool {
        let least = &self.least;
        event.payload.len() as u64 <= least.payload
            && event.headers.len() <= least.headers
            && headers_bytes(event) <= least.headers_bytes
            && bytes_most(event, least.added) <= least.message
            && !least.by_itself
            && least.fields.iter().all(|field| is_plain(*field, event))
    }
}

impl Least {
    /// The topics of a route are to follow a rule.
    fn heed(&mut self, route: &Route, rule: TopicRule) {
        // With fields that are as long as they may be.
        let longest = "x".repeat(FIELD_BYTES);
        let mut event = Event::new(EventId::from_u128(0), &longest, &longest, &longest);
        event.tenant = Some(longest.into());
        event.event_version = u32::MAX;
        self.by_itself |= rule.unusable(&route.topic.render(&event)).is_some();
        for field in route.topic.fields() {
            if !self.fields.contains(&field) {
                self.fields.push(field);
            }
        }
    }
}

/// What a route adds to its messages.
#[derive(Clone, Copy, Debug, Default)]
struct Added {
    /// Fields of the event.
    fields: u64,
    /// Bytes of names and of what stands between fields.
    bytes: u64,
}

impl Added {
    fn by(route: &Route) -> Added {
        route.headers.iter().fold(Added::default(), |added, (name, value)| Added {
            fields: added.fields + value.fields().count() as u64,
            bytes: added.bytes + (name.len() + value.text().len()) as u64,
        })
    }

    fn max(self, other: Added) -> Added {
        Added { fields: self.fields.max(other.fields), bytes: self.bytes.max(other.bytes) }
    }
}

/// Whether a field can stand in every topic. Few bytes are looked at.
fn is_plain(field: Field, event: &Event) -> bool {
    let text = match field {
        Field::AggregateType => &event.aggregate_type,
        Field::AggregateId => &event.aggregate_id,
        Field::EventType => &event.event_type,
        Field::EventVersion | Field::Id | Field::Partition(_) => return true,
        Field::Tenant => event.tenant.as_deref().unwrap_or_default(),
        Field::Key | Field::Source => return false,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let dots = text.starts_with('.') || text.ends_with('.') || text.contains("..");
    !dots && (1..=FIELD_BYTES).contains(&text.len()) && text.bytes().all(plain)
}

/// Checks the sizes that a destination's limits name.
///
/// # Errors
/// [`ErrorKind::TooLarge`], naming what is too large, its size, and the limit.
fn check_size(destination: &Destination, route: &Route, event: &Event) -> Result<()> {
    destination.limits.check_size(event)?;
    let Some(max) = destination.limits.message_bytes_max else { return Ok(()) };
    if bytes_most(event, Added::by(route)) <= max {
        return Ok(());
    }
    let bytes = message_bytes(event, route, destination.topics)?;
    if bytes <= max {
        return Ok(());
    }
    Err(Error::new(ErrorKind::TooLarge, "check event").message(format!(
        "the message has {bytes} bytes with its headers in the format {}, the limit is {max}",
        route.format
    )))
}

fn check_topic(destination: &Destination, route: &Route, event: &Event) -> Result<()> {
    if destination.topics.is_any() {
        return Ok(());
    }
    // Who leaves the source to the store knows it only afterwards.
    if event.source.is_empty() && route.topic.fields().any(|field| field == Field::Source) {
        return Ok(());
    }
    let topic = route.topic.render(event);
    match destination.topics.unusable(&topic) {
        None => Ok(()),
        Some(why) => Err(Error::new(ErrorKind::Invalid, "check event").message(format!(
            "its topic would be `{}`, and there is none of that name: {why}",
            topic.escape_debug()
        ))),
    }
}

fn headers_bytes(event: &Event) -> u64 {
    let bytes: usize = event.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    bytes as u64
}

/// What a message takes at most, in any format, with what its route adds.
fn bytes_most(event: &Event, added: Added) -> u64 {
    let key = event.key.as_ref().map_or(0, |key| key.len());
    let names = 3 * event.aggregate_type.len()
        + 4 * event.aggregate_id.len()
        + event.event_type.len()
        + 2 * key
        + event.source.len()
        + event.content_type.len()
        + event.tenant.as_ref().map_or(0, |tenant| tenant.len())
        + event.encoding.as_ref().map_or(0, |encoding| encoding.len());
    // A rendered header is made of these names as well.
    let texts = (names as u64) * (1 + added.fields) + headers_bytes(event);
    let separators = 16 * event.headers.len() as u64 + added.bytes;
    let body = event.payload.len() as u64;
    ENVELOPE_BYTES + texts * ESCAPED + separators + body + body / 3 + 4
}

/// What a message takes: key, headers as they are encoded, and body.
fn message_bytes(event: &Event, route: &Route, topics: TopicRule) -> Result<u64> {
    let encoded = topics.encodes_headers();
    let own = |text: &str| if encoded { binary::encode_value(text).len() } else { text.len() };
    let pair = |name: &str, value: &str| name.len() + own(value);
    let key = route.key.as_ref().and_then(|key| key.of(event)).map_or(0, |key| key.len());
    let body = event.payload.len();
    let bytes = match route.format {
        Format::Structured => {
            let content_type = pair(plain::CONTENT_TYPE, cloudevents::MEDIA_TYPE);
            content_type + cloudevents::to_json(event, Marks::default())?.len()
        }
        Format::Binary => {
            let attributes = binary::attributes(event, Marks::default())?;
            let named = attributes.iter().map(|(name, value)| pair(name, value));
            let beside = |(name, value): (&str, &str)| match encoded {
                true if !is_printable(value) => 0,
                true => name.len() + value.len(),
                false => name.len() + schema_id::to_bytes(name, value).len(),
            };
            binary::PREFIX.len() * attributes.len()
                + named.sum::<usize>()
                + schema_id::of(event).map(beside).sum::<usize>()
                + pair(plain::CONTENT_TYPE, &event.content_type)
                + body
        }
        Format::Plain | Format::Debezium => {
            let mut outgoing = Outgoing::new(Arc::new(event.clone()), "");
            outgoing.format = route.format;
            outgoing.layout = route.layout();
            let as_it_is = |value: &str| !encoded || is_printable(value);
            let headers = plain::headers(&outgoing, |_, value| as_it_is(value))?;
            let bytes = headers.iter().map(|header| match !header.own && as_it_is(&header.value) {
                true => header.name.len() + header.value.len(),
                false => pair(&header.name, &header.value),
            });
            bytes.sum::<usize>() + body
        }
    };
    Ok((key + bytes) as u64)
}

/// Whether a value comes out as it went in where headers are printable ASCII.
fn is_printable(value: &str) -> bool {
    value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value
}

/// What a producer knows of a store's destinations, and since when. Shared by all who enqueue.
#[derive(Debug, Default)]
pub struct Known(Mutex<Option<(Instant, Arc<Preflight>)>>);

impl Known {
    /// Whether it is to be read, because it never was or is as old as [`GOOD_FOR`].
    pub fn is_stale(&self, now: Instant) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= GOOD_FOR)
    }

    /// It was read.
    pub fn learn(&self, now: Instant, preflight: Preflight) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((now, Arc::new(preflight)));
    }

    /// Checks an event against what is known.
    ///
    /// # Errors
    /// As [`Preflight::check`].
    pub fn check(&self, event: &Event) -> Result<()> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref().map(|(_, preflight)| Arc::clone(preflight));
        known.map_or(Ok(()), |preflight| preflight.check(event))
    }
}

#[cfg(test)]
mod tests;
