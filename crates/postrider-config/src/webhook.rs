//! Webhooks: everything that the configuration knows of them.
//!
//! Invariant: what an address may be, and how many keys and headers there may be, is what the broker takes.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::{Format, TopicRule};

use crate::address::Address;
use crate::broker::{BrokerShape, UrlShape};
use crate::choice::Kind;
use crate::key::Class::Restart;
use crate::key::{BATCH_ENDS, Rule};
use crate::name::HeaderName;
use crate::secret::SecretRef;
use crate::section::section;
use crate::size::Size;

/// The kind `webhook`.
pub(crate) const WEBHOOK: BrokerShape = BrokerShape {
    kind: Kind::Webhook,
    word: "webhook",
    doc: "HTTP requests to endpoints.",
    url: UrlShape::In { table: "endpoints", entry: "ENDPOINT" },
    tables: &[("webhook", &Webhook::TABLE), ("endpoints", &Endpoint::TABLE)],
    source: None,
    formats: &[Format::Structured, Format::Binary],
    has_record_key: false,
    message_bytes: None,
    topics: TopicRule::Any,
    feature: None,
};

section! {
    /// How requests are made.
    pub struct Webhook {
        /// How long one request may take, the connection included.
        timeout: Duration { default: "5s", min: "50ms", max: "5m", rules: &[BATCH_ENDS] },
        /// Requests at once.
        connections: u32 { default: "64", min: "1", max: "4096", class: Restart },
        /// Requests at once to one endpoint, so that a slow one does not take all.
        connections_per_endpoint: u32 {
            default: "8", min: "1", max: "4096", class: Restart,
            rules: &[Rule::AtMost { key: "connections", part: 1, why: "an endpoint's are among them" }],
        },
        /// Take addresses inside private networks and on this machine.
        allow_private: bool { default: "false" },
        /// Take addresses without TLS. `allow_private` takes them too.
        allow_http: bool { default: "false" },
        /// Take topics that are URLs themselves. Whoever writes events then chooses where requests
        /// go.
        allow_urls: bool { default: "false" },
        /// How much of a response is read, for the error in a dead letter.
        response_bytes: Size { default: "1KiB", min: "0B", max: "64KiB" },
    }
}

section! {
    /// An endpoint of a webhook destination.
    pub struct Endpoint {
        /// Where requests go. If it holds a secret, write `env:NAME` or `file:PATH`.
        url: Address { required: true, example: "https://hooks.example/in" },
        /// Keys that sign requests, the newest first. All of them sign, each in a header of its own, so that
        /// receivers may know the old or the new one while keys change.
        keys: Vec<SecretRef> { max: "8" },
        /// Headers of every request; servers refuse requests with many. Their values are secrets.
        headers: BTreeMap<HeaderName, SecretRef> { max: "32" },
    }
}
