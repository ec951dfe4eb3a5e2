//! Events of the outbox.

use postrider_core::operate::{EventDetail, EventView, Filter, Listed, PageRequest};
use postrider_core::{EventId, Result};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn list(
    _store: &PostgresStore,
    _filter: &Filter,
    _page: &PageRequest,
) -> Result<Listed<EventView>> {
    not_yet("events").await
}

pub(super) async fn detail(_store: &PostgresStore, _id: EventId) -> Result<EventDetail> {
    not_yet("event").await
}
