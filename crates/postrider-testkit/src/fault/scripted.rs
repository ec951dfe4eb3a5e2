//! Failures that a contract suite asks a real broker for: an event that the broker itself refuses,
//! and an answer that is lost on the way back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Event, EventId, Outcome, Outgoing,
    Payload, Result,
};

use crate::memory::lock;

/// What is to go wrong. Clones are one script: all handles of a case share it.
#[derive(Clone, Debug, Default)]
pub struct SuiteScript {
    refused: Arc<Mutex<HashSet<EventId>>>,
    lose_next: Arc<AtomicBool>,
}

impl SuiteScript {
    /// Refuses an event from now on. Always possible: for `BrokerHarness::refuse`.
    pub fn refuse(&self, id: EventId) -> bool {
        lock(&self.refused).insert(id);
        true
    }

    /// Loses the next answer. Always possible: for `BrokerHarness::lose_next_answer`.
    pub fn lose_next_answer(&self) -> bool {
        self.lose_next.store(true, Ordering::Release);
        true
    }
}

/// A broker that follows the script. A refused event becomes one that cannot be encoded, so that it
/// is the real broker that refuses it and decides about those behind it.
#[derive(Debug)]
pub struct ScriptedBroker<B> {
    broker: B,
    script: SuiteScript,
}

impl<B: Broker> ScriptedBroker<B> {
    /// Puts a broker under the script.
    pub fn new(broker: B, script: &SuiteScript) -> ScriptedBroker<B> {
        ScriptedBroker { broker, script: script.clone() }
    }
}

impl<B: Broker> Broker for ScriptedBroker<B> {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let spoil = |outgoing: &Outgoing| {
                let mut event = Event::clone(&outgoing.event);
                if lock(&self.script.refused).contains(&event.id) {
                    event.payload = Payload::Json(b"{".to_vec().into());
                }
                Outgoing { event: Arc::new(event), ..outgoing.clone() }
            };
            let batch: Vec<_> = batch.iter().map(spoil).collect();
            let outcomes = self.broker.publish(&batch).await?;
            if self.script.lose_next.swap(false, Ordering::AcqRel) {
                return Err(Error::new(ErrorKind::Timeout, "publish").message("no answer came"));
            }
            Ok(outcomes)
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.broker.close()
    }
}
