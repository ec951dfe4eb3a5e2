//! Destinations as operators change them.

use postrider_core::operate::Note;
use postrider_core::source::DefinitionChange;
use postrider_core::{DestinationId, DestinationState, Result};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn apply(
    _store: &PostgresStore,
    _change: &DefinitionChange,
    _note: &Note,
) -> Result<u64> {
    not_yet("apply").await
}

pub(super) async fn rename(
    _store: &PostgresStore,
    _from: &DestinationId,
    _to: &DestinationId,
    _note: &Note,
) -> Result<()> {
    not_yet("rename").await
}

pub(super) async fn set_state(
    _store: &PostgresStore,
    _id: &DestinationId,
    _state: DestinationState,
    _note: &Note,
) -> Result<()> {
    not_yet("set destination").await
}
