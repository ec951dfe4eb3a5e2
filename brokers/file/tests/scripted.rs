//! Scripted failures for the contract suite: what the broker itself refuses, and answers that are
//! lost on the way back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Event, EventId, Outcome, Outgoing,
    Payload, Result,
};

/// What is to go wrong. Shared by all handles of a case.
#[derive(Clone, Default)]
pub(crate) struct Script {
    refused: Arc<Mutex<HashSet<EventId>>>,
    lose_next: Arc<AtomicBool>,
}

impl Script {
    pub(crate) fn refuse(&self, id: EventId) -> bool {
        self.refused.lock().unwrap().insert(id)
    }

    pub(crate) fn lose_next_answer(&self) -> bool {
        self.lose_next.store(true, Ordering::Release);
        true
    }
}

/// A broker that follows the script. A refused event becomes one that cannot be encoded, so that it
/// is the real broker that refuses it and decides about those behind it.
pub(crate) struct Scripted<B> {
    pub(crate) broker: B,
    pub(crate) script: Script,
}

impl<B: Broker> Broker for Scripted<B> {
    fn capabilities(&self) -> BrokerCapabilities {
        self.broker.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let spoil = |outgoing: &Outgoing| {
                let mut event = Event::clone(&outgoing.event);
                if self.script.refused.lock().unwrap().contains(&event.id) {
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
