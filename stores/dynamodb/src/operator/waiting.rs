//! What waits, page by page.
//!
//! Invariant: a row's state is what its owner would say: which row of a key is the first is worked out from
//! all that waits of a partition, so that is what one step of a page reads.

use postrider_core::operate::listing::{self, Fields, Gathering};
use postrider_core::operate::{Filter, Listed, PageRequest, Status, WaitingView};
use postrider_core::source::Definitions;
use postrider_core::waiting::WaitingState;
use postrider_core::{DestinationId, PartitionId, Result, Timestamp};

use super::event::items;
use crate::definitions;
use crate::item::{Item, number, text};
use crate::reading::partition_of_number;
use crate::store::DynamoStore;
use crate::stored::Stored;

/// Events whose items are read at once while a page is filled.
const STEP: usize = 256;

/// A page of what waits, by destination and number.
pub(super) async fn list(
    store: &DynamoStore,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Listed<WaitingView>> {
    let mut gathering = Gathering::new(page.check()?);
    let after = page.after.as_deref().map(read_place).transpose()?;
    let partitions = store.facts().await?.partitions;
    let known = definitions::read(store.connection()).await?;
    let states = listing::states(filter);
    for id in asked(&known, filter) {
        let from = match &after {
            Some((destination, _)) if *id < *destination => continue,
            Some((destination, seq)) if id == destination => Some(*seq),
            _ => None,
        };
        let first = from.and_then(partition_of_number).map_or(0, |partition| partition.0);
        for partition in (first..partitions).map(PartitionId) {
            let waiting = store.read_waiting(partition, id).await?;
            let wanted = |row: &&Stored| {
                from.is_none_or(|from| row.row.seq > from) && may_pass(row, filter, &states)
            };
            let mut rows: Vec<&Stored> = waiting.rows().filter(wanted).collect();
            rows.sort_by_key(|row| row.row.seq);
            for step in rows.chunks(STEP) {
                let places = step.iter().map(|row| &row.place);
                let found = items(store, "waiting", places).await?;
                for (row, item) in step.iter().zip(found) {
                    let place = format!("{id}:{}", row.row.seq);
                    if !passes(row, item.as_ref(), filter) {
                        if !gathering.look() {
                            return Ok(gathering.more_after(place));
                        }
                        continue;
                    }
                    if gathering.is_full() {
                        return Ok(gathering.more());
                    }
                    gathering.push(view(id, partition, row, item.as_ref()), place);
                }
            }
        }
    }
    Ok(gathering.end())
}

fn read_place(text: &str) -> Result<(DestinationId, u64)> {
    let place = text
        .rsplit_once(':')
        .and_then(|(id, seq)| Some((DestinationId::new(id).ok()?, seq.parse::<u64>().ok()?)));
    place.ok_or_else(|| listing::misplaced("waiting", text))
}

/// The destinations that are asked for, in their order.
fn asked<'a>(
    known: &'a Definitions,
    filter: &'a Filter,
) -> impl Iterator<Item = &'a DestinationId> {
    let ids = known.rows.iter().map(|row| &row.definition.id);
    ids.filter(|id| filter.destination.as_ref().is_none_or(|wanted| wanted == *id))
}

/// The conditions on the row itself: what does not meet them needs no look at its event.
fn may_pass(row: &Stored, filter: &Filter, states: &[WaitingState]) -> bool {
    states.contains(&row.state)
        && filter.id.is_none_or(|id| row.row.id == id)
        && filter.attempts_min.is_none_or(|least| row.attempts >= least)
        && listing::error_passes(filter, row.reason.as_str(), &row.detail)
}

fn passes(row: &Stored, item: Option<&Item>, filter: &Filter) -> bool {
    let of = |name: &str| item.and_then(|item| text(item, name));
    let fields = Fields {
        id: Some(row.row.id),
        key: &key(row, item),
        event_type: of("event_type").unwrap_or_default(),
        aggregate_type: of("aggregate_type").unwrap_or_default(),
        tenant: of("tenant"),
        created_at: created_at(row, item),
    };
    fields.pass(filter)
}

/// The ordering key; of what cannot be read the item collection.
fn key(row: &Stored, item: Option<&Item>) -> String {
    item.and_then(ordering_key).unwrap_or_else(|| row.place.pk.to_string())
}

/// The ordering key of an event's item.
pub(super) fn ordering_key(item: &Item) -> Option<String> {
    let aggregate =
        || Some(format!("{}/{}", text(item, "aggregate_type")?, text(item, "aggregate_id")?));
    text(item, "key").map(str::to_owned).or_else(aggregate)
}

fn created_at(row: &Stored, item: Option<&Item>) -> Option<Timestamp> {
    let exact = item.and_then(|item| number(item, "created_at")).map(Timestamp::from_micros);
    exact.or_else(|| row.created_at.map(moment))
}

/// A moment in milliseconds.
pub(super) fn moment(ms: i64) -> Timestamp {
    Timestamp::from_micros(ms.saturating_mul(1_000))
}

/// A row's state in the words of an operator.
pub(super) fn status(state: WaitingState) -> Status {
    match state {
        WaitingState::Retrying => Status::Retrying,
        WaitingState::Parked => Status::Parked,
        WaitingState::Held => Status::Held,
        WaitingState::Disabled => Status::Disabled,
        WaitingState::Dead => Status::Dead,
        WaitingState::Discarded => Status::Discarded,
    }
}

/// A row as a person sees it, with what its event's item says.
pub(super) fn view(
    destination: &DestinationId,
    partition: PartitionId,
    row: &Stored,
    item: Option<&Item>,
) -> WaitingView {
    let of = |name: &str| item.and_then(|item| text(item, name)).map(str::to_owned);
    let status = status(row.state);
    WaitingView {
        destination: destination.clone(),
        partition,
        seq: row.row.seq,
        id: Some(row.row.id),
        event_type: of("event_type"),
        key: key(row, item),
        tenant: of("tenant"),
        created_at: created_at(row, item),
        status,
        attempts: row.attempts,
        reason: row.reason.to_string(),
        detail: row.detail.clone(),
        endpoint: row.endpoint.clone(),
        next_at: row.is_timed().then(|| moment(row.due)),
        moved_at: moment(row.moved_at),
        holds_key: row.holds(),
        late: row.late,
    }
}
