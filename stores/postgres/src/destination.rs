//! Destinations: rows of the store, with a version that grows with every change.

use postrider_core::source::{DefinitionChange, Definitions};
use postrider_core::{Destination, Result};

use crate::store::{PostgresStore, not_yet};

pub(crate) async fn register(store: &PostgresStore, definitions: &[Destination]) -> Result<()> {
    let _ = store;
    let _ = definitions;
    not_yet("register").await
}

pub(crate) async fn apply(store: &PostgresStore, change: &DefinitionChange) -> Result<u64> {
    let _ = store;
    let _ = change;
    not_yet("apply").await
}

pub(crate) async fn list(store: &PostgresStore) -> Result<Definitions> {
    let _ = store;
    not_yet("list").await
}
