//! The overview: everything at a glance, by the database's clock.

use postrider_core::operate::{BacklogGroup, Overview};
use postrider_core::{DestinationId, Result};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn read(_store: &PostgresStore) -> Result<Overview> {
    not_yet("overview").await
}

pub(super) async fn backlog(
    _store: &PostgresStore,
    _destination: &DestinationId,
    _rows_max: u64,
) -> Result<Vec<BacklogGroup>> {
    not_yet("backlog").await
}
