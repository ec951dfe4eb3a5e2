//! Housekeeping of the inbox: rows that were processed longer ago than the retention go.
//!
//! Invariant: a row that a redelivery may still ask for stays.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{InboxStore, RetryPolicy};

use crate::failure::Failure;

/// How often it is looked. The first time is at the start, so that a sidecar that is restarted every
/// half hour purges as well.
const EVERY: Duration = Duration::from_secs(3_600);

/// Rows of one transaction: a few milliseconds, for which others wait.
const ROWS_MAX: u32 = 1_000;

/// The pause between two transactions, in which others write.
const BREATH: Duration = Duration::from_millis(20);

/// For how long a message may come again.
pub(crate) fn horizon(retry: &RetryPolicy, lease: Duration) -> Duration {
    retry.delay_max.saturating_mul(retry.attempts_max).saturating_add(lease)
}

/// Refuses a retention in which a message may come again after its row is gone.
pub(crate) fn check_retention(
    retention: Duration,
    retry: &RetryPolicy,
    lease: Duration,
) -> Result<(), Failure> {
    let horizon = horizon(retry, lease);
    if retention > horizon {
        return Ok(());
    }
    Err(Failure::config(format!(
        "--retention is {} s, and a message may be tried for {} s",
        retention.as_secs(),
        horizon.as_secs()
    ))
    .advice(
        "What comes again after its row in the inbox is gone is acted on again. Choose a longer \
         --retention or fewer --attempts; 35d suits most.",
    ))
}

/// Purges for ever.
pub(crate) async fn keep_house(store: Arc<dyn InboxStore>, retention: Duration) {
    let mut hours = tokio::time::interval(EVERY);
    hours.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        hours.tick().await;
        match purge(&*store, retention).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "purged what the inbox need not remember"),
            Err(error) => tracing::warn!(%error, "the inbox was not purged; next time it is"),
        }
    }
}

/// Purges everything that is due, in bounded batches.
async fn purge(store: &dyn InboxStore, retention: Duration) -> postrider_core::Result<u64> {
    let mut rows = 0;
    loop {
        let purged = store.purge(retention, ROWS_MAX).await?;
        rows += purged;
        if purged < u64::from(ROWS_MAX) {
            return Ok(rows);
        }
        // waits: other writers of the inbox come between two batches
        tokio::time::sleep(BREATH).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    /// R087: a retention below the time for which a message may come again is refused.
    #[test]
    fn a_retention_below_the_redelivery_horizon_is_refused() {
        let retry = RetryPolicy::default();
        let lease = Duration::from_secs(60);
        assert!(check_retention(DAY, &retry, lease).is_ok());
        let horizon = Duration::from_secs(6_060);
        for retention in [Duration::from_secs(1), horizon] {
            let failure = check_retention(retention, &retry, lease).unwrap_err();
            assert!(failure.plain_text().contains("acted on again"));
        }
        let long = RetryPolicy { attempts_max: 1_000, ..retry };
        assert!(check_retention(DAY, &long, lease).is_err(), "a week of tries");
    }
}
