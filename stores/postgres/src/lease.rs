//! Who owns a partition, decided by the database's clock in one statement.
//!
//! Invariants: the token grows at every acquisition and never goes back; a write under a lease takes
//! effect only in the statement that locked the lease's row with its owner and token.

use postrider_core::lease::{AcquireRequest, Acquired, Renewed};
use postrider_core::source::RenewRequest;
use postrider_core::{Lease, Result};

use crate::store::{PostgresStore, not_yet};

pub(crate) async fn acquire(store: &PostgresStore, request: &AcquireRequest) -> Result<Acquired> {
    let _ = store;
    let _ = request;
    not_yet("acquire").await
}

pub(crate) async fn renew(store: &PostgresStore, request: &RenewRequest) -> Result<Renewed> {
    let _ = store;
    let _ = request;
    not_yet("renew").await
}

pub(crate) async fn release(store: &PostgresStore, leases: &[Lease]) -> Result<()> {
    let _ = store;
    let _ = leases;
    not_yet("release").await
}
