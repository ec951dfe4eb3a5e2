//! Where a destination stands in a partition, and what waits there.

use postrider_core::source::Loaded;
use postrider_core::{Cursor, DestinationId, Lease, Result};

use crate::store::{PostgresStore, not_yet};

pub(crate) async fn load(
    store: &PostgresStore,
    lease: &Lease,
    destination: &DestinationId,
) -> Result<Loaded> {
    let _ = store;
    let _ = lease;
    let _ = destination;
    not_yet("load").await
}

pub(crate) async fn head(store: &PostgresStore, lease: &Lease) -> Result<Cursor> {
    let _ = store;
    let _ = lease;
    not_yet("head").await
}
