//! Which cluster and database the store publishes from.

use postrider_core::Result;
use postrider_core::operate::Note;

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn adopt(_store: &PostgresStore, _note: &Note) -> Result<()> {
    not_yet("adopt").await
}
