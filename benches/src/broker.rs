//! The brokers of the benchmarks: one that acknowledges at once, and a witness around any broker.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_core::{BoxFuture, Broker, BrokerCapabilities, Outcome, Outgoing};
use postrider_local::LocalBroker;
use tokio::sync::watch;

use crate::Result;
use crate::measure::now_nanos;
use crate::options::BrokerKind;

/// Acknowledges whatever comes, at once, and keeps nothing: what is measured then is ours alone.
pub(crate) struct NoopBroker;

impl Broker for NoopBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut can = BrokerCapabilities::least();
        can.prefix_order = true;
        can.batch_rows_max = 1_000;
        can.batch_bytes_max = 4 * 1024 * 1024;
        can
    }

    fn publish<'a>(
        &'a self,
        batch: &'a [Outgoing],
    ) -> BoxFuture<'a, postrider_core::Result<Vec<Outcome>>> {
        Box::pin(async move { Ok(vec![Outcome::Acked; batch.len()]) })
    }
}

/// Acknowledges each event by itself and at once, with so many under way: a webhook without HTTP.
pub(crate) struct OneByOne(pub(crate) u32);

impl Broker for OneByOne {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut can = BrokerCapabilities::least();
        can.batch_rows_max = 1;
        can.batches_in_flight_max = self.0;
        can.endpoint_batches_max = self.0;
        can
    }

    fn publish<'a>(
        &'a self,
        batch: &'a [Outgoing],
    ) -> BoxFuture<'a, postrider_core::Result<Vec<Outcome>>> {
        Box::pin(async move {
            // As a request does, it lets others run before it is answered.
            tokio::task::yield_now().await;
            Ok(vec![Outcome::Acked; batch.len()])
        })
    }
}

/// A broker of the kind, with its file, if it has one, at the path.
pub(crate) fn open(kind: BrokerKind, path: &Path) -> Result<Arc<dyn Broker>> {
    Ok(match kind {
        BrokerKind::Noop => Arc::new(NoopBroker),
        BrokerKind::Local => Arc::new(LocalBroker::open(path)?),
        BrokerKind::Kafka | BrokerKind::Nats => {
            return Err("this is measured with the brokers noop and local only".into());
        }
    })
}

/// Passes everything on, counts what was acknowledged, and notes when each numbered event was.
pub(crate) struct Witness {
    inner: Arc<dyn Broker>,
    /// By the number that is the event's aggregate id: the first acknowledgement, zero for none.
    arrivals: Vec<AtomicU64>,
    acknowledged: watch::Sender<u64>,
}

impl Witness {
    /// A witness of so many events with the aggregate ids 0, 1, ….
    pub(crate) fn new(inner: Arc<dyn Broker>, numbered: usize) -> Witness {
        Witness {
            inner,
            arrivals: (0..numbered).map(|_| AtomicU64::new(0)).collect(),
            acknowledged: watch::Sender::new(0),
        }
    }

    /// How many events were acknowledged so far, as it grows.
    pub(crate) fn acknowledged(&self) -> watch::Receiver<u64> {
        self.acknowledged.subscribe()
    }

    /// When each event was acknowledged.
    pub(crate) fn arrivals(&self) -> Vec<u64> {
        self.arrivals.iter().map(|at| at.load(Ordering::Acquire)).collect()
    }
}

impl Broker for Witness {
    fn capabilities(&self) -> BrokerCapabilities {
        self.inner.capabilities()
    }

    fn publish<'a>(
        &'a self,
        batch: &'a [Outgoing],
    ) -> BoxFuture<'a, postrider_core::Result<Vec<Outcome>>> {
        Box::pin(async move {
            let outcomes = self.inner.publish(batch).await?;
            let now = now_nanos();
            for outgoing in batch {
                let number = outgoing.event.aggregate_id.parse::<usize>().ok();
                if let Some(at) = number.and_then(|number| self.arrivals.get(number)) {
                    _ = at.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
                }
            }
            let acked = outcomes.iter().filter(|outcome| **outcome == Outcome::Acked).count();
            self.acknowledged.send_modify(|all| *all += acked as u64);
            Ok(outcomes)
        })
    }

    fn close(&self) -> BoxFuture<'_, postrider_core::Result<()>> {
        self.inner.close()
    }
}
