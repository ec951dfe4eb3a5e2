//! Recording outcomes: cursor, waiting events, and the settled log, in one fenced statement.

use postrider_core::Result;
use postrider_core::waiting::Settlement;

use crate::store::{PostgresStore, not_yet};

pub(crate) async fn settle(store: &PostgresStore, settlement: &Settlement) -> Result<()> {
    let _ = store;
    let _ = settlement;
    not_yet("settle").await
}
