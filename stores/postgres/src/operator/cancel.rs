//! Scheduled events, taken back before they enter the outbox.

use postrider_core::operate::{Cancelled, Note};
use postrider_core::{EventId, Result};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn cancel(
    _store: &PostgresStore,
    _id: EventId,
    _note: &Note,
) -> Result<Cancelled> {
    not_yet("cancel").await
}
