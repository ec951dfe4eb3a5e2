//! Brokers with one flaw each: the suite's case for it must fail on them.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::subscription::SubscriptionCapabilities;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Delivery, Event, EventId, Fault, Outcome, Outgoing,
    Result, Subscription,
};
use postrider_testkit::memory::{MemoryBroker, MemoryClock};
use postrider_testkit::suite::{BrokerHarness, broker};

use crate::harness::PrefixBroker;
use crate::{fails, passes};

const DROPS_THE_REST: u8 = 0;
const REVERSES: u8 = 1;
const FORGETS_ON_RESTART: u8 = 2;
const ACKS_A_LOST_ANSWER: u8 = 3;
const TAKES_STALE_RECEIPTS: u8 = 4;
const SENDS_AFTER_CLOSE: u8 = 5;
const IGNORES_DELAYS: u8 = 6;
const IGNORES_EXTENSIONS: u8 = 7;
const DELIVERS_TWICE: u8 = 8;

/// The memory broker with a flaw.
struct Broken<const FLAW: u8> {
    inner: PrefixBroker,
    /// A broker that declares to be durable, and is not.
    volatile: Option<(MemoryBroker, MemoryClock)>,
}

impl<const FLAW: u8> BrokerHarness for Broken<FLAW> {
    async fn start() -> Broken<FLAW> {
        let volatile = (FLAW == FORGETS_ON_RESTART).then(|| {
            let clock = MemoryClock::new();
            let capabilities = BrokerCapabilities::least();
            let broker = MemoryBroker::with(clock.clone(), capabilities, 1024);
            (broker, clock)
        });
        Broken { inner: PrefixBroker::start().await, volatile }
    }

    fn broker(&self) -> Arc<dyn Broker> {
        let inner: Arc<dyn Broker> = match &self.volatile {
            Some((broker, _)) => Arc::new(broker.clone()),
            None => self.inner.broker(),
        };
        Arc::new(BrokenBroker::<FLAW>(inner))
    }

    fn received<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Vec<Arc<Event>>> {
        match &self.volatile {
            Some((broker, _)) => Box::pin(async { broker.received(topic) }),
            None => self.inner.received(topic),
        }
    }

    fn subscribe<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Option<Arc<dyn Subscription>>> {
        Box::pin(async {
            let inner = self.inner.subscribe(topic, group).await?;
            Some(Arc::new(BrokenSubscription::<FLAW>::new(inner)) as Arc<dyn Subscription>)
        })
    }

    fn restart(&mut self) -> BoxFuture<'_, bool> {
        match &self.volatile {
            Some((broker, _)) => {
                broker.restart();
                Box::pin(async { true })
            }
            None => self.inner.restart(),
        }
    }

    fn patience() -> Duration {
        PrefixBroker::patience()
    }

    fn has_virtual_clock() -> bool {
        PrefixBroker::has_virtual_clock()
    }

    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.inner.pass(span)
    }

    fn refuse(&self, id: EventId) -> bool {
        self.inner.refuse(id)
    }

    fn lose_next_answer(&self) -> bool {
        self.inner.lose_next_answer()
    }
}

struct BrokenBroker<const FLAW: u8>(Arc<dyn Broker>);

impl<const FLAW: u8> Broker for BrokenBroker<FLAW> {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.durable = true;
        capabilities
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            match FLAW {
                DROPS_THE_REST => {
                    // It stops at the first refusal and answers for the rest as if it had not.
                    let mut outcomes = Vec::new();
                    let mut refused = false;
                    for out in batch {
                        if refused {
                            outcomes.push(Outcome::Acked);
                            continue;
                        }
                        outcomes.extend(self.0.publish(std::slice::from_ref(out)).await?);
                        refused = outcomes.last() != Some(&Outcome::Acked);
                    }
                    Ok(outcomes)
                }
                REVERSES => {
                    let reversed: Vec<Outgoing> = batch.iter().rev().cloned().collect();
                    let mut outcomes = self.0.publish(&reversed).await?;
                    outcomes.reverse();
                    Ok(outcomes)
                }
                ACKS_A_LOST_ANSWER => match self.0.publish(batch).await {
                    Ok(outcomes) => Ok(outcomes),
                    Err(_) => Ok(vec![Outcome::Acked; batch.len()]),
                },
                _ => self.0.publish(batch).await,
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        if FLAW == SENDS_AFTER_CLOSE {
            return Box::pin(async { Ok(()) });
        }
        self.0.close()
    }
}

struct BrokenSubscription<const FLAW: u8> {
    inner: Arc<dyn Subscription>,
    latest: std::sync::Mutex<Option<Delivery>>,
}

impl<const FLAW: u8> BrokenSubscription<FLAW> {
    fn new(inner: Arc<dyn Subscription>) -> BrokenSubscription<FLAW> {
        BrokenSubscription { inner, latest: std::sync::Mutex::default() }
    }

    /// The delivery to settle: whichever came last, for a broker that does not look at the token.
    fn choose(&self, delivery: &Delivery) -> Delivery {
        let latest = self.latest.lock().unwrap().clone();
        match latest {
            Some(latest) if FLAW == TAKES_STALE_RECEIPTS => latest,
            _ => delivery.clone(),
        }
    }
}

impl<const FLAW: u8> Subscription for BrokenSubscription<FLAW> {
    fn capabilities(&self) -> SubscriptionCapabilities {
        self.inner.capabilities()
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let again = self.latest.lock().unwrap().take_if(|_| FLAW == DELIVERS_TWICE);
            if let Some(again) = again {
                return Ok(vec![again]);
            }
            let deliveries = self.inner.receive(max).await?;
            *self.latest.lock().unwrap() = deliveries.last().cloned();
            Ok(deliveries)
        })
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            match self.inner.ack(&self.choose(delivery)).await {
                // Whoever has it a second time has it for good.
                Err(_) if FLAW == DELIVERS_TWICE => Ok(()),
                outcome => outcome,
            }
        })
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        let delay = if FLAW == IGNORES_DELAYS { Duration::ZERO } else { delay };
        // It counts every try, also somebody else's turn.
        let counted = counted || FLAW == IGNORES_DELAYS;
        Box::pin(async move { self.inner.nack(&self.choose(delivery), delay, counted).await })
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        self.inner.reject(delivery, fault)
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        if FLAW == IGNORES_EXTENSIONS {
            return Box::pin(async { Ok(()) });
        }
        self.inner.extend(delivery, by)
    }
}

/// R057: the flaw that loses the rest of a batch.
#[test]
fn a_broker_that_drops_the_rest_of_a_refused_batch_is_caught() {
    fails(broker::of_a_batch_only_the_refused_event_fails::<Broken<DROPS_THE_REST>>());
    fails(broker::with_prefix_order_a_refusal_stops_its_key::<Broken<DROPS_THE_REST>>());
}

#[test]
fn a_broker_that_reorders_a_batch_is_caught() {
    fails(broker::a_batch_keeps_its_order::<Broken<REVERSES>>());
}

#[test]
fn a_broker_that_is_durable_in_name_only_is_caught() {
    fails(broker::a_restart_keeps_what_was_acknowledged::<Broken<FORGETS_ON_RESTART>>());
}

/// R005: unknown is not published.
#[test]
fn a_broker_that_takes_a_lost_answer_for_an_acknowledgement_is_caught() {
    fails(broker::a_lost_answer_is_an_error_and_the_event_is_there::<Broken<ACKS_A_LOST_ANSWER>>());
}

#[test]
fn a_broker_that_takes_stale_receipts_is_caught() {
    fails(broker::a_stale_receipt_settles_nothing::<Broken<TAKES_STALE_RECEIPTS>>());
}

#[test]
fn a_broker_that_sends_after_it_was_closed_is_caught() {
    fails(broker::a_closed_broker_refuses_cleanly::<Broken<SENDS_AFTER_CLOSE>>());
}

#[test]
fn a_broker_that_ignores_delays_and_counts_everything_is_caught() {
    type Flawed = Broken<IGNORES_DELAYS>;
    fails(broker::a_refused_delivery_comes_again_after_its_delay::<Flawed>());
    fails(broker::somebody_elses_turn_is_not_counted::<Flawed>());
}

/// R081: an extension that is none.
#[test]
fn a_broker_that_ignores_extensions_is_caught() {
    fails(broker::an_extended_delivery_stays_invisible::<Broken<IGNORES_EXTENSIONS>>());
}

/// R036: one delivery for two instances is excused by nothing where time stands still.
#[test]
fn a_broker_that_delivers_twice_is_caught() {
    fails(broker::two_consumers_of_a_group_share::<Broken<DELIVERS_TWICE>>());
    fails(broker::a_key_is_delivered_in_order_across_consumers::<Broken<DELIVERS_TWICE>>());
}

/// The harness itself is sound: what a flaw does not concern passes.
#[test]
fn what_a_flaw_does_not_concern_passes() {
    passes(broker::a_batch_keeps_its_order::<Broken<DROPS_THE_REST>>());
    passes(broker::concurrent_publishes_lose_nothing::<Broken<FORGETS_ON_RESTART>>());
    passes(broker::what_is_not_settled_comes_again::<Broken<TAKES_STALE_RECEIPTS>>());
    passes(broker::a_stale_receipt_settles_nothing::<Broken<SENDS_AFTER_CLOSE>>());
}
