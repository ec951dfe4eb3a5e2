//! Reading what was committed: the difference of two snapshots.

use postrider_core::Result;
use postrider_core::source::{FetchRequest, Page};

use crate::store::{PostgresStore, not_yet};

pub(crate) async fn fetch(store: &PostgresStore, request: &FetchRequest) -> Result<Page> {
    let _ = store;
    let _ = request;
    not_yet("fetch").await
}
