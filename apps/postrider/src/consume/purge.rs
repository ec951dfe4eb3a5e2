//! Housekeeping of the inbox: rows that were processed longer ago than the retention go, and stored results sooner,
//! if that is wanted.
//!
//! Invariant: a row that a redelivery may still ask for stays.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{BoxFuture, InboxStore, RetryPolicy};
use postrider_postgres::PostgresStore;

use crate::failure::Failure;
use crate::store::Place;

/// How often it is looked. The first time is at the start, so that a sidecar that is restarted every
/// half hour purges as well.
const EVERY: Duration = Duration::from_secs(3_600);

/// Rows of one transaction: a few milliseconds, for which others wait.
const ROWS_MAX: u32 = 1_000;

/// The pause between two transactions, in which others write.
const BREATH: Duration = Duration::from_millis(20);

/// Below this a configuration is refused, and a flag is warned of. Tries have an end, but what waits uncounted
/// for an endpoint that is away has none, nor has the time for which the sidecar itself may be down.
const SAFE: Duration = Duration::from_secs(14 * 86_400);

/// For how long a message may be tried.
pub(crate) fn horizon(retry: &RetryPolicy, lease: Duration) -> Duration {
    retry.delay_max.saturating_mul(retry.attempts_max).saturating_add(lease)
}

/// For how long this handler relies on its rows, whoever purges the inbox that it shares with others: a message comes again
/// after its tries as well, by a requeue, a rewind, or a broker that forgot its group, and the retention is what was said of
/// that. Where rows go by themselves, each by its own handler's retention, nobody else takes them.
pub(crate) fn relied_on(place: &Place, retention: Duration, horizon: Duration) -> Duration {
    if place.forgets_by_itself() { horizon } else { retention.max(horizon) }
}

/// Refuses a retention in which a message may come again after its row is gone, however well all goes, and
/// warns of one in which that takes an outage.
pub(crate) fn check_retention(
    retention: Duration,
    retry: &RetryPolicy,
    lease: Duration,
) -> Result<(), Failure> {
    let horizon = horizon(retry, lease);
    if retention > horizon {
        if retention < SAFE {
            tracing::warn!(
                "--retention is {} s: where this sidecar or its endpoint is away for longer, what was done before \
                 may be done again; 14d or more is safe",
                retention.as_secs()
            );
        }
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

/// Refuses to keep results for longer than the rows that they go with.
pub(crate) fn check_result_retention(
    results: Option<Duration>,
    retention: Duration,
) -> Result<(), Failure> {
    match results {
        Some(results) if results > retention => Err(Failure::config(format!(
            "--result-retention is {} s, and the inbox forgets after {} s",
            results.as_secs(),
            retention.as_secs()
        ))
        .advice(
            "Stored results go with their rows. Choose a shorter --result-retention, or none.",
        )),
        _ => Ok(()),
    }
}

/// Results that go before their rows do, where the store has them in a table of their own.
pub(crate) struct Results {
    store: PostgresStore,
    retention: Duration,
}

impl Results {
    /// None where nobody asked for it, or the store cannot; the latter is said.
    pub(crate) fn of(
        retention: Option<Duration>,
        store: Option<PostgresStore>,
        place: &Place,
    ) -> Option<Results> {
        let retention = retention?;
        if store.is_none() {
            tracing::warn!(
                "{} has results in the rows of its inbox: they stay for as long as these",
                place.what()
            );
        }
        Some(Results { store: store?, retention })
    }

    /// Deletes all that are due, in bounded batches.
    async fn purge(&self) -> postrider_core::Result<u64> {
        in_batches(|| Box::pin(self.store.purge_results(self.retention, ROWS_MAX))).await
    }
}

/// Purges for ever.
pub(crate) async fn keep_house(
    store: Arc<dyn InboxStore>,
    retention: Duration,
    results: Option<Results>,
) {
    let mut hours = tokio::time::interval(EVERY);
    hours.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        hours.tick().await;
        match in_batches(|| store.purge(retention, ROWS_MAX)).await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "purged what the inbox need not remember"),
            Err(error) => tracing::warn!(%error, "the inbox was not purged; next time it is"),
        }
        let Some(results) = &results else { continue };
        match results.purge().await {
            Ok(0) => {}
            Ok(rows) => tracing::info!(rows, "purged results that the inbox need not keep"),
            Err(error) => tracing::warn!(%error, "results were not purged; next time they are"),
        }
    }
}

/// Purges everything that is due, in bounded batches.
async fn in_batches<'a>(
    purge: impl Fn() -> BoxFuture<'a, postrider_core::Result<u64>>,
) -> postrider_core::Result<u64> {
    let mut rows = 0;
    loop {
        let purged = purge().await?;
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

    /// Results may go sooner than their rows, and never later.
    #[test]
    fn results_that_outlast_their_rows_are_refused() {
        for kept in [None, Some(DAY), Some(DAY * 2)] {
            assert!(check_result_retention(kept, DAY * 2).is_ok());
        }
        let failure = check_result_retention(Some(DAY * 3), DAY * 2).unwrap_err();
        assert!(failure.plain_text().contains("go with their rows"));
    }
}
