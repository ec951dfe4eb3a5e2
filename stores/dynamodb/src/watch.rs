//! The watch: what this process saw of other relays' heartbeats, by its own monotonic clock.
//!
//! There is no clock of the store to ask. A lease ends for an observer when it has seen the same heartbeat
//! for the whole duration that the heartbeat names. Invariants: the time counts from when the answer that
//! first showed the heartbeat had *arrived*, so never from before it was written; and what the watch says
//! is an opinion: the write that acts on it has the heartbeat as its condition.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::lease::{Census, Presence};
use postrider_core::{Hindrance, Lease, PartitionId, RelayId, Result};

use crate::connection::{Connection, call};
use crate::control::{CONTROL, LEASE, PAUSED, RELAY, SK, TTL, VERSION};
use crate::fence::REMOVALS;
use crate::heartbeat::HINDRANCES;
use crate::item::{Item, n, number, s, text, truth};

/// Added to every duration that is waited for, as a share: two clocks that measure the same span may
/// differ by one part in fifty, which is far more than clocks of machines do.
const RATE_MARGIN: u32 = 50;

/// The attribute with the duration of a relay's leases, in milliseconds.
pub(crate) const LEASE_MS: &str = "lease_ms";

/// What was seen, shared by the handles of a process.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    beats: HashMap<RelayId, (u64, Instant)>,
    leases: HashMap<PartitionId, ((u64, Option<RelayId>), Instant)>,
    /// Owners without a heartbeat, since when.
    absent: HashMap<RelayId, Instant>,
}

/// A relay's heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    pub(crate) beat: u64,
    pub(crate) duration: Duration,
    pub(crate) current: bool,
    /// Whether it is there for a moment, for some partitions alone: nobody shares with it.
    pub(crate) passing: bool,
    pub(crate) presence: Option<Presence>,
    /// For how long this process has seen this very beat.
    pub(crate) silent: Duration,
    /// When the item goes, in seconds by the relay's clock: a day after the beat. For people, who ask a
    /// program that has watched nobody.
    pub(crate) kept_until: Option<i64>,
    /// What keeps it from delivering, as it says.
    pub(crate) hindrances: Vec<Hindrance>,
}

impl Heartbeat {
    /// Until its leases end, if it stays silent.
    pub(crate) fn left(&self) -> Duration {
        left(self.duration, self.silent)
    }
}

/// What is left of a lease whose owner is silent, with the margin for clocks of other rates.
fn left(duration: Duration, silent: Duration) -> Duration {
    duration.saturating_add(duration / RATE_MARGIN).saturating_sub(silent)
}

/// A partition's lease item.
#[derive(Clone, Debug)]
pub(crate) struct LeaseItem {
    pub(crate) owner: Option<RelayId>,
    pub(crate) token: u64,
    pub(crate) takeovers: u32,
    /// How many removals of destinations were told to the partition.
    pub(crate) removals: u64,
    /// For how long its owner asked for it: what holds when the owner's heartbeat is gone.
    pub(crate) duration: Option<Duration>,
    /// For how long this process has seen it so.
    pub(crate) since: Duration,
    /// For how long this process has seen that its owner has no heartbeat; zero while it has one.
    pub(crate) absent: Duration,
}

impl LeaseItem {
    pub(crate) fn of(item: &Item) -> LeaseItem {
        LeaseItem {
            owner: text(item, "owner").and_then(|owner| RelayId::new(owner).ok()),
            token: number(item, "token").unwrap_or_default(),
            takeovers: number(item, "takeovers").unwrap_or_default(),
            removals: number(item, REMOVALS).unwrap_or_default(),
            duration: number(item, LEASE_MS).map(Duration::from_millis),
            since: Duration::ZERO,
            absent: Duration::ZERO,
        }
    }

    /// Until it ends, if its owner's heartbeat is gone and stays so. An owner that did not say for how long it
    /// asked has the given duration.
    pub(crate) fn left(&self, unsaid: Duration) -> Duration {
        left(self.duration.unwrap_or(unsaid), self.absent)
    }

    pub(crate) fn is(&self, lease: &Lease) -> bool {
        self.owner.as_ref() == Some(&lease.owner) && self.token == lease.token
    }
}

/// The control items at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) relays: HashMap<RelayId, Heartbeat>,
    pub(crate) leases: HashMap<PartitionId, LeaseItem>,
    pub(crate) definitions: u64,
    /// Partitions that an operator paused.
    pub(crate) paused: Vec<PartitionId>,
}

impl Snapshot {
    /// Who is there to stay: everybody whose heart was seen to beat within its lease.
    pub(crate) fn census(&self) -> Census {
        let stays = |relay: &&Heartbeat| !relay.passing && !relay.left().is_zero();
        let alive = || self.relays.values().filter(stays);
        let count = |relays: usize| u32::try_from(relays).unwrap_or(u32::MAX);
        Census {
            relays: count(alive().count()),
            current: count(alive().filter(|relay| relay.current).count()),
        }
    }

    /// Whether a token of a partition is lost, or let go, for certain: what is only unknown is not.
    pub(crate) fn is_past(&self, partition: PartitionId, token: u64) -> bool {
        let past =
            |item: &LeaseItem| item.token > token || (item.token == token && item.owner.is_none());
        self.leases.get(&partition).is_some_and(past)
    }

    /// Whether a relay has a partition.
    pub(crate) fn owns(&self, relay: &RelayId) -> bool {
        self.leases.values().any(|lease| lease.owner.as_ref() == Some(relay))
    }

    /// Whether the store says that the lease stands.
    pub(crate) fn stands(&self, lease: &Lease) -> bool {
        self.leases.get(&lease.partition).is_some_and(|item| item.is(lease))
    }
}

impl Watch {
    /// Looks at the control items, and notes what has changed.
    pub(crate) async fn look(
        &self,
        connection: &Connection,
        operation: &'static str,
    ) -> Result<Snapshot> {
        let items = control_items(connection, operation).await?;
        let now = Instant::now();
        let mut seen = self.seen();
        let mut snapshot = Snapshot::default();
        for item in &items {
            let name = text(item, SK).unwrap_or_default();
            if let Some(relay) = name.strip_prefix(RELAY).and_then(|id| RelayId::new(id).ok()) {
                let heartbeat = seen.note_beat(&relay, item, now);
                snapshot.relays.insert(relay, heartbeat);
            } else if let Some(partition) = name.strip_prefix(LEASE).and_then(|p| p.parse().ok()) {
                let partition = PartitionId(partition);
                let lease = seen.note_lease(partition, item, now);
                snapshot.leases.insert(partition, lease);
            } else if name == VERSION {
                snapshot.definitions = number(item, "version").unwrap_or_default();
                snapshot.paused = paused(item);
            }
        }
        seen.beats.retain(|relay, _| snapshot.relays.contains_key(relay));
        seen.note_absent(&mut snapshot, now);
        Ok(snapshot)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn note_beat(&mut self, relay: &RelayId, item: &Item, now: Instant) -> Heartbeat {
        let beat = number(item, "beat").unwrap_or_default();
        let first = self.beats.entry(relay.clone()).or_insert((beat, now));
        if first.0 != beat {
            *first = (beat, now);
        }
        let presence = || {
            Some(Presence {
                host: text(item, "host")?.to_owned(),
                boot: text(item, "boot")?.to_owned(),
                path: text(item, "path")?.to_owned(),
            })
        };
        Heartbeat {
            beat,
            duration: Duration::from_millis(number(item, LEASE_MS).unwrap_or_default()),
            current: truth(item, "current"),
            passing: truth(item, "passing"),
            presence: presence(),
            silent: now.duration_since(first.1),
            kept_until: number(item, TTL),
            hindrances: text(item, HINDRANCES).map(Hindrance::read).unwrap_or_default(),
        }
    }

    fn note_lease(&mut self, partition: PartitionId, item: &Item, now: Instant) -> LeaseItem {
        let mut lease = LeaseItem::of(item);
        let state = (lease.token, lease.owner.clone());
        let first = self.leases.entry(partition).or_insert_with(|| (state.clone(), now));
        if first.0 != state {
            *first = (state, now);
        }
        lease.since = now.duration_since(first.1);
        lease
    }

    /// Notes which owners have no heartbeat: their silence counts from when that was first seen.
    fn note_absent(&mut self, snapshot: &mut Snapshot, now: Instant) {
        let Snapshot { relays, leases, .. } = snapshot;
        let owners =
            |relay: &RelayId| leases.values().any(|item| item.owner.as_ref() == Some(relay));
        self.absent.retain(|relay, _| !relays.contains_key(relay) && owners(relay));
        for item in leases.values_mut() {
            let Some(owner) = item.owner.as_ref().filter(|owner| !relays.contains_key(*owner))
            else {
                continue;
            };
            let first = self.absent.entry(owner.clone()).or_insert(now);
            item.absent = now.duration_since(*first);
        }
    }
}

fn paused(item: &Item) -> Vec<PartitionId> {
    let listed = item.get(PAUSED).and_then(|listed| listed.as_l().ok()).into_iter().flatten();
    listed.filter_map(|value| Some(PartitionId(value.as_n().ok()?.parse().ok()?))).collect()
}

/// All of them, with one query: they are few, and small.
async fn control_items(connection: &Connection, operation: &'static str) -> Result<Vec<Item>> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let mut items = Vec::new();
    let mut from: Option<HashMap<String, AttributeValue>> = None;
    loop {
        let query = client
            .query()
            .table_name(table)
            .key_condition_expression("pk = :control")
            .expression_attribute_values(":control", s(CONTROL))
            .consistent_read(true)
            .set_exclusive_start_key(from.take());
        let page = call(operation, table, query.send()).await?;
        items.extend(page.items.unwrap_or_default());
        from = page.last_evaluated_key;
        if from.is_none() {
            return Ok(items);
        }
    }
}

/// The attributes of a heartbeat, for the update that announces a relay.
pub(crate) fn presence_values(
    presence: Option<&Presence>,
) -> Option<[(&'static str, AttributeValue); 3]> {
    let presence = presence?;
    Some([(":host", s(&presence.host)), (":boot", s(&presence.boot)), (":path", s(&presence.path))])
}

/// A span as the heartbeat has it.
pub(crate) fn millis(span: Duration) -> AttributeValue {
    n(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heartbeat(beat: u64) -> Item {
        Item::from([("beat".to_owned(), n(beat)), ("lease_ms".to_owned(), n(1_000))])
    }

    /// R115: silence counts from when a beat was first seen, and every new beat begins it anew.
    #[test]
    fn a_lease_ends_when_one_beat_was_seen_for_all_its_duration() {
        let (mut seen, relay, start) = (Seen::default(), RelayId::mint(), Instant::now());
        let mut at = |beat, ms| {
            seen.note_beat(&relay, &heartbeat(beat), start + Duration::from_millis(ms)).left()
        };
        assert_eq!(at(7, 5_000), Duration::from_millis(1_020), "whenever it was written");
        assert_eq!(at(7, 5_900), Duration::from_millis(120));
        assert_eq!(at(8, 6_000), Duration::from_millis(1_020), "it beats");
        assert_eq!(at(8, 7_019), Duration::from_millis(1));
        assert_eq!(at(8, 7_020), Duration::ZERO);
    }

    /// What is not known is not lost: an older look says nothing of a newer token.
    #[test]
    fn a_token_is_lost_when_a_greater_one_is_there_or_nobody_has_it() {
        let mut snapshot = Snapshot::default();
        let item = Item::from([("owner".to_owned(), s("relay")), ("token".to_owned(), n(7))]);
        let partition = PartitionId(3);
        snapshot.leases.insert(partition, LeaseItem::of(&item));
        assert!(snapshot.is_past(partition, 6));
        assert!(!snapshot.is_past(partition, 7) && !snapshot.is_past(partition, 8));
        assert!(!snapshot.is_past(PartitionId(4), 1), "nothing is known of it");
        snapshot.leases.get_mut(&partition).unwrap().owner = None;
        assert!(snapshot.is_past(partition, 7), "let go");
    }

    /// A relay in passing is nobody's rival: nobody gives a partition away because of it.
    #[test]
    fn one_in_passing_is_not_counted() {
        let (mut seen, now) = (Seen::default(), Instant::now());
        let mut snapshot = Snapshot::default();
        for passing in [false, true] {
            let relay = RelayId::mint();
            let mut item = heartbeat(1);
            item.insert("current".to_owned(), AttributeValue::Bool(true));
            item.insert("passing".to_owned(), AttributeValue::Bool(passing));
            let heart = seen.note_beat(&relay, &item, now);
            snapshot.relays.insert(relay, heart);
        }
        assert_eq!(snapshot.census(), Census { relays: 1, current: 1 });
    }
}
