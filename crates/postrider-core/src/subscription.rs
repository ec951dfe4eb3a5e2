//! The consumer's side of a broker.

use std::sync::Arc;
use std::time::Duration;

use crate::inbox::usual_deliveries;
use crate::{BoxFuture, Event, Fault, KeyHash, Marks, Result};

/// A consumer's subscription to a broker. Object-safe.
///
/// **Delivery.** At least once: a delivery that is not acknowledged, refused, or extended within the
/// visibility timeout comes again, to this consumer or another of its group.
/// **Order.** If `key_order` is declared, a key's next event is not delivered, to any instance,
/// before the one before it is settled. Elsewhere the consumer engine keeps a key's order within its
/// process.
/// **Stale receipts.** Settling a delivery whose visibility ended is refused with
/// [`Fenced`](crate::ErrorKind::Fenced) where the broker can tell, and no error where it cannot.
/// **Cancellation.** Dropping `receive` loses nothing: what it took comes again.
pub trait Subscription: Send + Sync {
    /// What this subscription can do. Constant for its lifetime.
    fn capabilities(&self) -> SubscriptionCapabilities;

    /// Waits for at least one delivery, and returns up to `max`. After an error it may return none, as soon as the broker
    /// answers again: who asked knows by it that the broker is well, also where nothing comes for long.
    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>>;

    /// Done: never deliver it again.
    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>>;

    /// Not done: deliver it again after the delay. `counted` says whether the try counts against the
    /// message; one that was merely somebody else's turn does not.
    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>>;

    /// Never deliverable: to the broker's dead letters, with the reason.
    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>>;

    /// Still at work: prolongs the visibility timeout from now.
    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>>;

    /// Whether the broker knows nothing of how far this group has come, and the group would begin with messages older than
    /// `age`: one that is new, that somebody deleted, or whose places the broker has let go. An inbox that remembers for
    /// `age` cannot tell which of those were done, so whoever has done something for this group before does not want them.
    /// Asked before the first [`receive`](Self::receive), and never wrong where it says no. The default says no, for brokers
    /// that let go of no group by themselves.
    ///
    /// # Errors
    /// The broker could not be asked.
    fn begins_before(&self, age: Duration) -> BoxFuture<'_, Result<bool>> {
        let _ = age;
        Box::pin(async { Ok(false) })
    }

    /// What is held back from this group at a broker that answers well, and what to do about it; nothing, where nothing is known
    /// of that. For an operator: such messages are not lost, and [`receive`](Self::receive) tells of nothing meanwhile.
    fn hindrance(&self) -> Option<String> {
        None
    }

    /// Nothing more is asked for, since another connection receives from now on: what came to a question that was left open is
    /// given back, uncounted. What is in work stays ours, and is settled and extended as before. The default does nothing,
    /// for subscriptions that leave no question open.
    fn rest(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Nothing more is received: what came meanwhile and nobody took is given back, uncounted, so that it does not
    /// wait for the end of its visibility. Does nothing where nothing is taken before somebody receives, which is
    /// the default. Without it nothing is lost.
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What a subscription can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscriptionCapabilities {
    /// A key's order holds across the instances of a group.
    pub key_order: bool,
    /// Deliveries say how often they were delivered before.
    pub counts_deliveries: bool,
    /// How long a delivery stays invisible without being extended.
    pub visibility: Duration,
}

impl SubscriptionCapabilities {
    /// A subscription with a visibility timeout and nothing else.
    pub const fn least(visibility: Duration) -> SubscriptionCapabilities {
        SubscriptionCapabilities { key_order: false, counts_deliveries: false, visibility }
    }
}

/// One delivery of an event to a consumer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Delivery {
    /// The event, or why what arrived is none.
    pub event: Result<Arc<Event>, Fault>,
    /// Where it came from.
    pub topic: Arc<str>,
    /// How it is marked.
    pub marks: Marks,
    /// Which delivery this is, from 1; 1 where the broker does not count.
    pub count: u32,
    /// A process that is gone may have begun it before, and `count` would not say so, because it begins anew in each process.
    /// What ends its process is among these.
    pub begun_before: bool,
    /// Whether this consumer has nothing else in work beside it, and begins nothing until it has ended, as a receiver asks for by
    /// [`Verdict::Alone`](crate::inbox::Verdict::Alone). `None` from whoever cannot see to that: nobody is asked for it then.
    /// The engine says so, and no broker.
    pub alone: Option<bool>,
    /// The broker's own handle.
    pub receipt: Receipt,
    /// Where it stands in its broker, if the broker says so: for traces.
    pub origin: Option<Origin>,
}

impl Delivery {
    /// A first delivery.
    pub fn new(event: Result<Arc<Event>, Fault>, topic: Arc<str>, receipt: Receipt) -> Delivery {
        Delivery {
            event,
            topic,
            marks: Marks::default(),
            count: 1,
            begun_before: false,
            alone: None,
            receipt,
            origin: None,
        }
    }

    /// Whether its tries are to be counted in the inbox, where a refusal is due after so many without an end: it came more often
    /// than [usual](crate::inbox::usual_deliveries), or was begun before.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use postrider_core::inbox::DELIVERIES_MAX;
    /// use postrider_core::subscription::{Delivery, Receipt};
    /// use postrider_core::{Event, EventId};
    /// let event = Arc::new(Event::new(EventId::from_u128(7), "order", "42", "order.placed"));
    /// let receipt = Receipt { message: 1, token: 1 };
    /// let mut delivery = Delivery::new(Ok(event), Arc::from("orders"), receipt);
    /// assert!(!delivery.is_suspicious(DELIVERIES_MAX));
    /// delivery.begun_before = true;
    /// assert!(delivery.is_suspicious(DELIVERIES_MAX));
    /// ```
    pub fn is_suspicious(&self, max: u32) -> bool {
        self.begun_before || self.count > usual_deliveries(max)
    }

    /// Where it stands in its broker, for people who look for it there: `PARTITION/OFFSET`, the place in a stream, or
    /// the broker's own number where it says no more.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use postrider_core::subscription::{Delivery, Origin, Receipt};
    /// use postrider_core::{ErrorKind, Fault};
    /// let fault = Fault::new(ErrorKind::Invalid, "no event");
    /// let mut delivery = Delivery::new(Err(fault), Arc::from("orders"), Receipt { message: 5, token: 1 });
    /// assert_eq!(delivery.place(), "5");
    /// let mut origin = Origin::new("kafka");
    /// (origin.partition, origin.offset) = (Some(3), Some(1207));
    /// delivery.origin = Some(origin);
    /// assert_eq!(delivery.place(), "3/1207");
    /// ```
    pub fn place(&self) -> String {
        let known =
            self.origin.as_ref().and_then(|origin| Some((origin.partition, origin.offset?)));
        match known {
            Some((Some(partition), offset)) => format!("{partition}/{offset}"),
            Some((None, offset)) => offset.to_string(),
            None => self.receipt.message.to_string(),
        }
    }

    /// The key's hash; what is no event has the hash of nothing.
    pub fn key_hash(&self) -> KeyHash {
        self.event.as_ref().map_or(KeyHash(0), |event| event.key_hash())
    }
}

/// Where a message stands in its broker: for people who look for it there, never for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// What the broker is, as [`Broker::system`](crate::Broker::system) says it.
    pub system: &'static str,
    /// The consumer group.
    pub group: Option<Arc<str>>,
    /// The partition of the topic, where topics have some.
    pub partition: Option<i32>,
    /// The place in the partition, or in the stream.
    pub offset: Option<i64>,
}

impl Origin {
    /// Somewhere in a broker of this kind.
    pub const fn new(system: &'static str) -> Origin {
        Origin { system, group: None, partition: None, offset: None }
    }
}

/// A broker's handle of one delivery: two numbers whose meaning is the broker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    /// Which message.
    pub message: u64,
    /// Which delivery of it; grows with each, so that a stale one can be refused.
    pub token: u64,
}
