//! The audit table.

use postrider_core::Result;
use postrider_core::operate::{AuditEntry, Listed, PageRequest};

use crate::PostgresStore;
use crate::store::not_yet;

pub(super) async fn list(
    _store: &PostgresStore,
    _page: &PageRequest,
) -> Result<Listed<AuditEntry>> {
    not_yet("audit").await
}
