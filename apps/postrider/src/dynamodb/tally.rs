//! What the store counts of tables that a relay reads, as metrics.
//!
//! Invariant: only what the relay of this process has seen is told, and a store that is closed is not kept for it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use postrider_dynamodb::{DynamoStore, ShardLag, Tally};

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
        show_lags(metrics, &store.shard_lags());
    }
}

/// The shard that is furthest behind, and how many are: a shard's name is no label, as there is no end of new ones.
fn show_lags(metrics: &Metrics, lags: &[ShardLag]) {
    let Some(worst) = lags.iter().map(|shard| shard.lag).max() else { return };
    metrics.set(catalog::DYNAMODB_LAG, &[], worst.as_secs_f64());
    let tips = lags.iter().filter(|shard| shard.at_tip).count();
    metrics.set(catalog::DYNAMODB_SHARDS, &["tip"], tips as f64);
    metrics.set(catalog::DYNAMODB_SHARDS, &["behind"], (lags.len() - tips) as f64);
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
    use std::time::Duration;

    use super::*;

    /// R059: of all shards the one that is furthest behind is shown, and how many are; their names are not.
    #[test]
    fn the_lag_of_the_worst_shard_is_shown_without_its_name() {
        let metrics = Metrics::of(catalog::of_relay());
        show_lags(&metrics, &[]);
        assert!(!metrics.text().contains("stream_lag_seconds{"), "there is none yet");
        let lag = |shard: &str, seconds, at_tip| {
            ShardLag::new(shard, Duration::from_secs(seconds), at_tip)
        };
        show_lags(
            &metrics,
            &[lag("shardId-1", 0, true), lag("shardId-2", 90, false), lag("shardId-3", 5, false)],
        );
        let text = metrics.text();
        for line in [
            "postrider_dynamodb_stream_lag_seconds{} 90.0",
            "postrider_dynamodb_stream_shards{at=\"tip\"} 1.0",
            "postrider_dynamodb_stream_shards{at=\"behind\"} 2.0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("shardId"), "a shard's name is no label");
    }

    /// R049: what the store ignored, and records without images, are metrics of the relay.
    #[test]
    fn what_the_store_counted_is_shown_under_its_reason() {
        let metrics = Metrics::of(catalog::of_relay());
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
