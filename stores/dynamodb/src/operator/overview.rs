//! The overview: everything at a glance.
//!
//! Invariant: its cost grows with what is pending and what waits, and never with what is kept: what was
//! published is not counted, because nothing but a reading of the whole table could. The clock is this
//! machine's.

use std::collections::HashMap;
use std::time::Duration;

use postrider_core::operate::{
    DestinationView, ErrorGroup, Overview, PartitionView, RelayView, SettledTotals,
};
use postrider_core::source::{Definitions, StoreFacts};
use postrider_core::waiting::WaitingState;
use postrider_core::{DestinationRow, PartitionId, Result, Timestamp};

use super::request;
use super::waiting::moment;
use crate::control::SCHEMA;
use crate::heartbeat::HEARTBEAT_KEPT_SECONDS;
use crate::index;
use crate::record::{pending_in, unrouted_in};
use crate::store::DynamoStore;
use crate::waiting::Waiting;
use crate::watch::{Heartbeat, Snapshot};
use crate::{definitions, store};

/// Reasons that are shown.
const REASONS_MAX: usize = 10;

/// Disabled endpoints that are shown.
const ENDPOINTS_MAX: usize = 100;

/// A relay whose last beat is so long past, by the clocks of both machines, counts as gone. This process
/// has watched nobody, and a clock that is a little off must not hide a relay that lives.
const SKEW: Duration = Duration::from_secs(30);

/// The state of everything.
pub(super) async fn read(store: &DynamoStore) -> Result<Overview> {
    let connection = store.connection();
    let partitions = store.facts().await?.partitions;
    let snapshot = store.look("overview").await?;
    let known = definitions::read(connection).await?;
    let mut destinations = Vec::new();
    for row in &known.rows {
        destinations.push(destination(store, row, &known, partitions).await?);
    }
    let waits = |view: &DestinationView| view.waiting.total();
    let kept = destinations.iter().map(|view| view.pending + waits(view)).sum();
    let mut overview = Overview {
        facts: StoreFacts { name: connection.name(), partitions, schema: SCHEMA },
        now: Timestamp::now(),
        definitions: known.version,
        enqueued: kept,
        kept,
        oldest: destinations.iter().filter_map(|view| view.pending_since).min(),
        relays: relays(&snapshot),
        partitions: (0..partitions).map(|one| partition(&snapshot, PartitionId(one))).collect(),
        destinations,
        scheduled: 0,
        scheduled_next: None,
        requests: request::open_ids(store, "overview").await?.len() as u64,
        stray_bytes: None,
        copy: false,
    };
    if known.rows.is_empty() {
        // Nobody has defined a destination; what is written is there all the same.
        let (count, since) = pending(store, partitions, false).await?;
        (overview.enqueued, overview.kept, overview.oldest) = (count, count, since);
    }
    Ok(overview)
}

async fn destination(
    store: &DynamoStore,
    row: &DestinationRow,
    known: &Definitions,
    partitions: u16,
) -> Result<DestinationView> {
    let id = &row.definition.id;
    let unrouted = row.definition.is_unrouted();
    let (count, since) = pending(store, partitions, unrouted).await?;
    let mut view = DestinationView {
        id: id.clone(),
        kind: row.definition.kind.clone(),
        version: row.version,
        state: row.state,
        pending: count,
        pending_since: since,
        waiting: postrider_core::waiting::Counts::default(),
        ranges: 0,
        waiting_since: None,
        dead_since: None,
        retry_next: None,
        settled: SettledTotals::default(),
        saved_at: None,
        errors: Vec::new(),
        disabled: Vec::new(),
    };
    let mut reasons = HashMap::new();
    for partition in 0..partitions {
        let waiting = store.read_waiting(PartitionId(partition), id).await?;
        add_waiting(&mut view, &waiting, &mut reasons);
    }
    view.errors = groups(reasons);
    let disabled = known.disabled.iter().filter(|(of, _)| of == id);
    view.disabled = disabled.take(ENDPOINTS_MAX).map(|(_, topic)| topic.to_string()).collect();
    Ok(view)
}

fn add_waiting(
    view: &mut DestinationView,
    waiting: &Waiting,
    reasons: &mut HashMap<(String, String), u64>,
) {
    waiting.count_into(&mut view.waiting);
    let earliest = |known: Option<Timestamp>, ms: i64| {
        Some(known.into_iter().fold(moment(ms), Timestamp::min))
    };
    for row in waiting.rows() {
        match (row.state, row.created_at) {
            (WaitingState::Dead, _) => view.dead_since = earliest(view.dead_since, row.moved_at),
            (WaitingState::Discarded, _) | (_, None) => {}
            (_, Some(created)) => view.waiting_since = earliest(view.waiting_since, created),
        }
        if row.is_timed() {
            view.retry_next = earliest(view.retry_next, row.due);
        }
        if !matches!(row.state, WaitingState::Parked | WaitingState::Discarded) {
            let detail = row.detail.lines().next().unwrap_or_default().to_owned();
            *reasons.entry((row.reason.to_string(), detail)).or_default() += 1;
        }
    }
}

/// The most frequent reasons.
fn groups(reasons: HashMap<(String, String), u64>) -> Vec<ErrorGroup> {
    let mut groups: Vec<ErrorGroup> = reasons
        .into_iter()
        .map(|((reason, detail), count)| ErrorGroup { reason, detail, count })
        .collect();
    groups.sort_by(|a, b| {
        b.count.cmp(&a.count).then_with(|| (&a.reason, &a.detail).cmp(&(&b.reason, &b.detail)))
    });
    groups.truncate(REASONS_MAX);
    groups
}

/// How many events are pending, at least, and since when.
async fn pending(
    store: &DynamoStore,
    partitions: u16,
    unrouted: bool,
) -> Result<(u64, Option<Timestamp>)> {
    let (mut sum, mut oldest) = (0, None::<Timestamp>);
    for partition in (0..partitions).map(PartitionId) {
        let shard = if unrouted { unrouted_in(partition) } else { pending_in(partition) };
        let (count, since) = index::count(store.connection(), &shard).await?;
        sum += count;
        let since = since.map(moment);
        oldest = oldest.into_iter().chain(since).min();
    }
    Ok((sum, oldest))
}

fn relays(snapshot: &Snapshot) -> Vec<RelayView> {
    let alive = snapshot.relays.iter().filter(|(_, heartbeat)| is_alive(heartbeat));
    let mut views: Vec<RelayView> = alive
        .map(|(relay, heartbeat)| RelayView {
            owner: relay.clone(),
            current: heartbeat.current,
            expires_in: heartbeat.left(),
            hindrances: heartbeat.hindrances.clone(),
        })
        .collect();
    views.sort_by(|a, b| a.owner.cmp(&b.owner));
    views
}

/// Whether a relay lives, as far as one look can tell.
fn is_alive(heartbeat: &Heartbeat) -> bool {
    let beat = heartbeat.kept_until.map(|until| until - HEARTBEAT_KEPT_SECONDS);
    let since = beat.map_or(0, |beat| (store::now_ms() / 1_000).saturating_sub(beat));
    let patience = heartbeat.duration.saturating_add(SKEW);
    let recent = Duration::from_secs(u64::try_from(since).unwrap_or_default()) <= patience;
    recent && !heartbeat.left().is_zero()
}

fn partition(snapshot: &Snapshot, partition: PartitionId) -> PartitionView {
    let item = snapshot.leases.get(&partition);
    let owner = item
        .and_then(|item| item.owner.clone())
        .filter(|owner| snapshot.relays.get(owner).is_some_and(is_alive));
    let heartbeat = owner.as_ref().and_then(|owner| snapshot.relays.get(owner));
    PartitionView {
        partition,
        host: heartbeat.and_then(|heartbeat| Some(heartbeat.presence.as_ref()?.host.clone())),
        expires_in: heartbeat.map(Heartbeat::left),
        owner,
        takeovers: item.map_or(0, |item| item.takeovers),
        paused: snapshot.paused.contains(&partition),
    }
}
