//! Erasure of a key's payloads, everywhere in the store.

use postrider_core::Result;
use postrider_core::operate::{Erasure, Note};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn erasable(_store: &PostgresStore, _key: &str) -> Result<Erasure> {
    not_yet("erasable").await
}

pub(super) async fn erase(_store: &PostgresStore, _key: &str, _note: &Note) -> Result<Erasure> {
    not_yet("erase").await
}
