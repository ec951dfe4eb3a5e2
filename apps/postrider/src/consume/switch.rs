//! A subscription whose connection can be exchanged while events are in work: what SIGHUP does to a sidecar's
//! credentials.
//!
//! Invariant: a delivery is settled with the connection that it came by, or not at all. The connection before stays
//! until nothing of it is in work or may still be settled: what is in work ends as if nothing had happened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::subscription::{Receipt, SubscriptionCapabilities};
use postrider_core::{BoxFuture, Delivery, Error, ErrorKind, Fault, Result, Subscription};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How much longer than its visibility a delivery is remembered that nobody settles: answers may be late by the time
/// that a broker has for one.
const GRACE: Duration = Duration::from_secs(60);

/// Deliveries after which the forgotten ones are looked for. The engine holds a few hundred at a time.
const LOOK_EVERY: usize = 4_096;

/// A subscription behind a switch.
pub(super) struct Switch {
    state: Mutex<State>,
    /// Another connection is the present one.
    exchanged: Notify,
    /// Something was settled.
    settled: Notify,
    /// What the engine was told at its start. A contract says that it never changes.
    capabilities: SubscriptionCapabilities,
}

struct State {
    present: Arc<dyn Subscription>,
    /// What is in work, by the token that the engine has.
    open: HashMap<u64, Open>,
    drawn: u64,
}

/// A delivery in work.
struct Open {
    by: Arc<dyn Subscription>,
    /// The receipt of that connection.
    receipt: Receipt,
    /// When it is forgotten.
    until: Instant,
}

impl State {
    /// Whether something of a connection may still be settled.
    fn holds(&self, connection: &Arc<dyn Subscription>) -> bool {
        self.open.values().any(|open| Arc::ptr_eq(&open.by, connection))
    }

    fn forget(&mut self) {
        let now = Instant::now();
        self.open.retain(|_, open| open.until > now);
    }
}

impl Switch {
    pub(super) fn new(subscription: Arc<dyn Subscription>) -> Arc<Switch> {
        let capabilities = subscription.capabilities();
        let state = State { present: subscription, open: HashMap::new(), drawn: 0 };
        Arc::new(Switch {
            state: Mutex::new(state),
            exchanged: Notify::new(),
            settled: Notify::new(),
            capabilities,
        })
    }

    /// Receives by another connection from now on. The one before goes when nothing of it is in work any more.
    pub(super) fn exchange(self: &Arc<Switch>, subscription: Arc<dyn Subscription>) {
        let before = std::mem::replace(&mut self.lock().present, subscription);
        self.exchanged.notify_waiters();
        let switch = Arc::clone(self);
        tokio::spawn(async move {
            // A question of its that is open would take the next message, and keep it from those who act. It goes with the
            // connection at the latest, so nothing is lost where this fails.
            _ = before.rest().await;
            switch.keep_while_in_work(&before).await;
        });
    }

    async fn keep_while_in_work(&self, connection: &Arc<dyn Subscription>) {
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            {
                let mut state = self.lock();
                state.forget();
                if !state.holds(connection) {
                    return;
                }
            }
            // What nobody settles is forgotten by the time, which tells nobody.
            _ = tokio::time::timeout(GRACE, settled).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn receive_by_the_present(&self, max: usize) -> Result<Vec<Delivery>> {
        loop {
            let mut exchanged = std::pin::pin!(self.exchanged.notified());
            exchanged.as_mut().enable();
            let present = Arc::clone(&self.lock().present);
            let received = tokio::select! {
                biased;
                received = present.receive(max) => received,
                // What was asked of the connection before comes again.
                () = exchanged => continue,
            };
            return received.map(|received| self.remember(&present, received));
        }
    }

    fn remember(&self, by: &Arc<dyn Subscription>, mut deliveries: Vec<Delivery>) -> Vec<Delivery> {
        let mut state = self.lock();
        if state.open.len() >= LOOK_EVERY {
            state.forget();
        }
        let until = Instant::now() + self.capabilities.visibility + GRACE;
        for delivery in &mut deliveries {
            state.drawn += 1;
            let token = state.drawn;
            let open = Open { by: Arc::clone(by), receipt: delivery.receipt, until };
            state.open.insert(token, open);
            delivery.receipt.token = token;
        }
        deliveries
    }

    /// The connection that a delivery came by, and the delivery as that one knows it.
    fn origin(&self, delivery: &Delivery) -> Result<(Arc<dyn Subscription>, Delivery)> {
        let state = self.lock();
        let open = state.open.get(&delivery.receipt.token).ok_or_else(|| {
            Error::new(ErrorKind::Fenced, "settle delivery")
                .message("the connection that it came by is gone; the event comes again")
        })?;
        let mut known = delivery.clone();
        known.receipt = open.receipt;
        Ok((Arc::clone(&open.by), known))
    }

    /// What was settled is not in work any more; nor is what is somebody else's.
    fn conclude(&self, delivery: &Delivery, settled: Result<()>) -> Result<()> {
        let over = match &settled {
            Ok(()) => true,
            Err(error) => error.kind() == ErrorKind::Fenced,
        };
        if over {
            self.lock().open.remove(&delivery.receipt.token);
            self.settled.notify_waiters();
        }
        settled
    }

    fn prolong(&self, delivery: &Delivery, by: Duration) {
        if let Some(open) = self.lock().open.get_mut(&delivery.receipt.token) {
            open.until = Instant::now() + by.max(self.capabilities.visibility) + GRACE;
        }
    }
}

impl Subscription for Switch {
    fn capabilities(&self) -> SubscriptionCapabilities {
        self.capabilities
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(self.receive_by_the_present(max))
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (by, known) = self.origin(delivery)?;
            self.conclude(delivery, by.ack(&known).await)
        })
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (by, known) = self.origin(delivery)?;
            self.conclude(delivery, by.nack(&known, delay, counted).await)
        })
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (by, known) = self.origin(delivery)?;
            self.conclude(delivery, by.reject(&known, fault).await)
        })
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (connection, known) = self.origin(delivery)?;
            connection.extend(&known, by).await?;
            self.prolong(delivery, by);
            Ok(())
        })
    }

    fn hindrance(&self) -> Option<String> {
        let present = Arc::clone(&self.lock().present);
        present.hindrance()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let present = Arc::clone(&self.lock().present);
            present.close().await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use postrider_core::{Event, EventId};

    /// Delivers one event at a time, each when it is let, and notes what it is told.
    #[derive(Default)]
    struct Door {
        open: Notify,
        acked: Mutex<Vec<Receipt>>,
        rests: AtomicBool,
    }

    /// The receipt of everything that comes through a door.
    const RECEIPT: Receipt = Receipt { message: 7, token: 1 };

    impl Subscription for Door {
        fn capabilities(&self) -> SubscriptionCapabilities {
            SubscriptionCapabilities::least(Duration::from_secs(30))
        }

        fn receive(&self, _: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
            Box::pin(async {
                self.open.notified().await;
                let event = Event::new(EventId::from_u128(1), "order", "1", "order.placed");
                Ok(vec![Delivery::new(Ok(Arc::new(event)), Arc::from("orders"), RECEIPT)])
            })
        }

        fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
            self.acked.lock().unwrap().push(delivery.receipt);
            Box::pin(async { Ok(()) })
        }

        fn nack<'a>(&'a self, _: &'a Delivery, _: Duration, _: bool) -> BoxFuture<'a, Result<()>> {
            Box::pin(async { Ok(()) })
        }

        fn reject<'a>(&'a self, _: &'a Delivery, _: &'a Fault) -> BoxFuture<'a, Result<()>> {
            Box::pin(async { Ok(()) })
        }

        fn extend<'a>(&'a self, _: &'a Delivery, _: Duration) -> BoxFuture<'a, Result<()>> {
            Box::pin(async { Ok(()) })
        }

        fn rest(&self) -> BoxFuture<'_, Result<()>> {
            self.rests.store(true, Ordering::Relaxed);
            Box::pin(async { Ok(()) })
        }
    }

    /// F36: what is in work is settled where it came from, though both connections have given it the same receipt;
    /// what was asked of the one before is asked of the new one; and the one before goes when it has nothing to do.
    #[tokio::test]
    async fn a_delivery_is_settled_with_the_connection_it_came_by() {
        let (old, new) = (Arc::new(Door::default()), Arc::new(Door::default()));
        let gone = Arc::downgrade(&old);
        let switch = Switch::new(Arc::clone(&old) as Arc<dyn Subscription>);
        old.open.notify_one();
        let first = switch.receive(1).await.unwrap().remove(0);
        let waiting = tokio::spawn({
            let switch = Arc::clone(&switch);
            async move { switch.receive(1).await.unwrap().remove(0) }
        });
        tokio::task::yield_now().await;
        switch.exchange(Arc::clone(&new) as Arc<dyn Subscription>);
        new.open.notify_one();
        let second = waiting.await.unwrap();
        assert_eq!(first.receipt.message, second.receipt.message, "the engine knows it again");
        assert_ne!(first.receipt.token, second.receipt.token);
        while !old.rests.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        assert!(!new.rests.load(Ordering::Relaxed));
        switch.extend(&first, Duration::from_secs(30)).await.unwrap();
        switch.ack(&second).await.unwrap();
        assert_eq!(*new.acked.lock().unwrap(), [RECEIPT]);
        assert_eq!(*old.acked.lock().unwrap(), []);
        switch.ack(&first).await.unwrap();
        assert_eq!(*old.acked.lock().unwrap(), [RECEIPT]);
        drop(old);
        while gone.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
        let again = switch.ack(&first).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Fenced, "{again}");
    }

    /// A delivery that nobody settles keeps its connection as long as it may be settled, and no longer.
    #[tokio::test(start_paused = true)]
    async fn what_nobody_settles_is_forgotten() {
        let (old, new) = (Arc::new(Door::default()), Arc::new(Door::default()));
        let gone = Arc::downgrade(&old);
        let switch = Switch::new(Arc::clone(&old) as Arc<dyn Subscription>);
        old.open.notify_one();
        let lost = switch.receive(1).await.unwrap().remove(0);
        drop(old);
        switch.exchange(new as Arc<dyn Subscription>);
        tokio::time::advance(Duration::from_secs(20)).await;
        switch.extend(&lost, Duration::from_secs(30)).await.unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(gone.upgrade().is_some(), "it may still be settled");
        tokio::time::advance(Duration::from_secs(120)).await;
        while gone.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(switch.ack(&lost).await.unwrap_err().kind(), ErrorKind::Fenced);
    }
}
