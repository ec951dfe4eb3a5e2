//! The shop: takes orders, and says so in the same transaction.
//!
//! Invariant: the order's row and its event are written by one transaction, or neither is.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::{EventId, NewEvent};
use postrider_sqlite::Outbox;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::demo::plan::{CLERKS, Mishap, Order, Plan, Step};
use crate::failure::Failure;

/// Orders that one clerk works at in turns, so that keys interleave.
const AT_ONCE: usize = 4;

/// How long taking all orders should last, so that faults strike in the middle of it. More orders
/// than fit take as long as they take.
const SPREAD: Duration = Duration::from_millis(4_500);

/// The shop's database and what its clerks have done.
#[derive(Debug)]
pub(crate) struct Shop {
    path: PathBuf,
    gate: Gate,
    done: Mutex<Done>,
}

/// What the clerks did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// Committed transactions.
    pub(crate) committed: u64,
    /// The events of transactions that were rolled back.
    pub(crate) rolled_back: Vec<EventId>,
}

impl Shop {
    /// Opens a shop in a folder, with a fresh database.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn open(path: &Path) -> Result<Shop, Failure> {
        postrider_sqlite::init(path)?;
        let connection = postrider_sqlite::connect(path)?;
        connection.execute_batch(include_str!("../../sql/demo/orders.sql")).map_err(trouble)?;
        Ok(Shop { path: path.to_owned(), gate: Gate::default(), done: Mutex::default() })
    }

    /// Lets the clerks begin with a share of the orders.
    pub(crate) fn admit(&self, share: usize) {
        self.gate.set(Door::Open(share));
    }

    /// Sends the clerks home.
    pub(crate) fn close(&self) {
        self.gate.set(Door::Closed);
    }

    /// What was done so far.
    pub(crate) fn done(&self) -> Done {
        lock(&self.done).clone()
    }

    pub(crate) fn committed(&self) -> u64 {
        lock(&self.done).committed
    }

    /// Takes every order of one clerk. Blocks.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn work(&self, plan: &Plan, clerk: usize) -> Result<(), Failure> {
        let outbox = Outbox::new();
        let mut connection = postrider_sqlite::connect(&self.path)?;
        let mine: Vec<&Order> = plan.orders.iter().skip(clerk).step_by(CLERKS).collect();
        let steps = (mine.len() * Step::ALL.len()).max(1);
        let pause = SPREAD / u32::try_from(steps).unwrap_or(u32::MAX);
        for orders in mine.chunk_by(|a, b| a.share == b.share) {
            for orders in orders.chunks(AT_ONCE) {
                for step in Step::ALL {
                    for order in orders {
                        if !self.gate.pass(order.share, pause) {
                            return Ok(());
                        }
                        self.take(&mut connection, &outbox, order, step)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// One step of one order, and its mishap before it.
    fn take(
        &self,
        connection: &mut Connection,
        outbox: &Outbox,
        order: &Order,
        step: Step,
    ) -> Result<(), Failure> {
        match (order.mishap, step) {
            (Some(Mishap::NeverPlaced), Step::Placed) => {
                return self.write(connection, outbox, order, step, false);
            }
            (Some(Mishap::NeverPlaced), _) => return Ok(()),
            (Some(Mishap::PaidAgain), Step::Paid) => {
                self.write(connection, outbox, order, step, false)?;
            }
            _ => {}
        }
        self.write(connection, outbox, order, step, true)
    }

    fn write(
        &self,
        connection: &mut Connection,
        outbox: &Outbox,
        order: &Order,
        step: Step,
        commits: bool,
    ) -> Result<(), Failure> {
        let event = NewEvent::new("order", &order.id, step.event_type())
            .json(&serde_json::json!({"customer": order.customer, "cents": order.cents}))?;
        let behaviour = TransactionBehavior::Immediate;
        let tx = connection.transaction_with_behavior(behaviour).map_err(trouble)?;
        let id = event.event().id;
        change(&tx, order, step, &id.to_string()).map_err(trouble)?;
        outbox.enqueue(&tx, &event)?;
        if commits {
            tx.commit().map_err(trouble)?;
            lock(&self.done).committed += 1;
        } else {
            tx.rollback().map_err(trouble)?;
            lock(&self.done).rolled_back.push(id);
        }
        Ok(())
    }
}

/// The business change of a step.
fn change(tx: &Transaction<'_>, order: &Order, step: Step, event: &str) -> rusqlite::Result<()> {
    match step {
        Step::Placed => tx.prepare_cached(include_str!("../../sql/demo/place.sql"))?.execute((
            &order.id,
            order.customer.cast_signed(),
            order.cents.cast_signed(),
            event,
        )),
        Step::Paid => {
            tx.prepare_cached(include_str!("../../sql/demo/pay.sql"))?.execute((&order.id, event))
        }
        Step::Shipped => {
            tx.prepare_cached(include_str!("../../sql/demo/ship.sql"))?.execute((&order.id, event))
        }
    }?;
    Ok(())
}

/// What a database of the demo said.
pub(crate) fn trouble(error: rusqlite::Error) -> Failure {
    Failure::plain(format!("a database of the demo: {error}"))
}

/// What keeps the clerks from beginning a share.
#[derive(Debug, Default)]
struct Gate {
    door: Mutex<Door>,
    moved: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Door {
    #[default]
    Shut,
    /// Shares up to this one may begin.
    Open(usize),
    /// Nobody passes any more.
    Closed,
}

impl Gate {
    fn set(&self, door: Door) {
        *lock(&self.door) = door;
        self.moved.notify_all();
    }

    /// Waits for a pause and until the share may begin; whether it may.
    fn pass(&self, share: usize, pause: Duration) -> bool {
        let door = lock(&self.door);
        let waits = |door: &mut Door| *door != Door::Closed;
        let paced = self.moved.wait_timeout_while(door, pause, waits);
        let (door, _) = paced.unwrap_or_else(PoisonError::into_inner);
        let shut = |door: &mut Door| match door {
            Door::Shut => true,
            Door::Open(open) => *open < share,
            Door::Closed => false,
        };
        let door = self.moved.wait_while(door, shut).unwrap_or_else(PoisonError::into_inner);
        *door != Door::Closed
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
