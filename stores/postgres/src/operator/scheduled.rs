//! Scheduled events: next due first.

use postrider_core::Result;
use postrider_core::operate::{Filter, Listed, PageRequest, ScheduledView};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn list(
    _store: &PostgresStore,
    _filter: &Filter,
    _page: &PageRequest,
) -> Result<Listed<ScheduledView>> {
    not_yet("scheduled").await
}
