//! Scheduled events enter the outbox when they are due.

use postrider_core::source::Admitted;
use postrider_core::{Lease, Result};

use crate::store::{PostgresStore, not_yet};

pub(crate) async fn admit(store: &PostgresStore, lease: &Lease, rows_max: u32) -> Result<Admitted> {
    let _ = store;
    let _ = lease;
    let _ = rows_max;
    not_yet("admit").await
}
