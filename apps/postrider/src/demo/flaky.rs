//! A broker that misbehaves as planned: loses an answer, stores a batch twice, refuses one event.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Event, Fault, Outcome, Outgoing,
    Result,
};

use crate::demo::child::say;

/// A broker behind the planned faults. Batches count from 1.
pub(crate) struct Flaky {
    pub(crate) inner: Arc<dyn Broker>,
    /// The batch that is stored while its answer is lost.
    pub(crate) lose: Option<u64>,
    /// The batch that is stored twice.
    pub(crate) double: Option<u64>,
    /// The aggregate's id and the type of the event that is refused for good.
    pub(crate) refuse: Option<(String, String)>,
    pub(crate) batches: AtomicU64,
}

impl Flaky {
    fn is_refused(&self, event: &Event) -> bool {
        self.refuse.as_ref().is_some_and(|(order, event_type)| {
            *event.aggregate_id == **order && *event.event_type == **event_type
        })
    }

    /// Sends what may pass, and answers for the rest: the refused event, and what stands behind it
    /// in its key's order.
    async fn publish_faultily(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        let Some(poison) = batch.iter().position(|one| self.is_refused(&one.event)) else {
            return self.publish_counted(batch).await;
        };
        say("refused");
        let key = batch[poison].event.key_hash();
        let behind = |index: usize| index > poison && batch[index].event.key_hash() == key;
        let passes = |index: usize| index != poison && !behind(index);
        let rest: Vec<Outgoing> =
            (0..batch.len()).filter(|i| passes(*i)).map(|i| batch[i].clone()).collect();
        let mut answers = match rest.is_empty() {
            true => Vec::new(),
            false => self.publish_counted(&rest).await?,
        }
        .into_iter();
        let answer = |index: usize| match index {
            index if index == poison => {
                Outcome::Rejected(Fault::new(ErrorKind::Rejected, "no such payment method"))
            }
            index if behind(index) => Outcome::Skipped,
            _ => answers.next().expect("invariant: one answer for each event that was sent"),
        };
        Ok((0..batch.len()).map(answer).collect())
    }

    async fn publish_counted(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        let number = 1 + self.batches.fetch_add(1, Ordering::Relaxed);
        let answers = self.inner.publish(batch).await?;
        if self.double == Some(number) {
            self.inner.publish(batch).await?;
            say(&format!("doubled {}", batch.len()));
        }
        if self.lose == Some(number) {
            say(&format!("lost {}", batch.len()));
            return Err(Error::new(ErrorKind::Timeout, "publish").message("the answer was lost"));
        }
        Ok(answers)
    }
}

impl Broker for Flaky {
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
