//! A broker that fails as told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, EventId, Fault, KeyHash, Outcome,
    Outgoing, Result,
};

use super::{Gate, Script, TestSignal};
use crate::memory::lock;

/// What one publish does.
#[derive(Clone, Debug)]
pub enum BrokerAction {
    /// As the broker does.
    Pass,
    /// Every event is refused for good.
    Reject,
    /// Every event fails by name, and may be tried again.
    RetryNamed {
        /// The server's wish.
        after: Option<Duration>,
    },
    /// Every event is unroutable.
    Unroutable,
    /// The endpoint says that it is gone.
    Gone,
    /// Nothing is sent; an error that names no event.
    FailBefore(ErrorKind),
    /// Everything is stored, and the answer is lost.
    FailAfter(ErrorKind),
    /// The first so many are stored, then an error that names no event.
    FailAfterFirst(usize, ErrorKind),
    /// Everything is stored twice and acknowledged.
    StoreTwice,
    /// Waits at the gate, then does as the broker does. A caller that gives up there sent nothing.
    Hold(Gate),
    /// Does as the broker does, and then waits at the gate with the answer.
    HoldAnswer(Gate),
}

/// A broker behind scripted faults.
pub struct FaultyBroker {
    inner: Arc<dyn Broker>,
    /// What the next publishes do.
    pub script: Script<BrokerAction>,
    /// Happens whenever a publish was answered.
    pub answered: TestSignal,
    refused: Mutex<BTreeMap<EventId, Outcome>>,
    down: Mutex<BTreeSet<Arc<str>>>,
    gone: Mutex<BTreeSet<Arc<str>>>,
    held: Mutex<BTreeMap<Arc<str>, Gate>>,
    batches: Mutex<Vec<Vec<EventId>>>,
}

impl FaultyBroker {
    /// Wraps a broker. With an empty script nothing changes.
    pub fn new(inner: Arc<dyn Broker>) -> FaultyBroker {
        FaultyBroker {
            inner,
            script: Script::default(),
            answered: TestSignal::default(),
            refused: Mutex::default(),
            down: Mutex::default(),
            gone: Mutex::default(),
            held: Mutex::default(),
            batches: Mutex::default(),
        }
    }

    /// Refuses events by id from now on: the poison.
    pub fn refuse(&self, ids: impl IntoIterator<Item = EventId>) {
        let fault = Fault::new(ErrorKind::Rejected, "refused by the script");
        self.answer(ids, &Outcome::Rejected(fault));
    }

    /// Answers these ids with this outcome from now on, without storing them.
    pub fn answer(&self, ids: impl IntoIterator<Item = EventId>, outcome: &Outcome) {
        let mut refused = lock(&self.refused);
        refused.extend(ids.into_iter().map(|id| (id, outcome.clone())));
    }

    /// Takes events again that were refused by id.
    pub fn relent(&self) {
        lock(&self.refused).clear();
    }

    /// Makes a topic fail every publish with `Unavailable`, naming no event, or work again.
    pub fn set_down(&self, topic: &str, down: bool) {
        let mut topics = lock(&self.down);
        if down {
            topics.insert(Arc::from(topic));
        } else {
            topics.remove(topic);
        }
    }

    /// Makes a topic say that it is gone, like an endpoint that answers 410, or work again.
    pub fn set_gone(&self, topic: &str, gone: bool) {
        let mut topics = lock(&self.gone);
        if gone {
            topics.insert(Arc::from(topic));
        } else {
            topics.remove(topic);
        }
    }

    /// Holds every publish to a topic at a gate from now on, like an endpoint that is slow, or no
    /// more.
    pub fn hold(&self, topic: &str, gate: Option<Gate>) {
        let mut topics = lock(&self.held);
        match gate {
            Some(gate) => _ = topics.insert(Arc::from(topic), gate),
            None => _ = topics.remove(topic),
        }
    }

    /// The ids of every batch that came in, in order, whatever became of it.
    pub fn batches(&self) -> Vec<Vec<EventId>> {
        lock(&self.batches).clone()
    }

    async fn play(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        let all = |outcome: Outcome| Ok(vec![outcome; batch.len()]);
        let fault = |kind| Fault::new(kind, "as the script says");
        match self.script.play().unwrap_or(BrokerAction::Pass) {
            BrokerAction::Pass => self.pass(batch).await,
            BrokerAction::Reject => all(Outcome::Rejected(fault(ErrorKind::Rejected))),
            BrokerAction::RetryNamed { after } => {
                all(Outcome::Retry { fault: fault(ErrorKind::Unavailable), after })
            }
            BrokerAction::Unroutable => all(Outcome::Unroutable(fault(ErrorKind::Unroutable))),
            BrokerAction::Gone => all(Outcome::Gone(fault(ErrorKind::Unroutable))),
            BrokerAction::FailBefore(kind) => Err(failure(kind)),
            BrokerAction::FailAfter(kind) => {
                self.pass(batch).await?;
                Err(failure(kind))
            }
            BrokerAction::FailAfterFirst(count, kind) => {
                self.pass(&batch[..count.min(batch.len())]).await?;
                Err(failure(kind))
            }
            BrokerAction::StoreTwice => {
                self.pass(batch).await?;
                self.pass(batch).await
            }
            BrokerAction::Hold(gate) => {
                gate.pass().await;
                self.pass(batch).await
            }
            BrokerAction::HoldAnswer(gate) => {
                let outcomes = self.pass(batch).await;
                gate.pass().await;
                outcomes
            }
        }
    }

    /// As the broker does, but for the ids and topics that are refused. A broker with prefix order
    /// keeps it: what follows a refused event of its key is not sent.
    async fn pass(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        let gate = batch.first().and_then(|out| lock(&self.held).get(&out.topic).cloned());
        if let Some(gate) = gate {
            gate.pass().await;
        }
        if batch.iter().any(|out| lock(&self.down).contains(&out.topic)) {
            return Err(failure(ErrorKind::Unavailable));
        }
        if batch.iter().any(|out| lock(&self.gone).contains(&out.topic)) {
            let gone = Outcome::Gone(Fault::new(ErrorKind::Unroutable, "410 Gone"));
            return Ok(vec![gone; batch.len()]);
        }
        let refused = lock(&self.refused).clone();
        if !batch.iter().any(|out| refused.contains_key(&out.event.id)) {
            return self.inner.publish(batch).await;
        }
        let prefix_order = self.inner.capabilities().prefix_order;
        let mut stopped: BTreeSet<KeyHash> = BTreeSet::new();
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(batch.len());
        let mut rest = Vec::new();
        for out in batch {
            let key = out.event.key_hash();
            let outcome = match refused.get(&out.event.id) {
                _ if stopped.contains(&key) => Some(Outcome::Skipped),
                refused => refused.cloned(),
            };
            if prefix_order && outcome.is_some() {
                stopped.insert(key);
            }
            if outcome.is_none() {
                rest.push(out.clone());
            }
            outcomes.push(outcome);
        }
        let mut sent = if rest.is_empty() {
            Vec::new().into_iter()
        } else {
            self.inner.publish(&rest).await?.into_iter()
        };
        let merge = |outcome: Option<Outcome>| outcome.or_else(|| sent.next());
        Ok(outcomes.into_iter().filter_map(merge).collect())
    }
}

impl Broker for FaultyBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        self.inner.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let ids = batch.iter().map(|out| out.event.id).collect();
            lock(&self.batches).push(ids);
            let outcome = self.play(batch).await;
            self.answered.happened();
            outcome
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

pub(super) fn failure(kind: ErrorKind) -> Error {
    Error::new(kind, "scripted fault").message("as the script says")
}
