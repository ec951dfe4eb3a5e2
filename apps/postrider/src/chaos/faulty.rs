//! A broker behind a switch: it loses the answer to what it stored, refuses one order, or is away.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Fault, Outcome, Outgoing, Result,
};

/// What is wrong with it now.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    lose_next: AtomicBool,
    away: AtomicBool,
    refused: Mutex<Option<String>>,
    /// Calls that found it away.
    missed: AtomicU64,
}

impl Faults {
    /// The next batch is stored, and its answer is lost.
    pub(crate) fn lose_next_answer(&self) {
        self.lose_next.store(true, Ordering::Relaxed);
    }

    /// Whether the answer that was to be lost was lost.
    pub(crate) fn answer_was_lost(&self) -> bool {
        !self.lose_next.load(Ordering::Relaxed)
    }

    /// It takes nothing, or takes everything again.
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// How often somebody called while it was away.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// It refuses the events of an order for good; of none, if that is gone.
    pub(crate) fn refuse(&self, order: Option<&str>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = order.map(str::to_owned);
    }

    fn is_refused(&self, order: &str) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.as_deref() == Some(order)
    }
}

/// A broker with faults.
pub(crate) struct Faulty {
    inner: Arc<dyn Broker>,
    faults: Arc<Faults>,
}

impl Faulty {
    /// A broker, and the switch of its faults.
    pub(crate) fn of(inner: Arc<dyn Broker>) -> (Arc<dyn Broker>, Arc<Faults>) {
        let faults = Arc::new(Faults::default());
        (Arc::new(Faulty { inner, faults: Arc::clone(&faults) }), faults)
    }

    async fn publish_faultily(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        if self.faults.away.load(Ordering::Relaxed) {
            self.faults.missed.fetch_add(1, Ordering::Relaxed);
            return Err(Error::new(ErrorKind::Unavailable, "publish")
                .message("the broker is away; nothing was taken"));
        }
        let (mut passing, mut stopped) = (Vec::new(), Vec::new());
        for one in batch {
            let refused = self.faults.is_refused(&one.event.aggregate_id);
            // What stands behind a refused event of its key is not tried.
            match refused {
                true => stopped.push(one.event.id),
                false => passing.push(one.clone()),
            }
        }
        let mut answers = match passing.is_empty() {
            true => Vec::new(),
            false => self.inner.publish(&passing).await?,
        }
        .into_iter();
        if !passing.is_empty() && self.faults.lose_next.swap(false, Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Timeout, "publish").message("the answer was lost"));
        }
        let answer = |one: &Outgoing| match stopped.iter().position(|id| *id == one.event.id) {
            Some(0) => Outcome::Rejected(Fault::new(ErrorKind::Rejected, "no such currency")),
            Some(_) => Outcome::Skipped,
            None => answers.next().expect("invariant: one answer for each event that was sent"),
        };
        Ok(batch.iter().map(answer).collect())
    }
}

impl Broker for Faulty {
    fn capabilities(&self) -> BrokerCapabilities {
        self.inner.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(self.publish_faultily(batch))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}
