//! The fence of a write that waits are changed by: a lease that stands, and no destination removed since it was seen to.
//!
//! A settlement reads the definitions once, and writes for some time after. A removal that commits in between has to find
//! what is written then, or to keep it from being written. So whoever writes reads the lease item *before* the definitions,
//! and has as the condition of each write, beside owner and token, which removal the item had been told of last. A removal
//! changes the definitions, tells each partition's lease item, and looks at the rows there, in this order. Invariant: **a row
//! that is written by somebody who has not heard of a removal is there before the removal looks**, or is refused. The
//! condition is on an item that the write names anyway, so it costs nothing.

use aws_sdk_dynamodb::types::{ConditionCheck, TransactWriteItem};
use postrider_core::{Error, ErrorKind, Lease, PartitionId, Result};

use crate::connection::{Connection, call};
use crate::control::{CONTROL, key, lease_sk};
use crate::item::{n, s};
use crate::lease;
use crate::tables::built;
use crate::transaction::{Cancelled, Patience, check, send_patiently};
use crate::watch::LeaseItem;

/// Of a lease item: the newest version of the definitions by which it was told of a removal.
pub(crate) const REMOVALS: &str = "removals";

/// That it was not told of this removal, nor of a newer one: who read it since has read the definitions without both.
const UNTOLD: &str =
    "attribute_exists(pk) AND (attribute_not_exists(#removals) OR #removals < :since)";

/// What a write depends on: a lease, as its item was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence<'a> {
    pub(crate) lease: &'a Lease,
    removals: u64,
}

impl<'a> Fence<'a> {
    /// The fence of a lease, as its item was read before the definitions were.
    pub(crate) fn of(lease: &'a Lease, item: &LeaseItem) -> Fence<'a> {
        Fence { lease, removals: item.removals }
    }

    /// Its condition.
    fn standing(&self, table: &str) -> Result<TransactWriteItem> {
        let told = match self.removals {
            0 => "attribute_not_exists(#removals)",
            _ => "#removals = :removals",
        };
        let mut check = ConditionCheck::builder()
            .table_name(table)
            .set_key(Some(key(CONTROL, &lease_sk(self.lease.partition))))
            .condition_expression(format!("#owner = :owner AND #token = :token AND {told}"))
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_names("#token", "token")
            .expression_attribute_names("#removals", REMOVALS)
            .expression_attribute_values(":owner", s(self.lease.owner.as_str()))
            .expression_attribute_values(":token", n(self.lease.token));
        if self.removals > 0 {
            check = check.expression_attribute_values(":removals", n(self.removals));
        }
        Ok(TransactWriteItem::builder().condition_check(built(check.build())?).build())
    }

    /// Writes a transaction under it.
    ///
    /// # Errors
    /// `Fenced` if the lease does not stand; `Busy` if a destination was removed since: what was asked for is then asked for
    /// again, and reads anew what there is. Nothing was written.
    pub(crate) async fn write(
        &self,
        connection: &Connection,
        operation: &'static str,
        mut actions: Vec<TransactWriteItem>,
    ) -> Result<()> {
        let table = &connection.names().store;
        let last = actions.len();
        actions.push(self.standing(table)?);
        debug_assert!(check(&actions).is_ok(), "groups are cut to the limits");
        match send_patiently(connection, operation, table, &actions).await {
            Err(error)
                if Cancelled::of(&error)
                    .is_some_and(|told| told.conditions().any(|at| at == last)) =>
            {
                // It may stand, and have been told of a removal.
                lease::check(connection, operation, self.lease).await?;
                Err(Error::new(ErrorKind::Busy, operation)
                    .message(
                        "a destination was removed meanwhile; nothing of it was written: it is tried again with the \
                         destinations that there are",
                    )
                    .context("partition", self.lease.partition))
            }
            other => other,
        }
    }
}

/// Tells a partition that a destination was removed, as of a version of the definitions: whoever read them before, writes
/// nothing there any more. One that nobody ever had has no rows. Said again it changes nothing, so that many who finish a
/// removal do not refuse the owners again and again.
pub(crate) async fn tell(
    connection: &Connection,
    partition: PartitionId,
    since: u64,
) -> Result<()> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let mut patience = Patience::new();
    loop {
        let update = client
            .update_item()
            .table_name(table)
            .set_key(Some(key(CONTROL, &lease_sk(partition))))
            .update_expression("SET #removals = :since")
            .condition_expression(UNTOLD)
            .expression_attribute_names("#removals", REMOVALS)
            .expression_attribute_values(":since", n(since));
        match call("apply", table, update.send()).await {
            Err(error) if error.kind() == ErrorKind::Conflict => return Ok(()),
            // A transaction under this lease is under way.
            Err(error) if error.kind() == ErrorKind::Busy => patience.pause(error).await?,
            other => return other.map(drop),
        }
    }
}
