//! A consumer's connection to its broker: it takes time, loses questions and answers, and brings a
//! delivery twice, the second time perhaps to another consumer of the group.
//!
//! A settlement travels on its own: it arrives also when its sender has died or has given up waiting.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use postrider_core::subscription::SubscriptionCapabilities;
use postrider_core::{BoxFuture, Delivery, Error, ErrorKind, Fault, Result, Subscription, Tick};
use postrider_testkit::memory::MemorySubscription;

use crate::dice::Dice;
use crate::exec::{Kernel, ProcessNo};
use crate::mailbox::Mailbox;
use crate::weather::Weather;

/// The first pause between two looks at a broker that has nothing.
const LOOK_MIN: Duration = Duration::from_millis(20);
/// The longest one: what an idle consumer costs a world.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// One consumer's connection.
pub struct Wire {
    memory: Arc<MemorySubscription>,
    kernel: Arc<Kernel>,
    weather: Arc<Weather>,
    /// The process whose tasks carry what is on its way.
    network: ProcessNo,
    /// The network between this consumer and the broker is cut until then, in nanoseconds.
    cut_until: Arc<AtomicU64>,
    echo: Echo,
    dice: Mutex<Dice>,
}

/// What the broker brings once more, to whoever of a group asks next. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Echo(Arc<Mutex<(Vec<Delivery>, Vec<Waker>)>>);

impl Echo {
    fn state(&self) -> MutexGuard<'_, (Vec<Delivery>, Vec<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, delivery: Delivery) {
        let mut state = self.state();
        state.0.push(delivery);
        let wakers = std::mem::take(&mut state.1);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn take(&self) -> Option<Delivery> {
        self.state().0.pop()
    }

    /// Returns when there is something, or when the pause is over; says whether there is something.
    async fn within(&self, mut pause: BoxFuture<'_, ()>) -> bool {
        poll_fn(|context| {
            let mut state = self.state();
            if !state.0.is_empty() {
                return Poll::Ready(true);
            }
            state.1.retain(|waker| !waker.will_wake(context.waker()));
            state.1.push(context.waker().clone());
            drop(state);
            pause.as_mut().poll(context).map(|()| false)
        })
        .await
    }
}

/// What a settlement says.
enum Told {
    Ack,
    Nack { delay: Duration, counted: bool },
    Reject(Fault),
    Extend(Duration),
}

/// What becomes of a question.
struct Fate {
    there: Duration,
    back: Duration,
    lost_there: bool,
    lost_back: bool,
}

impl Wire {
    /// A connection. Who holds `cut_until` can cut it; all of a group have one echo.
    pub fn new(
        memory: MemorySubscription,
        kernel: Arc<Kernel>,
        weather: Arc<Weather>,
        network: ProcessNo,
        cut_until: Arc<AtomicU64>,
        echo: Echo,
        dice: Dice,
    ) -> Wire {
        let (memory, dice) = (Arc::new(memory), Mutex::new(dice));
        Wire { memory, kernel, weather, network, cut_until, echo, dice }
    }

    fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fate(&self) -> Fate {
        let (mut dice, weather) = (self.dice(), &self.weather);
        let dice = &mut *dice;
        let slow = weather.strikes(dice, "wire_slow", |rates| rates.broker_slow);
        let most = if slow { 9_000_000 } else { 5_000 };
        Fate {
            there: Duration::from_micros(dice.between(200, most)),
            back: Duration::from_micros(dice.between(200, most)),
            lost_there: weather.strikes(dice, "wire_lost_there", |rates| rates.broker_lost_there),
            lost_back: weather.strikes(dice, "wire_lost_back", |rates| rates.broker_lost_back),
        }
    }

    fn is_cut(&self) -> bool {
        let cut = self.kernel.now() < Tick(self.cut_until.load(Ordering::Relaxed));
        if cut {
            self.weather.count("wire_cut_felt");
        }
        cut
    }

    /// What there is to deliver now, and what the broker brings once more.
    fn take(&self, max: usize) -> Vec<Delivery> {
        let mut deliveries = self.memory.poll(max);
        let fresh = !deliveries.is_empty();
        if deliveries.len() < max {
            deliveries.extend(self.echo.take());
        }
        let mut dice = self.dice();
        if fresh && self.weather.strikes(&mut dice, "wire_twice", |rates| rates.broker_twice) {
            self.echo.put(dice.pick(&deliveries).clone());
        }
        deliveries
    }

    /// Sends a settlement on its way, and waits for its answer.
    fn tell(&self, delivery: &Delivery, told: Told) -> BoxFuture<'_, Result<()>> {
        let (fate, cut, lost) = (self.fate(), self.is_cut(), Mailbox::default());
        let answer = lost.clone();
        let (kernel, memory) = (Arc::clone(&self.kernel), Arc::clone(&self.memory));
        let delivery = delivery.clone();
        self.kernel.spawn(self.network, async move {
            kernel.sleep(fate.there).await;
            if cut || fate.lost_there {
                lost.put(Err(broken("settle")));
                return;
            }
            let result = match told {
                Told::Ack => memory.ack(&delivery).await,
                Told::Nack { delay, counted } => memory.nack(&delivery, delay, counted).await,
                Told::Reject(fault) => memory.reject(&delivery, &fault).await,
                Told::Extend(by) => memory.extend(&delivery, by).await,
            };
            kernel.sleep(fate.back).await;
            // Without an answer the sender waits until its own deadline.
            if !fate.lost_back {
                lost.put(result);
            }
        });
        Box::pin(poll_fn(move |context| answer.poll(context)))
    }
}

fn broken(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, operation).message("the connection to the broker broke")
}

impl Subscription for Wire {
    fn capabilities(&self) -> SubscriptionCapabilities {
        self.memory.capabilities()
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let (mut pause, mut asked) = (LOOK_MIN, false);
            loop {
                let fate = self.fate();
                // What comes while a question is open answers it at once.
                if !asked {
                    self.kernel.sleep(fate.there).await;
                }
                if self.is_cut() || fate.lost_there {
                    return Err(broken("receive"));
                }
                let deliveries = self.take(max);
                if !deliveries.is_empty() {
                    self.kernel.sleep(fate.back).await;
                    if fate.lost_back {
                        // They are out, and nobody has them.
                        return Err(broken("receive"));
                    }
                    return Ok(deliveries);
                }
                asked = self.echo.within(self.kernel.sleep(pause)).await;
                pause = (pause * 2).min(LOOK_MAX);
            }
        })
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        self.tell(delivery, Told::Ack)
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        self.tell(delivery, Told::Nack { delay, counted })
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        self.tell(delivery, Told::Reject(fault.clone()))
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        self.tell(delivery, Told::Extend(by))
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("memory", &self.memory).finish_non_exhaustive()
    }
}
