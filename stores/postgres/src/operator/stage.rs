//! Events staged in one transaction of their own.

use postrider_core::{EventId, NewEvent, Result};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn stage(_store: &PostgresStore, _events: &[NewEvent]) -> Result<Vec<EventId>> {
    not_yet("stage").await
}
