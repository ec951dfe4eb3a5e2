//! What is old and settled goes, in whole tables where the outbox is partitioned.

use std::sync::Arc;

use postrider_core::source::{RetireRequest, Retired};
use postrider_core::{Event, Result};

use crate::store::{PostgresStore, not_yet};

pub(crate) async fn retirable(
    store: &PostgresStore,
    request: &RetireRequest,
) -> Result<Vec<Arc<Event>>> {
    let _ = store;
    let _ = request;
    not_yet("retirable").await
}

pub(crate) async fn retire(store: &PostgresStore, request: &RetireRequest) -> Result<Retired> {
    let _ = store;
    let _ = request;
    not_yet("retire").await
}
