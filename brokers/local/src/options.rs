//! Options and limits. Everything is bounded; each bound has its default and its reason here.

use std::time::Duration;

use postrider_core::{Glob, Start, cloudevents};

/// Limits of a broker's file, as one handle sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalOptions {
    /// How long a call waits for another process to finish writing before it fails as busy.
    /// Default 2 s: well below a relay's publish deadline of 5 s.
    pub busy_wait: Duration,
    /// How large the file may grow, in bytes, before publishing fails as if the disk were full.
    /// Default 16 GiB: who needs more than that needs more than one machine.
    pub file_bytes_max: u64,
    /// How large one message may be as a CloudEvents document, in bytes. Default, and at most, what
    /// consumers accept: 2 MiB.
    pub document_bytes_max: usize,
    /// How many topics there may be. Default 4,096: a topic per tenant is fine, one per order is a
    /// mistake in a route's template.
    pub topics_max: u32,
    /// How many consumer groups there may be. Default 256: each pins what it has not settled.
    pub groups_max: u32,
}

impl Default for LocalOptions {
    fn default() -> LocalOptions {
        LocalOptions {
            busy_wait: Duration::from_secs(2),
            file_bytes_max: 16 * 1024 * 1024 * 1024,
            document_bytes_max: cloudevents::DOCUMENT_BYTES_MAX,
            topics_max: 4_096,
            groups_max: 256,
        }
    }
}

/// How a subscription receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// How long a delivery stays invisible to others without being settled or extended. Default
    /// 30 s: longer than most handlers run, short enough to take over from a dead consumer.
    pub visibility: Duration,
    /// After how many counted deliveries a message that is still not settled becomes a dead letter.
    /// Default 16: a message that kills its consumer must not do so for ever.
    pub deliveries_max: u32,
    /// Where a group that is new begins. A group that exists goes on where it is. Default: the
    /// beginning, which misses nothing.
    pub start: Start,
    /// How many unsettled messages, handed out or waiting behind one of their key, a group may have
    /// before its cursor waits. Default 8,192: what a relay's window holds.
    pub unsettled_max: u32,
    /// How many bytes of documents one `receive` returns, at least one message. Default 4 MiB, as
    /// large as a batch of the relay.
    pub receive_bytes_max: usize,
}

impl Default for SubscribeOptions {
    fn default() -> SubscribeOptions {
        SubscribeOptions {
            visibility: Duration::from_secs(30),
            deliveries_max: 16,
            start: Start::Beginning,
            unsettled_max: 8_192,
            receive_bytes_max: 4 * 1024 * 1024,
        }
    }
}

/// What [`purge`](crate::LocalBroker::purge) removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeOptions {
    /// Only messages stored longer ago than this. Default 7 days: time to look back, and to add a
    /// group that begins at the beginning.
    pub older_than: Duration,
    /// At most so many messages in one call. Default 10,000: other writers wait meanwhile.
    pub rows_max: u32,
    /// Also messages of topics that no group has ever subscribed to. Off by default: their consumer
    /// may not have been started yet.
    pub unread: bool,
}

impl Default for PurgeOptions {
    fn default() -> PurgeOptions {
        PurgeOptions {
            older_than: Duration::from_secs(7 * 24 * 3_600),
            rows_max: 10_000,
            unread: false,
        }
    }
}

/// Which topics a subscription reads: those that match one of its patterns, also topics that appear
/// later.
///
/// ```
/// use postrider_local::Topics;
/// assert!(Topics::from("orders.*").matches("orders.eu"));
/// assert!(Topics::from(["orders", "payments"]).matches("payments"));
/// assert!(!Topics::from("orders").matches("orders.eu"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics(Vec<Glob>);

impl Topics {
    /// Every topic.
    pub fn all() -> Topics {
        Topics(vec![Glob::any()])
    }

    /// Whether the topic is one of them.
    pub fn matches(&self, topic: &str) -> bool {
        self.0.iter().any(|pattern| pattern.matches(topic))
    }

    pub(crate) fn patterns(&self) -> &[Glob] {
        &self.0
    }
}

impl From<&str> for Topics {
    fn from(pattern: &str) -> Topics {
        Topics(vec![Glob::new(pattern)])
    }
}

impl From<Glob> for Topics {
    fn from(pattern: Glob) -> Topics {
        Topics(vec![pattern])
    }
}

impl From<Vec<Glob>> for Topics {
    fn from(patterns: Vec<Glob>) -> Topics {
        Topics(patterns)
    }
}

impl<const N: usize> From<[&str; N]> for Topics {
    fn from(patterns: [&str; N]) -> Topics {
        Topics(patterns.map(Glob::new).to_vec())
    }
}
