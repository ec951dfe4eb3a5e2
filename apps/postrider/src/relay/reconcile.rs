//! Reconcile: now and then, what was committed is compared with what was settled, apart from the
//! relay's own bookkeeping; what is missing is asked for again, late.
//!
//! Invariant: this only asks. The partition's owner sends, in the lanes, as for any operator.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::operate::{Note, RowKey, Submission, Verb};
use postrider_core::{ErrorKind, Operator, Result};
use postrider_relay::Health;
use tokio::sync::watch;

/// Compares for ever, every so often, while this relay owns something.
pub(crate) async fn keep_reconciled(
    operator: Arc<dyn Operator>,
    health: watch::Receiver<Health>,
    every: Duration,
) {
    let mut times = tokio::time::interval(every);
    times.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick comes at once: a relay that has just started has other things to do.
    times.tick().await;
    loop {
        times.tick().await;
        // One of several relays is enough, and it is the one that works.
        if health.borrow().partitions == 0 {
            continue;
        }
        match reconcile(&*operator).await {
            Ok(_) => {}
            // A store that keeps no settled log says so, and will say it again.
            Err(error) if error.kind() == ErrorKind::Invalid => {
                tracing::debug!(%error, "nothing is reconciled");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "reconcile failed; nothing was changed, and it is tried again");
            }
        }
    }
}

/// Compares once, and asks for what is missing. Returns how many events that were.
async fn reconcile(operator: &dyn Operator) -> Result<u64> {
    let overview = operator.overview().await?;
    let mut asked = 0;
    for destination in overview.destinations.iter().map(|view| &view.id) {
        let differences = operator.recount(destination).await?.differences;
        let missing = differences.iter().flat_map(|difference| &difference.requeue);
        let rows: Vec<RowKey> = missing
            .map(|seq| RowKey { destination: destination.clone(), seq: *seq })
            .take(Submission::ROWS_MAX)
            .collect();
        if rows.is_empty() {
            continue;
        }
        asked += rows.len() as u64;
        tracing::error!(
            %destination,
            buckets = differences.len(),
            rows = rows.len(),
            "the settled log does not agree with the outbox; its events are sent again, late"
        );
        let note = Note::new("postrider relay", "reconcile found a difference")?;
        operator.submit(&Submission { verb: Verb::Requeue(rows), note }).await?;
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{
        Broker, Destination, DestinationId, NewEvent, OutboxSource, Outcome, Outgoing, Route,
    };
    use postrider_relay::{Relay, Target};
    use postrider_sqlite::{SqliteStore, init};
    use std::path::Path;
    use std::sync::Mutex;

    /// Remembers what it took, and how it was marked.
    #[derive(Default)]
    struct Taken(Mutex<Vec<(String, bool)>>);

    impl Broker for Taken {
        fn capabilities(&self) -> postrider_core::BrokerCapabilities {
            postrider_core::BrokerCapabilities::least()
        }

        fn publish<'a>(
            &'a self,
            batch: &'a [Outgoing],
        ) -> postrider_core::BoxFuture<'a, Result<Vec<Outcome>>> {
            let taken =
                batch.iter().map(|one| (one.event.aggregate_id.to_string(), one.marks.late));
            self.0.lock().unwrap().extend(taken);
            Box::pin(async { Ok(vec![Outcome::Acked; batch.len()]) })
        }
    }

    async fn deliver(path: &Path, broker: &Arc<Taken>) {
        let id = DestinationId::new("queue").unwrap();
        let route = Route::all("{event_type}".parse().unwrap());
        let relay = Relay::builder(Arc::new(SqliteStore::new(path).unwrap()))
            .destination(
                Destination::new(id, "memory", vec![route]),
                Arc::<Taken>::clone(broker) as Arc<dyn Broker>,
            )
            .target(Target::Once)
            .start()
            .await
            .unwrap();
        relay.stopped().await;
    }

    async fn stage(store: &SqliteStore, orders: std::ops::Range<u32>) {
        let events: Vec<NewEvent> =
            orders.map(|n| NewEvent::new("order", n.to_string(), "order.placed")).collect();
        store.stage(&events).await.unwrap();
    }

    /// R098: somebody moves a cursor past events that were never sent. Reconcile finds them, and the
    /// owner sends them, late; a store that is as it should be is left alone.
    #[tokio::test]
    async fn what_was_never_settled_is_found_and_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        init(&path).unwrap();
        let store = SqliteStore::new(&path).unwrap();
        store.open().await.unwrap();
        let broker = Arc::new(Taken::default());
        stage(&store, 0..10).await;
        deliver(&path, &broker).await;
        assert_eq!(reconcile(&store).await.unwrap(), 0, "nothing is missing");

        stage(&store, 10..13).await;
        let damage = "update outbox_cursor set position = position + 3 where destination = 'queue'";
        rusqlite::Connection::open(&path).unwrap().execute(damage, ()).unwrap();
        deliver(&path, &broker).await;
        assert_eq!(broker.0.lock().unwrap().len(), 10, "the damage hides three events");

        assert!(reconcile(&store).await.unwrap() >= 3);
        deliver(&path, &broker).await;
        let taken = broker.0.lock().unwrap().clone();
        for order in ["10", "11", "12"] {
            assert!(taken.contains(&(order.to_owned(), true)), "{order} is missing in {taken:?}");
        }
    }
}
