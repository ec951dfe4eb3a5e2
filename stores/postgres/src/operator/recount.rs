//! A recount of the outbox against the settled log.

use postrider_core::operate::Difference;
use postrider_core::{DestinationId, Result};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn recount(
    _store: &PostgresStore,
    _destination: &DestinationId,
) -> Result<Vec<Difference>> {
    not_yet("recount").await
}
