//! A relay's connection to a destination's broker.
//!
//! What is sent travels on its own: it arrives also when its sender has died or has given up waiting,
//! as a packet does. Here it is looked at that nobody sends without a lease (INV-3) or more at once
//! than the broker takes (INV-6).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, EventId, Invariant, Outcome, Outgoing,
    PartitionId, RelayId, Result,
};

use crate::app::short;
use crate::broker::Place;
use crate::shared::Shared;

/// Calls whose deadline has passed go on for as long as the lease lasts: so many times a deadline.
const OVERDUE: u32 = 4;

/// A relay's connection to a place.
#[derive(Debug)]
pub struct Connection {
    place: Arc<Place>,
    capabilities: BrokerCapabilities,
    shared: Arc<Shared>,
    owner: RelayId,
    under_way: Arc<AtomicU32>,
}

/// A call under way, until it is answered or dropped.
struct Flight {
    under_way: Arc<AtomicU32>,
    place: Arc<Place>,
    /// What was sent and is not answered.
    ids: Vec<EventId>,
}

impl Flight {
    /// Its sender hears of it.
    fn land(&mut self, result: &Result<Vec<Outcome>>) {
        self.place.note_failures(&std::mem::take(&mut self.ids), Some(result));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        self.place.note_failures(&self.ids, None);
    }
}

impl Connection {
    /// A connection of a relay.
    pub fn new(place: Arc<Place>, shared: Arc<Shared>, owner: RelayId) -> Connection {
        let capabilities = place.memory.capabilities();
        Connection { place, capabilities, shared, owner, under_way: Arc::default() }
    }

    /// INV-6: neither a batch nor what is under way is larger than the broker takes.
    fn take_off(&self, batch: &[Outgoing]) -> Flight {
        let rows = batch.len();
        let flights = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        let can = &self.capabilities;
        if rows > can.batch_rows_max as usize || flights > OVERDUE * can.batches_in_flight_max {
            let what = format!("{} has {flights} batches under way, one of {rows}", self.owner);
            self.shared.broke(Invariant::Bounded, format!("{what}, where {can:?} is the limit"));
        }
        let ids = batch.iter().map(|out| out.event.id).collect();
        Flight { under_way: Arc::clone(&self.under_way), place: Arc::clone(&self.place), ids }
    }

    /// Nobody starts to send what it has no lease for, by the store's clock.
    fn look_at_leases(&self, batch: &[Outgoing]) {
        let partitions = u64::from(self.shared.scenario.partitions);
        for out in batch.iter().filter(|_| self.shared.leases_stand()) {
            let partition = u16::try_from(out.event.key_hash().0 % partitions).unwrap_or_default();
            let holder = self.shared.store.holder(PartitionId(partition));
            if holder.as_ref() != Some(&self.owner) {
                let (event, owner) = (short(out.event.id), &self.owner);
                let what = format!(
                    "{owner} sends {event} of partition {partition}, which is {holder:?}'s"
                );
                self.shared.broke(Invariant::KeyOrder, what);
            }
        }
    }
}

/// An answer that comes, or does not.
type Slot = Arc<Mutex<(Option<Result<Vec<Outcome>>>, Option<std::task::Waker>)>>;

impl Broker for Connection {
    fn capabilities(&self) -> BrokerCapabilities {
        self.capabilities
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        self.look_at_leases(batch);
        let (place, batch) = (Arc::clone(&self.place), batch.to_vec());
        let slot: Slot = Arc::default();
        let answer = Arc::clone(&slot);
        let (kernel, owner) = (Arc::clone(&self.place.kernel), self.owner.clone());
        let mut flight = self.take_off(&batch);
        kernel.spawn(self.place.network, async move {
            let fate = place.fate(batch.len());
            place.note_tries(&batch, fate.sent);
            place.kernel.sleep(fate.there).await;
            let result = if fate.lost_there {
                Err(Error::new(ErrorKind::Unavailable, "publish").message("the connection broke"))
            } else {
                place.take(&batch, &fate)
            };
            place.kernel.sleep(fate.back).await;
            if fate.lost_back && result.is_ok() {
                place.story.tell(&place.name(), || "loses the answer".to_owned());
                if place.state().dice.chance(5_000) {
                    // The sender waits until its deadline.
                    return;
                }
                let error = Error::new(ErrorKind::Unavailable, "publish");
                give(&slot, Err(error.message("the connection broke before the answer")));
                return;
            }
            place.note_heard(&batch, &result);
            place.note_told(&owner, &batch, &result);
            give(&slot, result);
        });
        Box::pin(std::future::poll_fn(move |context| {
            let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
            match answer.0.take() {
                Some(result) => {
                    flight.land(&result);
                    Poll::Ready(result)
                }
                None => {
                    answer.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }
}

fn give(slot: &Slot, result: Result<Vec<Outcome>>) {
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    slot.0 = Some(result);
    if let Some(waker) = slot.1.take() {
        waker.wake();
    }
}
