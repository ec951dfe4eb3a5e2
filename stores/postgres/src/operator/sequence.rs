//! The sequence, raised where it fell behind the cursors.

use postrider_core::Result;
use postrider_core::operate::Note;

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn repair(_store: &PostgresStore, _note: &Note) -> Result<(u64, u64)> {
    not_yet("repair sequence").await
}
