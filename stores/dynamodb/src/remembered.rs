//! What an owner remembers of what waits, between its calls.
//!
//! Invariants: it is nothing after a write whose outcome is not known; and it is of one token and of one destination of its
//! name, so that rows of one that was removed are not taken for those of the next.

use postrider_core::{DestinationId, Lease, PartitionId, Result};

use crate::store::{DynamoStore, now_ms};
use crate::stored::{self, Stored, rows_pk};
use crate::waiting::Waiting;
use crate::{definitions, removal};

/// What waits of a partition and destination.
#[derive(Debug, Default)]
pub(crate) struct Remembered(Option<(Of, Waiting)>);

/// Under which token it is known, and of which destination of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Of {
    pub(crate) token: u64,
    pub(crate) since: u64,
}

impl Remembered {
    pub(crate) fn take(&mut self, of: Of) -> Option<Waiting> {
        self.0.take().filter(|(known, _)| *known == of).map(|(_, waiting)| waiting)
    }

    /// What is known under a token, of whichever destination of the name that was.
    pub(crate) fn of_token(&self, token: u64) -> Option<(Of, &Waiting)> {
        let known = self.0.as_ref().filter(|(of, _)| of.token == token);
        known.map(|(of, waiting)| (*of, waiting))
    }

    pub(crate) fn put(&mut self, of: Of, waiting: Waiting) {
        self.0 = Some((of, waiting));
    }
}

/// Takes what waits for a destination, as the definitions are now; nothing if it is not there.
pub(crate) async fn take(
    store: &DynamoStore,
    lease: &Lease,
    destination: &DestinationId,
    cell: &mut Remembered,
) -> Result<Option<(Of, Waiting)>> {
    let known = definitions::known(store.connection()).await?;
    let Some(since) = known.since(destination) else {
        *cell = Remembered::default();
        return Ok(None);
    };
    let of = Of { token: lease.token, since };
    let waiting = match cell.take(of) {
        Some(waiting) => waiting,
        None => read(store, lease.partition, destination, since).await?,
    };
    Ok(Some((of, waiting)))
}

/// Reads what waits for one destination of its name, for the owner. What was left behind by one before it is dropped.
pub(crate) async fn read(
    store: &DynamoStore,
    partition: PartitionId,
    destination: &DestinationId,
    since: u64,
) -> Result<Waiting> {
    let mut items = store.rows(&rows_pk(destination, partition)).await?;
    let before = items.len();
    items.retain(|item| stored::since(item) >= since);
    if items.len() < before {
        removal::drop_rows(store, destination, partition, since).await?;
    }
    Ok(Waiting::new(items.iter().filter_map(Stored::of), now_ms()))
}
