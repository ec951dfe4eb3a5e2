//! Partitions as operators pause them.

use postrider_core::operate::Note;
use postrider_core::{PartitionId, Result};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn set(
    _store: &PostgresStore,
    _partition: PartitionId,
    _paused: bool,
    _note: &Note,
) -> Result<()> {
    not_yet("set partition").await
}
