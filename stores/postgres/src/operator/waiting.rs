//! Waiting events, in the order (destination, seq).

use postrider_core::Result;
use postrider_core::operate::{Filter, Listed, PageRequest, WaitingView};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn list(
    _store: &PostgresStore,
    _filter: &Filter,
    _page: &PageRequest,
) -> Result<Listed<WaitingView>> {
    not_yet("waiting").await
}
