//! The memory broker: keeps what it acknowledged, in order, and a record of everything that was
//! sent to it, acknowledged or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Event, EventId, Fault, KeyHash, Marks,
    Outcome, Outgoing, Result,
};
use tokio::sync::watch;

use super::group::Group;
use super::subscription::MemorySubscription;
use super::{MemoryClock, lock};

/// A broker in memory. Clones are connections to the same broker.
#[derive(Clone, Debug)]
pub struct MemoryBroker {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) clock: MemoryClock,
    /// Grows whenever something may have become deliverable.
    pub(super) changes: watch::Sender<u64>,
    capabilities: BrokerCapabilities,
    payload_bytes_max: u64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) topics: BTreeMap<Arc<str>, Topic>,
    published: Vec<Published>,
    closed: bool,
}

#[derive(Debug, Default)]
pub(super) struct Topic {
    pub(super) log: Vec<Message>,
    pub(super) groups: BTreeMap<String, Group>,
    seen: BTreeMap<EventId, Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) event: Arc<Event>,
    pub(super) marks: Marks,
}

/// One event of one publish, as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Where to.
    pub topic: Arc<str>,
    /// The event.
    pub event: Arc<Event>,
    /// Marked as out of its key's order.
    pub marks: Marks,
    /// The sender's attempt.
    pub attempt: u32,
    /// When, since the clock was made.
    pub at: Duration,
    /// What the broker answered.
    pub outcome: Outcome,
}

impl Published {
    /// Whether the broker has it.
    pub fn is_acked(&self) -> bool {
        self.outcome == Outcome::Acked
    }
}

impl MemoryBroker {
    /// A durable broker that keeps key order and takes payloads up to 1 MiB.
    pub fn new(clock: MemoryClock) -> MemoryBroker {
        let mut capabilities = BrokerCapabilities::least();
        capabilities.keeps_key_order = true;
        capabilities.durable = true;
        MemoryBroker::with(clock, capabilities, 1024 * 1024)
    }

    /// A broker with other capabilities and another limit of the payload, in bytes.
    pub fn with(
        clock: MemoryClock,
        capabilities: BrokerCapabilities,
        payload_bytes_max: u64,
    ) -> MemoryBroker {
        MemoryBroker {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                clock,
                changes: watch::Sender::new(0),
                capabilities,
                payload_bytes_max,
            }),
        }
    }

    /// Everything that was ever sent, in order of arrival, whatever became of it.
    pub fn published(&self) -> Vec<Published> {
        lock(&self.shared.state).published.clone()
    }

    /// What a topic holds, in order, copies included.
    pub fn received(&self, topic: &str) -> Vec<Arc<Event>> {
        let state = lock(&self.shared.state);
        let messages = state.topics.get(topic).map_or(&[][..], |topic| &topic.log);
        messages.iter().map(|m| Arc::clone(&m.event)).collect()
    }

    /// The topics that hold something.
    pub fn topics(&self) -> Vec<Arc<str>> {
        lock(&self.shared.state).topics.keys().cloned().collect()
    }

    /// A new consumer of a topic in a group, with key order across the group.
    pub fn subscribe(&self, topic: &str, group: &str, visibility: Duration) -> MemorySubscription {
        MemorySubscription::new(self.clone(), Arc::from(topic), group.to_owned(), visibility)
    }

    /// What the group refused for good, with the reason.
    pub fn dead_letters(&self, topic: &str, group: &str) -> Vec<(Arc<Event>, Fault)> {
        let state = lock(&self.shared.state);
        let Some(topic) = state.topics.get(topic) else {
            return Vec::new();
        };
        let Some(group) = topic.groups.get(group) else {
            return Vec::new();
        };
        group
            .dead
            .iter()
            .map(|(index, fault)| (Arc::clone(&topic.log[*index].event), fault.clone()))
            .collect()
    }

    /// How many messages of a topic the group has neither done nor refused.
    pub fn unsettled(&self, topic: &str, group: &str) -> usize {
        let state = lock(&self.shared.state);
        let Some(topic) = state.topics.get(topic) else {
            return 0;
        };
        let settled = topic.groups.get(group).map_or(0, Group::settled);
        topic.log.len() - settled
    }

    /// Crashes and starts again: deliveries under way come again, and a broker that is not durable
    /// forgets what it held.
    pub fn restart(&self) {
        let mut state = lock(&self.shared.state);
        state.closed = false;
        if self.shared.capabilities.durable {
            for group in state.topics.values_mut().flat_map(|t| t.groups.values_mut()) {
                group.forget_deliveries();
            }
        } else {
            state.topics.clear();
        }
        drop(state);
        self.shared.changed();
    }

    /// Forgets which events it has seen: from now on each would be taken once more.
    pub fn forget_seen(&self) {
        lock(&self.shared.state).topics.values_mut().for_each(|topic| topic.seen.clear());
    }

    fn take(&self, state: &mut State, out: &Outgoing) -> Outcome {
        let shared = &self.shared;
        let bytes = out.event.payload.len() as u64;
        if bytes > shared.payload_bytes_max {
            return Outcome::Rejected(Fault::new(
                ErrorKind::TooLarge,
                format!("{bytes} bytes, the limit is {}", shared.payload_bytes_max),
            ));
        }
        let topic = state.topics.entry(Arc::clone(&out.topic)).or_default();
        let now = shared.clock.elapsed();
        if let Some(window) = shared.capabilities.deduplicates_for {
            let seen = topic.seen.insert(out.event.id, now);
            if seen.is_some_and(|seen| now.saturating_sub(seen) <= window) {
                return Outcome::Acked;
            }
        }
        topic.log.push(Message { event: Arc::clone(&out.event), marks: out.marks });
        Outcome::Acked
    }
}

impl Shared {
    pub(super) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }
}

impl Broker for MemoryBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        self.shared.capabilities
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let mut state = lock(&self.shared.state);
            if state.closed {
                return Err(Error::new(ErrorKind::Closed, "publish")
                    .message("the broker's connection was closed; nothing was sent"));
            }
            let mut stopped: BTreeSet<KeyHash> = BTreeSet::new();
            let mut outcomes = Vec::with_capacity(batch.len());
            for out in batch {
                let key = out.event.key_hash();
                let outcome = if stopped.contains(&key) {
                    Outcome::Skipped
                } else {
                    self.take(&mut state, out)
                };
                if self.shared.capabilities.prefix_order && outcome != Outcome::Acked {
                    stopped.insert(key);
                }
                state.published.push(Published {
                    topic: Arc::clone(&out.topic),
                    event: Arc::clone(&out.event),
                    marks: out.marks,
                    attempt: out.attempt,
                    at: self.shared.clock.elapsed(),
                    outcome: outcome.clone(),
                });
                outcomes.push(outcome);
            }
            drop(state);
            self.shared.changed();
            Ok(outcomes)
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            lock(&self.shared.state).closed = true;
            Ok(())
        })
    }
}
