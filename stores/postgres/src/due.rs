//! Waiting events whose turn has come, by the database's clock.

use postrider_core::source::DueRequest;
use postrider_core::waiting::{Counts, Due};
use postrider_core::{DestinationId, Result};

use crate::store::{PostgresStore, not_yet};

pub(crate) async fn due(store: &PostgresStore, request: &DueRequest) -> Result<Due> {
    let _ = store;
    let _ = request;
    not_yet("due").await
}

pub(crate) async fn counts(store: &PostgresStore, destination: &DestinationId) -> Result<Counts> {
    let _ = store;
    let _ = destination;
    not_yet("counts").await
}
