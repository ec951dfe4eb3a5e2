//! A broker that can be exchanged while the relay runs: what SIGHUP does to addresses and secrets.
//!
//! Invariant: a publish that has begun ends on the broker it began with. The new one takes what
//! begins later, so nothing in flight is lost and nothing is sent twice because of a reload.

use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::{BoxFuture, Broker, BrokerCapabilities, Outcome, Outgoing, Result};

/// A broker behind a switch.
pub(crate) struct Switch {
    present: RwLock<Arc<dyn Broker>>,
    /// What the relay was told at its start. A contract says that it never changes: new limits of
    /// concurrency count from the next start.
    capabilities: BrokerCapabilities,
    /// A reload does not change the kind.
    system: &'static str,
}

impl Switch {
    pub(crate) fn new(broker: Arc<dyn Broker>) -> Switch {
        let (capabilities, system) = (broker.capabilities(), broker.system());
        Switch { present: RwLock::new(broker), capabilities, system }
    }

    /// Puts another broker of the same kind in its place, and returns the one before, to be closed
    /// when nothing of it is under way.
    pub(crate) fn exchange(&self, broker: Arc<dyn Broker>) -> Arc<dyn Broker> {
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *present, broker)
    }

    fn present(&self) -> Arc<dyn Broker> {
        Arc::clone(&*self.present.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Broker for Switch {
    fn capabilities(&self) -> BrokerCapabilities {
        self.capabilities
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        let broker = self.present();
        Box::pin(async move { broker.publish(batch).await })
    }

    fn system(&self) -> &'static str {
        self.system
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        let broker = self.present();
        Box::pin(async move { broker.close().await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Event, EventId, Format, Marks};
    use tokio::sync::Notify;

    /// Acknowledges when it is let, and says how often it was called.
    #[derive(Default)]
    struct Gate {
        calls: std::sync::atomic::AtomicU32,
        open: Notify,
    }

    impl Broker for Gate {
        fn capabilities(&self) -> BrokerCapabilities {
            BrokerCapabilities::least()
        }

        fn system(&self) -> &'static str {
            "gate"
        }

        fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
            self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Box::pin(async move {
                self.open.notified().await;
                Ok(vec![Outcome::Acked; batch.len()])
            })
        }
    }

    fn outgoing() -> Outgoing {
        Outgoing {
            event: Arc::new(Event::new(EventId::from_u128(1), "order", "1", "order.placed")),
            topic: Arc::from("t"),
            format: Format::Structured,
            layout: None,
            marks: Marks::default(),
            attempt: 1,
        }
    }

    /// F36: what has begun ends where it began; what begins later goes to the new broker.
    #[tokio::test]
    async fn a_reload_loses_nothing_that_is_in_flight() {
        let (old, new) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
        let switch = Arc::new(Switch::new(Arc::clone(&old) as Arc<dyn Broker>));
        let begun = tokio::spawn({
            let switch = Arc::clone(&switch);
            async move { switch.publish(&[outgoing()]).await }
        });
        while old.calls.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        switch.exchange(Arc::clone(&new) as Arc<dyn Broker>);
        new.open.notify_one();
        assert_eq!(switch.publish(&[outgoing()]).await.unwrap(), [Outcome::Acked]);
        assert!(!begun.is_finished());
        old.open.notify_one();
        assert_eq!(begun.await.unwrap().unwrap(), [Outcome::Acked]);
        let calls = |gate: &Gate| gate.calls.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((calls(&old), calls(&new)), (1, 1));
    }

    /// Traces and metrics say what stands behind the switch.
    #[test]
    fn a_switch_is_what_stands_behind_it() {
        assert_eq!(Switch::new(Arc::new(Gate::default())).system(), "gate");
    }
}
