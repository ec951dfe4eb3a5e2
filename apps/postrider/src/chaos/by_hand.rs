//! The wrong ways' parts: an outbox with a flag, a list of what was seen, and a consumer without an inbox.
//! Each is what people really write, and no worse.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Broker as _, Delivery, Event, EventId, Outcome, Outgoing, Subscription};
use postrider_local::{LocalBroker, LocalSubscription, SubscribeOptions};
use rusqlite::Connection;

use crate::chaos::bank::Bank;
use crate::chaos::queue::Queue;
use crate::chaos::scene::{PATIENCE, TOPIC};
use crate::failure::Failure;

/// How long an empty queue is watched before it counts as empty.
const IDLE: Duration = Duration::from_millis(500);

/// The two tables.
pub(crate) struct ByHand {
    connection: Connection,
}

impl ByHand {
    /// Opens the tables in a file of their own.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn open(path: &Path) -> Result<ByHand, Failure> {
        let connection = postrider_sqlite::connect(path)?;
        connection.execute_batch(include_str!("../../sql/chaos/by_hand.sql")).map_err(trouble)?;
        Ok(ByHand { connection })
    }

    /// Writes an order that is to be sent.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn write(&self, order: &str) -> Result<(), Failure> {
        let sql = include_str!("../../sql/chaos/by_hand_write.sql");
        self.connection.execute(sql, [order]).map(drop).map_err(trouble)
    }

    /// What is not marked as sent, oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn unsent(&self) -> Result<Vec<(i64, String)>, Failure> {
        let sql = include_str!("../../sql/chaos/by_hand_unsent.sql");
        let mut statement = self.connection.prepare(sql).map_err(trouble)?;
        let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)));
        rows.and_then(Iterator::collect).map_err(trouble)
    }

    /// Marks one as sent.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn mark(&self, number: i64) -> Result<(), Failure> {
        let sql = include_str!("../../sql/chaos/by_hand_mark.sql");
        self.connection.execute(sql, [number]).map(drop).map_err(trouble)
    }

    /// Writes an id into the list of what was seen; whether it is new there.
    ///
    /// # Errors
    /// What the database says.
    pub(crate) fn see(&self, id: EventId) -> Result<bool, Failure> {
        let sql = include_str!("../../sql/chaos/by_hand_see.sql");
        let written = self.connection.execute(sql, [id.to_string()]).map_err(trouble)?;
        Ok(written == 1)
    }
}

/// A message about an order, with an id that is minted here and now.
pub(crate) fn message(order: &str) -> Outgoing {
    let mut event = Event::new(EventId::mint(), "order", order, TOPIC);
    event.source = Arc::from("/by-hand");
    Outgoing::new(event.into(), TOPIC)
}

/// Sends one message; whether the broker took it.
///
/// # Errors
/// What the broker says.
pub(crate) async fn send(queue: &LocalBroker, message: Outgoing) -> Result<bool, Failure> {
    let outcomes = queue.publish(&[message]).await?;
    Ok(outcomes == [Outcome::Acked])
}

/// A subscription whose messages come back soon.
///
/// # Errors
/// What the broker says.
pub(crate) async fn subscribe(
    queue: &LocalBroker,
    group: &str,
    visibility: Duration,
) -> Result<LocalSubscription, Failure> {
    let options = SubscribeOptions { visibility, ..SubscribeOptions::default() };
    Ok(queue.subscribe(group, TOPIC, options).await?)
}

/// The next message, or none within a while.
///
/// # Errors
/// What the broker says.
pub(crate) async fn next(
    subscription: &dyn Subscription,
    within: Duration,
) -> Result<Option<(Delivery, Arc<Event>)>, Failure> {
    let Ok(received) = tokio::time::timeout(within, subscription.receive(1)).await else {
        return Ok(None);
    };
    let Some(delivery) = received?.into_iter().next() else { return Ok(None) };
    let event = delivery.event.clone();
    let event = event.map_err(|fault| Failure::plain(format!("no event came: {fault}")))?;
    Ok(Some((delivery, event)))
}

/// How long the next message is waited for, of so many that are known to be there. A service may take longer for one
/// of them than a queue is watched that should be empty.
pub(crate) fn patience(came: usize, known: usize) -> Duration {
    if came < known { PATIENCE } else { IDLE }
}

/// Charges whatever comes until nothing comes any more, and acknowledges it; how many came.
///
/// # Errors
/// What the broker says.
pub(crate) async fn charge_without_inbox(queue: &Queue, bank: &Bank) -> Result<usize, Failure> {
    let known = queue.count().await?;
    let subscription = queue.subscribe(Duration::from_secs(5)).await?;
    let mut came = 0;
    while let Some((delivery, event)) = next(&*subscription, patience(came, known)).await? {
        bank.charge_anew(&event.aggregate_id);
        subscription.ack(&delivery).await?;
        came += 1;
    }
    Ok(came)
}

fn trouble(error: rusqlite::Error) -> Failure {
    Failure::plain(format!("the database of the wrong way: {error}"))
}
