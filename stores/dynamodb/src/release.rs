//! Release: leases that are let go, so that nobody waits for their end.
//!
//! Invariant: one heart beats for all leases of a relay, so what the relay does not serve any more is let go
//! by name, until it is.

use postrider_core::source::RenewRequest;
use postrider_core::{ErrorKind, Lease, PartitionId, Result};

use crate::connection::{Connection, call};
use crate::control::{CONTROL, key, lease_sk};
use crate::item::{n, s};
use crate::watch::Snapshot;

/// Lets leases go, each by itself. Those that are lost already are let be.
pub(crate) async fn release(connection: &Connection, leases: &[Lease]) -> Result<()> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let mut failed = None;
    for lease in leases {
        let update = client
            .update_item()
            .table_name(table)
            .set_key(Some(key(CONTROL, &lease_sk(lease.partition))))
            .update_expression("REMOVE #owner SET takeovers = :none")
            .condition_expression("#owner = :owner AND #token = :token")
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_names("#token", "token")
            .expression_attribute_values(":owner", s(lease.owner.as_str()))
            .expression_attribute_values(":token", n(lease.token))
            .expression_attribute_values(":none", n(0));
        match call("release", table, update.send()).await {
            Err(error) if error.kind() != ErrorKind::Conflict => failed = Some(error),
            _ => {}
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Lets go of what the store has as the relay's and the relay did not name for a whole lease: a grant whose
/// answer was lost, a release that failed. One heart beats for all leases of a relay, so they would never
/// end, and be served by nobody. What fails is tried again at the next beat.
pub(crate) async fn unnamed(connection: &Connection, snapshot: &Snapshot, request: &RenewRequest) {
    let named =
        |partition: &PartitionId| request.leases.iter().any(|lease| lease.partition == *partition);
    let unnamed: Vec<Lease> = snapshot
        .leases
        .iter()
        .filter(|(partition, item)| {
            item.owner.as_ref() == Some(&request.owner)
                && item.since > request.lease_duration
                && !named(partition)
        })
        .map(|(partition, item)| Lease {
            partition: *partition,
            owner: request.owner.clone(),
            token: item.token,
        })
        .collect();
    if let Err(error) = release(connection, &unnamed).await {
        tracing::warn!(%error, "a lease that nobody serves was not let go; it is tried again");
    }
}
