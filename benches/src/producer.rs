//! An application that commits events at a steady pace, and notes when each commit returned.

use std::path::Path;
use std::time::{Duration, Instant};

use postrider_core::{NewEvent, Payload};
use postrider_sqlite::{Outbox, connect};
use rusqlite::TransactionBehavior;

use crate::backlog::payload;
use crate::measure::now_nanos;
use crate::{Result, enqueue};

/// Events per second.
pub(crate) const RATE: u64 = 200;

/// Commits so many events with the aggregate ids 0, 1, …, and returns when each commit returned, in
/// nanoseconds of the monotonic clock. Calls `announce` before each commit.
pub(crate) fn produce(path: &Path, events: u64, announce: impl Fn()) -> Result<Vec<u64>> {
    let mut connection = connect(path)?;
    let outbox = Outbox::new();
    let start = Instant::now();
    let mut committed = Vec::new();
    for number in 0..events {
        let at = start + Duration::from_micros(number * 1_000_000 / RATE);
        // waits: until it is this event's turn, to keep the pace
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        enqueue::change(&tx, number)?;
        let event = NewEvent::new("order", number.to_string(), "order.placed")
            .payload(Payload::json(payload(number))?, "application/json");
        outbox.enqueue(&tx, &event)?;
        announce();
        tx.commit()?;
        committed.push(now_nanos());
    }
    Ok(committed)
}
