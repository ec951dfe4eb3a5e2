//! The examination: what will go wrong, and what to do.

use postrider_core::operate::Finding;
use postrider_core::{Result, Timestamp};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn examine(_store: &PostgresStore, _now: Timestamp) -> Result<Vec<Finding>> {
    not_yet("doctor").await
}
