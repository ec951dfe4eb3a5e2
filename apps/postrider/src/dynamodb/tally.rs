//! What the store counts of tables that a relay reads, as metrics.
//!
//! Invariant: only what the relay of this process has seen is told, and a store that is closed is not kept for it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use postrider_dynamodb::{DynamoStore, Tally};

use crate::serve::{Metrics, catalog};

/// The store that is relayed from: a process has one relay.
static RELAYED: Mutex<Weak<DynamoStore>> = Mutex::new(Weak::new());

/// From now on this store's counts are shown.
pub(super) fn remember(store: &Arc<DynamoStore>) {
    *RELAYED.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(store);
}

/// Shows what was counted, if a relay reads tables.
pub(crate) fn show(metrics: &Metrics) {
    let store = RELAYED.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    if let Some(store) = store {
        show_of(metrics, store.tallied());
    }
}

fn show_of(metrics: &Metrics, tally: Tally) {
    metrics.total(catalog::DYNAMODB_IGNORED, &["foreign"], tally.foreign);
    metrics.total(catalog::DYNAMODB_IGNORED, &["marked"], tally.marked_by_others);
    metrics.total(catalog::DYNAMODB_IGNORED, &["merged"], tally.merged);
    metrics.total(catalog::DYNAMODB_IGNORED, &["gone"], tally.gone);
    metrics.total(catalog::DYNAMODB_STREAM, &["without_image"], tally.without_image);
    metrics.total(catalog::DYNAMODB_STREAM, &["interruption"], tally.interruptions);
    metrics.total(catalog::DYNAMODB_STREAM, &["gap"], tally.gaps);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R049: what the store ignored, and records without images, are metrics of the relay.
    #[test]
    fn what_the_store_counted_is_shown_under_its_reason() {
        let metrics = Metrics::of(catalog::RELAY);
        let tally = Tally {
            foreign: 1,
            marked_by_others: 2,
            merged: 6,
            gone: 7,
            without_image: 3,
            interruptions: 4,
            gaps: 5,
        };
        show_of(&metrics, tally);
        // Another scrape counts nothing twice.
        show_of(&metrics, tally);
        let text = metrics.text();
        for line in [
            "postrider_dynamodb_ignored_items_total{reason=\"foreign\"} 1",
            "postrider_dynamodb_ignored_items_total{reason=\"marked\"} 2",
            "postrider_dynamodb_ignored_items_total{reason=\"merged\"} 6",
            "postrider_dynamodb_ignored_items_total{reason=\"gone\"} 7",
            "postrider_dynamodb_stream_troubles_total{trouble=\"without_image\"} 3",
            "postrider_dynamodb_stream_troubles_total{trouble=\"interruption\"} 4",
            "postrider_dynamodb_stream_troubles_total{trouble=\"gap\"} 5",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
