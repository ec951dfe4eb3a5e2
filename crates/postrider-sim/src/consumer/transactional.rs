//! A handler whose effect is in the database: marker, effect, and its own events in one transaction.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::{Accepted, Receiver, Verdict};
use postrider_core::{
    BoxFuture, Clock, Delivery, ErrorKind, Event, EventId, Fault, HandlerName, InboxKey, NewEvent,
    Result,
};
use postrider_testkit::memory::{MemoryStore, MemoryTransaction};

use super::engine::throw;
use super::mood::{Mood, Moods};
use super::shop::Shop;
use crate::weather::Weather;

/// What the events of handlers are called: nobody derives anything from them.
pub const DERIVED: &str = "effect.made";

/// How long a try may work on each half where nothing else bounds it.
const LONG: Duration = Duration::from_secs(10);
/// How long another transaction's marker is waited for, as a database waits for its lock.
const LOCK_TRIES_MAX: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// The receiver of a transactional consumer.
pub(super) struct Transactional {
    pub(super) name: HandlerName,
    pub(super) store: MemoryStore,
    pub(super) shop: Arc<Shop>,
    pub(super) weather: Arc<Weather>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) moods: Moods,
}

impl Transactional {
    /// The marker, once no other transaction is at it.
    async fn accept(&self, event: &Event) -> Result<Option<MemoryTransaction>> {
        let mut tries = 0;
        loop {
            let mut transaction = self.store.begin_on().await?;
            match transaction.accept_on(event, &self.name).await {
                Ok(Accepted::FirstTime) => return Ok(Some(transaction)),
                Ok(Accepted::Duplicate) => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Busy && tries < LOCK_TRIES_MAX => {
                    tries += 1;
                    self.clock.sleep(LOCK_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn act(&self, event: &Event) -> Result<Verdict> {
        let Some(mut transaction) = self.accept(event).await? else {
            return Ok(Verdict::Duplicate);
        };
        let (mood, span) = self.moods.next(event, &self.weather, LONG);
        self.clock.sleep(span).await;
        transaction.effect(event, &self.name)?;
        if self.moods.coin() && &*event.event_type != DERIVED {
            self.derive(&mut transaction, event).await?;
        }
        match mood {
            Mood::Good | Mood::Slow | Mood::Deaf => {}
            Mood::Fails => return Ok(retry("the handler failed")),
            Mood::Panics => throw("the handler panicked"),
            Mood::Hangs => std::future::pending().await,
            Mood::Refuses => {
                return Ok(Verdict::Reject(Fault::new(ErrorKind::Rejected, "never")));
            }
        }
        transaction.commit_on().await?;
        Ok(Verdict::Done)
    }

    /// Enqueues an event of its own in the transaction of its effect.
    async fn derive(&self, transaction: &mut MemoryTransaction, cause: &Event) -> Result<()> {
        let id = EventId::from_u128(self.moods.id());
        self.shop.derives(&InboxKey::of(cause, &self.name)?, id);
        let key = cause.id.as_u128();
        let event = NewEvent::new("effect", key.to_string(), DERIVED).id(id).json(&key)?;
        transaction.enqueue_on(event, 1).await.map(drop)
    }
}

fn retry(why: &str) -> Verdict {
    Verdict::Retry { after: None, fault: Fault::new(ErrorKind::Unavailable, why), tries: None }
}

impl Receiver for Transactional {
    fn handler(&self) -> &HandlerName {
        &self.name
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        _delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(self.act(event))
    }
}
