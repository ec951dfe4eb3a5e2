//! The doctor: looks for what will go wrong, and says what to do about it.
//!
//! Invariant: nothing is changed. What cannot be examined is a finding, and the others still say what they
//! say.

use postrider_core::operate::Finding;
use postrider_core::operate::findings::{self, coded, critical, flow};
use postrider_core::{Code, ErrorKind, PartitionId, Result, Timestamp};

use super::overview;
use crate::collection::single;
use crate::examine::findings;
use crate::index;
use crate::item::text;
use crate::record::{EVENT_ID, SHARD, pending_in};
use crate::store::DynamoStore;

/// Foreign entries of a partition's index that are looked at: enough to find one with a stamp among such as were
/// deleted meanwhile, at half a read unit each.
const LOOKED_AT_MAX: usize = 8;

/// Examines everything.
pub(super) async fn examine(store: &DynamoStore, now: Timestamp) -> Result<Vec<Finding>> {
    let names = store.connection().names();
    let mut found = match findings(store.connection(), store.options().relays_read_stream).await {
        Ok(found) => found,
        // Without tables there is nothing to examine.
        Err(error) if error.kind() == ErrorKind::SchemaMissing => return Err(error),
        Err(error) => vec![unexamined("tables", &error)],
    };
    match overview::read(store).await {
        Ok(overview) => {
            let option = format!("--store dynamodb://… (table {})", names.outbox);
            // The clock that is compared is this machine's own: the service gives none.
            let flowing = flow(&overview, now, &option).into_iter();
            found.extend(flowing.filter(|finding| finding.subject != "clock"));
        }
        Err(error) => found.push(unexamined("flow", &error)),
    }
    match unmapped(store).await {
        Ok(unmapped) => found.extend(unmapped),
        Err(error) => found.push(unexamined("business items", &error)),
    }
    Ok(found)
}

/// Business items with a stamp that are pending, where this handle makes no events of them. Of each partition those
/// among the first page of its index are found.
async fn unmapped(store: &DynamoStore) -> Result<Option<Finding>> {
    if store.derives() {
        return Ok(None);
    }
    for partition in (0..store.facts().await?.partitions).map(PartitionId) {
        let shard = pending_in(partition);
        let listing = index::list(store.connection(), &shard, None, 0, false).await?;
        let places = listing.foreign.iter().filter(|place| place.may_derive());
        for place in places.take(LOOKED_AT_MAX) {
            let item = single(store.connection(), "examine", place).await?;
            let names_event = item
                .filter(|item| text(item, SHARD) == Some(&shard) && text(item, EVENT_ID).is_some());
            if names_event.is_some() {
                let (pk, sk) = (place.pk.escape_debug(), place.sk.escape_debug());
                let message = format!(
                    "the item pk `{pk}`, sk `{sk}` carries a stamp and is pending, perhaps with others, and no mapping \
                     is configured here: a relay without one never publishes them"
                );
                let advice = "Name the attributes of the event in [dynamodb.derived] of the relay's configuration, and \
                              examine with --config FILE. If the relay is a program of yours that has a mapping, \
                              this is no fault.";
                return Ok(Some(coded("business items", message, advice, Code::MappingMissing)));
            }
        }
    }
    Ok(None)
}

fn unexamined(subject: &str, error: &postrider_core::Error) -> Finding {
    match error.kind() {
        // A relay with these credentials would be refused as well.
        ErrorKind::Unauthorized => {
            let advice = "Give it credentials that may; deploy/aws has the policy of each part.";
            let message = format!("could not be examined: {error}");
            critical(subject, message, advice, Code::Unauthorized)
        }
        _ => findings::unexamined(subject, error),
    }
}
