//! Events by hand, in a transaction of their own.
//!
//! Invariant: one call is one transaction, so how many events it takes is said before: the service takes a
//! hundred actions, and each event is one and each of their keys another.

use std::collections::HashSet;

use postrider_core::{EventId, NewEvent, Result};

use crate::outbox::Outbox;
use crate::store::DynamoStore;
use crate::transaction::{ACTIONS_MAX, TRANSACTION_BYTES_MAX};

/// Bytes of one transaction's events: three quarters of what the service takes, because heads count as well.
const BYTES_MAX: u64 = TRANSACTION_BYTES_MAX / 4 * 3;

/// Bytes of an event's item besides what the event says: names of attributes, index keys, times. An item of
/// an empty event has some 500.
const ITEM_BYTES: u64 = 1_024;

/// How many of these events, from the first on, fit one transaction; at least one, if there is one.
pub(super) fn max(events: &[NewEvent]) -> usize {
    let (mut keys, mut bytes) = (HashSet::new(), 0);
    let fits = events.iter().enumerate().take_while(|(index, event)| {
        let key = event.key();
        // The key is the name of the collection too.
        bytes += event.event().size_bytes() + key.len() as u64 + ITEM_BYTES;
        keys.insert(key);
        index + 1 + keys.len() <= ACTIONS_MAX && bytes <= BYTES_MAX
    });
    fits.count().max(1).min(events.len())
}

/// Writes them, and says their ids.
pub(super) async fn stage(store: &DynamoStore, events: &[NewEvent]) -> Result<Vec<EventId>> {
    let outbox = Outbox::open(store.connection()).await?;
    outbox.write(&[], events).await?;
    Ok(events.iter().map(|event| event.event().id).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: usize, bytes: usize) -> NewEvent {
        let event = NewEvent::new("order", key.to_string(), "order.placed");
        event.json(&"x".repeat(bytes)).unwrap()
    }

    #[test]
    fn events_keys_and_bytes_are_counted() {
        let each = |keys: usize, bytes| (0..200).map(|n| of(n % keys, bytes)).collect::<Vec<_>>();
        assert_eq!(max(&each(1, 1)), 99, "and one head");
        assert_eq!(max(&each(200, 1)), 50, "each with its head");
        assert_eq!(max(&each(3, 1)), 97);
        assert_eq!(max(&each(1, 200 * 1024)), 15, "of 3 MiB");
        assert_eq!(max(&[]), 0);
        assert_eq!(max(&[of(1, 5 * 1024 * 1024)]), 1, "to be refused with the reason");
    }
}
