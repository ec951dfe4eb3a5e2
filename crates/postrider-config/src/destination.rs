//! The tables of destinations, and the definitions that follow from them.
//!
//! Invariant: a definition holds no address, no secret, and no time of a request. Keys of the class
//! `definition` change it, and no others do.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::{
    DeadKeyPolicy, Destination, DestinationId, EventLimits, Format, Glob, Match, RecordKey,
    RetryPolicy, Route, Start, Template,
};

use crate::address::Address;
use crate::aws::{EventBridge, Sns, Sqs};
use crate::choice::Kind;
use crate::kafka::Kafka;
use crate::key::Class::Definition;
use crate::name::{EndpointName, MessageHeader};
use crate::nats::Nats;
use crate::pattern::Pattern;
use crate::section::section;
use crate::size::Size;
use crate::webhook::{Endpoint, Webhook};

section! {
    /// A destination: where events go, and which. Its definition (`kind`, `limits`, and `routes`)
    /// stands in the store and is shared by all relays.
    pub struct DestinationConfig {
        /// What kind of broker it is.
        kind: Kind { required: true, example: "webhook", class: Definition },
        /// The address, for the kinds `kafka`, `nats`, `sqs`, `sns`, `eventbridge`, `local`, and `file`. Of a
        /// cluster any servers, with commas between; of AWS the region.
        url: Option<Address> { example: "local:///var/lib/queue.db" },
        /// Where a destination begins to read that `destinations apply` adds: `now`, `beginning`, or
        /// a time. The first relay on a store without destinations begins at the beginning, whatever
        /// stands here.
        start: Start { default: "now" },
        /// What one event may weigh. Larger ones become dead letters.
        limits: Limits {},
        /// Which events it takes, tried in order; the first that matches decides. If there are none,
        /// everything goes to the topic `{event_type}`, except to webhooks.
        routes: Vec<RouteConfig> {},
        /// Requests, for the kind `webhook`.
        webhook: Webhook {},
        /// The connection, for the kind `kafka`.
        kafka: Kafka {},
        /// The connection, for the kind `nats`.
        nats: Nats {},
        /// The connection, for the kind `sqs`.
        sqs: Sqs {},
        /// The connection, for the kind `sns`.
        sns: Sns {},
        /// The connection, for the kind `eventbridge`.
        eventbridge: EventBridge {},
        /// Where requests go, for the kind `webhook`. The topic of a route names one.
        endpoints: BTreeMap<EndpointName, Endpoint> {},
    }
}

section! {
    /// What one event may weigh for this destination. Larger ones become dead letters, and producers with a pre-flight
    /// are told before.
    pub struct Limits {
        /// The payload. The default is also the most: what stores take.
        payload: Size { default: "1MiB", min: "1B", max: "1MiB", class: Definition },
        /// All headers together, names and values. The default is also the most: what stores take.
        headers: Size { default: "16KiB", min: "0B", max: "16KiB", class: Definition },
        /// The whole message as its route writes it, key and headers included: for the pre-flight at enqueue. At
        /// publish the server's own limit counts. If absent, `1048kB` for the kinds
        /// `kafka` and `nats`, which is what their servers take by default, less a frame; what the services of AWS
        /// take (`sqs` 1 MiB, `sns` and `eventbridge` 256 KiB); and none for the others.
        message: Option<Size> { example: "1048kB", min: "1kB", max: "8MiB", class: Definition },
    }
}

section! {
    /// Which events a destination takes, to which topic, and what happens when that fails.
    pub struct RouteConfig {
        /// Which events. All the conditions that are given must hold.
        matches: MatchConfig { name: "match" },
        /// The topic, queue, or endpoint, with `{field}` of the event. Fields are `aggregate_type`,
        /// `aggregate_id`, `event_type`, `event_version`, `key`, `tenant`, `source`, and `id`; and
        /// `{partition:8}` is one of eight numbers, from 0, that follows from the ordering key.
        /// Needed, unless `drop` is set.
        topic: Option<Template> { example: "{event_type}", class: Definition },
        /// How an event is written: `structured` (CloudEvents as one JSON document), `binary` (CloudEvents with
        /// attributes as headers and the payload as the body), `plain` (the payload as it is, and headers of
        /// Postrider's own), or `debezium` (as Debezium's outbox event router writes it). Kafka and NATS take
        /// all of them, webhooks the first two, SQS and SNS `structured` and `plain`, the others the first.
        format: Format { default: "structured", class: Definition },
        /// The key of a record, for the kind `kafka`: a template over the ordering key alone, as
        /// `kafka.record_key`, which counts if this is absent.
        record_key: Option<RecordKey> { example: "{aggregate_type}:{aggregate_id}", class: Definition },
        /// Further headers of each message, in the formats `plain` and `debezium`, with `{field}` of the event:
        /// what Debezium's router is told by `table.fields.additional.placement`.
        add_headers: BTreeMap<MessageHeader, Template> { class: Definition },
        /// What happens to a key whose event has become a dead letter: `park` (its successors wait),
        /// `skip` (they flow), or `halt` (there is no dead letter; the event is tried for ever).
        dead_key: DeadKeyPolicy { default: "park", class: Definition },
        /// When a failure is tried again.
        retry: Retry {},
        /// Take the events and deliver them nowhere.
        drop: bool { default: "false", class: Definition },
    }
}

section! {
    /// Which events a route takes. `*` stands for any run of characters.
    pub struct MatchConfig {
        /// The event's type.
        event_type: Option<Pattern> { example: "order.*", class: Definition },
        /// The aggregate's type.
        aggregate_type: Option<Pattern> { example: "order", class: Definition },
        /// The tenant. An event without one does not match.
        tenant: Option<Pattern> { example: "acme", class: Definition },
    }
}

section! {
    /// When a failure is tried again. Delays grow by `factor` from `delay_min` to `delay_max`.
    pub struct Retry {
        /// Attempts that count, the first included, before giving up. With the default delays, 10
        /// are 4 to 9 minutes.
        attempts: u32 { default: "10", min: "1", max: "100000", class: Definition },
        /// The delay after the first failure.
        delay_min: Duration { default: "1s", min: "10ms", max: "1d", class: Definition },
        /// The longest delay, also the longest `Retry-After` that is obeyed.
        delay_max: Duration { default: "10m", min: "10ms", max: "7d", class: Definition },
        /// The growth from one delay to the next.
        factor: f64 { default: "2.0", min: "1", max: "100", class: Definition },
    }
}

impl DestinationConfig {
    /// The definition as it stands in the store.
    ///
    /// A route that drops has no topic of its own; its definition has the template `{event_type}`.
    pub fn definition(&self, id: &DestinationId) -> Destination {
        let routes = if self.routes.is_empty() {
            vec![Route::all(by_type())]
        } else {
            self.routes.iter().map(RouteConfig::route).collect()
        };
        let shape = self.kind.shape();
        let mut definition = Destination::new(id.clone(), shape.word, routes);
        definition.limits = EventLimits {
            payload_bytes_max: self.limits.payload.bytes(),
            headers_bytes_max: self.limits.headers.bytes(),
            message_bytes_max: self.limits.message.map(Size::bytes).or(shape.message_bytes),
            ..EventLimits::default()
        };
        definition.topics = shape.topics;
        definition
    }
}

impl RouteConfig {
    fn route(&self) -> Route {
        let glob =
            |pattern: &Option<Pattern>| pattern.as_ref().map(|text| Glob::new(text.as_str()));
        let mut matches = Match::default();
        matches.event_type = glob(&self.matches.event_type);
        matches.aggregate_type = glob(&self.matches.aggregate_type);
        matches.tenant = glob(&self.matches.tenant);
        let topic = self.topic.clone().unwrap_or_else(by_type);
        let retry = RetryPolicy {
            attempts_max: self.retry.attempts,
            delay_min: self.retry.delay_min,
            delay_max: self.retry.delay_max,
            factor: self.retry.factor,
        };
        let mut route = Route::all(topic).only(matches).retry(retry).dead_key(self.dead_key);
        route.format = self.format;
        route.key = self.record_key.clone();
        let headers = self.add_headers.iter();
        route.headers = headers.map(|(name, text)| (name.to_string(), text.clone())).collect();
        route.drop = self.drop;
        route
    }
}

impl Retry {
    /// The longest time from the first attempt to the last: every delay may be as long as
    /// `delay_max`, if the other side asks for it.
    pub fn span_max(&self) -> Duration {
        self.delay_max.saturating_mul(self.attempts.saturating_sub(1))
    }
}

/// The topic of a route that names none.
fn by_type() -> Template {
    "{event_type}".parse().expect("invariant: a valid template")
}
