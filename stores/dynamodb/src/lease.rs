//! Leases: conditional items, with one heartbeat item for each relay.
//!
//! Invariants: a token grows at every acquisition; a partition is taken from an owner only by a
//! transaction whose condition is that the owner's heart has not beaten since it was first seen so, a
//! whole lease ago, by the taker's own monotonic clock; and when nothing changes, nothing is refused: a
//! renewal is one write, whatever the number of partitions, and one read.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::types::builders::ConditionCheckBuilder;
use aws_sdk_dynamodb::types::{ConditionCheck, TransactWriteItem, Update};
use postrider_core::lease::{AcquireRequest, Acquired, Granted, Renewed};
use postrider_core::source::RenewRequest;
use postrider_core::{Error, ErrorKind, HeldLease, KeyHash, Lease, PartitionId, RelayId, Result};

use crate::connection::{Connection, call};
use crate::control::{CONTROL, key, lease_sk, relay_sk};
use crate::heartbeat::{Beat, announce};
use crate::item::{n, s};
use crate::release;
use crate::store::DynamoStore;
use crate::tables::built;
use crate::transaction::{Cancelled, send_patiently};
use crate::watch::{Heartbeat, LEASE_MS, LeaseItem, Snapshot, millis};

/// How many leases long a heart must have stood still before its item is deleted: nobody waits for it any more.
const GONE_LEASES: u32 = 10;
/// The shortest time before a heartbeat is deleted, whatever its lease.
const GONE_MIN: Duration = Duration::from_secs(60);
/// How many heartbeats one acquisition deletes at most.
const GONE_MAX: usize = 4;

/// What was taken, and what ended the taking early: it says nothing of what was granted before.
pub(crate) struct Taken {
    pub(crate) acquired: Acquired,
    pub(crate) failed: Option<Error>,
}

/// Takes free or expired partitions: of those alone that a passing relay is there for, and of these none beyond the
/// first that it does not get.
///
/// # Errors
/// Whatever the service says before anything is granted. A grant that nobody hears of would be served by nobody.
pub(crate) async fn acquire(
    store: &DynamoStore,
    partitions: u16,
    request: &AcquireRequest,
    passing: Option<&BTreeSet<PartitionId>>,
) -> Result<Taken> {
    let connection = store.connection();
    let beat = Beat {
        owner: &request.owner,
        lease: request.lease_duration,
        current: request.current,
        presence: request.presence.as_ref(),
        passing: passing.is_some(),
    };
    announce(connection, "acquire", &beat).await?;
    let mut snapshot = store.look("acquire").await?;
    let proved = request.dead.as_ref().filter(|dead| snapshot.stands(dead)).map(|dead| &dead.owner);
    let dead = proved.filter(|owner| **owner != request.owner);
    // He gets no share any more.
    if let Some((dead, heart)) = dead.and_then(|it| Some((it, snapshot.relays.remove(it)?))) {
        forget_heart(connection, "acquire", dead, heart.beat).await?;
    }
    let mut acquired = Acquired { census: snapshot.census(), ..Acquired::default() };
    let start = start(partitions, request, passing.is_some());
    let (mut stopped, mut failed) = (false, None);
    for step in 0..partitions {
        let partition = PartitionId((start + step) % partitions);
        if passing.is_some_and(|wanted| !wanted.contains(&partition)) {
            continue;
        }
        let item = snapshot.leases.get(&partition).cloned();
        let seen = See { item, snapshot: &snapshot, dead, request };
        if !stopped
            && acquired.granted.len() < usize::from(request.wanted)
            && !snapshot.paused.contains(&partition)
            && let Some(way) = seen.way()
        {
            match seen.take(connection, partition, way).await {
                Ok(granted) => {
                    stopped |= granted.is_none() && passing.is_some();
                    acquired.granted.extend(granted);
                }
                Err(error) if acquired.granted.is_empty() => return Err(error),
                Err(error) => (stopped, failed) = (true, Some(error)),
            }
        } else {
            stopped |= passing.is_some() && seen.is_waited_for(partition);
            acquired.held.extend(seen.held(partition));
        }
    }
    if let Err(error) = delete_gone(connection, &snapshot).await {
        if acquired.granted.is_empty() {
            return Err(error);
        }
        failed = failed.or(Some(error));
    }
    if let Some(error) = &failed {
        tracing::warn!(%error, "not everything that is free was taken; what was is served, and the rest asked for again");
    }
    acquired.granted.sort_by_key(|granted| granted.lease.partition);
    acquired.held.sort_by_key(|held| held.lease.partition);
    Ok(Taken { acquired, failed })
}

/// Where one begins to take. Relays that stay begin at another partition each, so that those that start together seldom
/// meet. Those in passing go up from the lowest: they let nothing go before they have everything, so two of them that
/// took in different orders would each hold what the other waits for.
fn start(partitions: u16, request: &AcquireRequest, passing: bool) -> u16 {
    if passing {
        return 0;
    }
    let start = KeyHash::of(request.owner.as_str()).0 % u64::from(partitions.max(1));
    u16::try_from(start).expect("invariant: less than a number of 16 bits")
}

/// Deletes heartbeats of relays that are gone and own nothing, so that the control items do not grow with
/// every start of a relay. One that beats after all makes its item anew, and is told what it still owns.
async fn delete_gone(connection: &Connection, snapshot: &Snapshot) -> Result<()> {
    let gone = snapshot.relays.iter().filter(|(relay, heartbeat)| {
        heartbeat.silent > heartbeat.duration.saturating_mul(GONE_LEASES).max(GONE_MIN)
            && !snapshot.owns(relay)
    });
    for (relay, heartbeat) in gone.take(GONE_MAX) {
        forget_heart(connection, "acquire", relay, heartbeat.beat).await?;
    }
    Ok(())
}

/// Takes a relay that owns nothing any more from those that the partitions are shared among, so that nobody
/// leaves it a share for a lease's length. One that goes on beats its heart again.
pub(crate) async fn leave(store: &DynamoStore, relay: &RelayId) -> Result<()> {
    let connection = store.connection();
    let snapshot = store.look("release").await?;
    match snapshot.relays.get(relay) {
        Some(heartbeat) if !snapshot.owns(relay) => {
            forget_heart(connection, "release", relay, heartbeat.beat).await
        }
        _ => Ok(()),
    }
}

/// Deletes a heartbeat, unless it beats.
async fn forget_heart(
    connection: &Connection,
    operation: &'static str,
    relay: &RelayId,
    beat: u64,
) -> Result<()> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let delete = client
        .delete_item()
        .table_name(table)
        .set_key(Some(key(CONTROL, &relay_sk(relay))))
        .condition_expression("beat = :beat")
        .expression_attribute_values(":beat", n(beat));
    match call(operation, table, delete.send()).await {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        other => other.map(drop),
    }
}

/// A partition, as an asker sees it.
struct See<'a> {
    item: Option<LeaseItem>,
    snapshot: &'a Snapshot,
    dead: Option<&'a RelayId>,
    request: &'a AcquireRequest,
}

/// How a partition can be taken.
enum Way<'a> {
    /// Nobody has it.
    Free,
    /// Its owner was silent for its whole lease, at this beat; or has no heartbeat any more.
    Silent(&'a RelayId, Option<u64>),
    /// Its owner is proved dead.
    Dead(&'a RelayId),
}

impl See<'_> {
    fn heartbeat(&self, owner: &RelayId) -> Option<&Heartbeat> {
        self.snapshot.relays.get(owner)
    }

    /// Until the lease ends.
    fn left(&self, owner: &RelayId, item: &LeaseItem) -> Duration {
        match self.heartbeat(owner) {
            Some(heartbeat) => heartbeat.left(),
            None => item.left(self.request.lease_duration),
        }
    }

    fn way(&self) -> Option<Way<'_>> {
        let free_for = self.request.free_for;
        let Some(item) = &self.item else {
            return free_for.is_zero().then_some(Way::Free);
        };
        let Some(owner) = &item.owner else {
            return (item.since >= free_for).then_some(Way::Free);
        };
        if self.dead == Some(owner) {
            return Some(Way::Dead(owner));
        }
        let silent = match self.heartbeat(owner) {
            Some(heartbeat) => heartbeat.silent.saturating_sub(heartbeat.duration),
            None => {
                item.absent.saturating_sub(item.duration.unwrap_or(self.request.lease_duration))
            }
        };
        (self.left(owner, item).is_zero() && silent >= free_for)
            .then(|| Way::Silent(owner, self.heartbeat(owner).map(|heartbeat| heartbeat.beat)))
    }

    /// Whether one in passing waits here, and takes nothing beyond: another one in passing has it, or it cannot be had
    /// yet. What a relay that stays has, or an operator paused, is not waited for.
    fn is_waited_for(&self, partition: PartitionId) -> bool {
        if self.snapshot.paused.contains(&partition) {
            return false;
        }
        match self.item.as_ref().and_then(|item| item.owner.as_ref()) {
            None => true,
            Some(owner) if *owner == self.request.owner => false,
            Some(owner) => self.heartbeat(owner).is_none_or(|heart| heart.passing),
        }
    }

    fn held(&self, partition: PartitionId) -> Option<HeldLease> {
        let item = self.item.as_ref()?;
        let owner = item.owner.clone()?;
        let left = self.left(&owner, item);
        // What is said is the lease as it was asked for; the margin for clocks of other rates comes after.
        let nominal = match self.heartbeat(&owner) {
            Some(heartbeat) => heartbeat.duration.saturating_sub(heartbeat.silent),
            None => left,
        };
        let expires_in = if nominal.is_zero() { left } else { nominal };
        let presence = self.heartbeat(&owner).and_then(|heartbeat| heartbeat.presence.clone());
        let lease = Lease { partition, owner, token: item.token };
        (!expires_in.is_zero()).then_some(HeldLease { lease, expires_in, presence })
    }

    /// Takes the partition, unless somebody was faster, or its owner lives.
    async fn take(
        &self,
        connection: &Connection,
        partition: PartitionId,
        way: Way<'_>,
    ) -> Result<Option<Granted>> {
        let table = &connection.names().store;
        let (token, counted) =
            self.item.as_ref().map_or((0, 0), |item| (item.token, item.takeovers));
        let takeovers = match way {
            Way::Free => 0,
            Way::Silent(..) | Way::Dead(_) => counted.saturating_add(1),
        };
        let mut update = Update::builder()
            .table_name(table)
            .set_key(Some(key(CONTROL, &lease_sk(partition))))
            .update_expression(
                "SET #owner = :owner, #token = :next, takeovers = :takeovers, #lease = :lease",
            )
            .expression_attribute_names("#lease", LEASE_MS)
            .expression_attribute_values(":lease", millis(self.request.lease_duration))
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_names("#token", "token")
            .expression_attribute_values(":owner", s(self.request.owner.as_str()))
            .expression_attribute_values(":next", n(token + 1))
            .expression_attribute_values(":takeovers", n(takeovers));
        let was = match &way {
            Way::Free if self.item.is_none() => "attribute_not_exists(pk)",
            Way::Free => "attribute_not_exists(#owner) AND #token = :token",
            Way::Silent(owner, _) | Way::Dead(owner) => {
                update = update.expression_attribute_values(":was", s(owner.as_str()));
                "#owner = :was AND #token = :token"
            }
        };
        if self.item.is_some() {
            update = update.expression_attribute_values(":token", n(token));
        }
        let update = built(update.condition_expression(was).build())?;
        let mut actions = vec![TransactWriteItem::builder().update(update).build()];
        if let Way::Silent(owner, beat) = &way {
            let silent = still_silent(table, owner, *beat).build();
            actions.push(TransactWriteItem::builder().condition_check(built(silent)?).build());
        }
        match send_patiently(connection, "acquire", table, &actions).await {
            Ok(()) => {}
            Err(error) if Cancelled::of(&error).is_some() => return Ok(None),
            Err(error) => return Err(error),
        }
        let lease = Lease { partition, owner: self.request.owner.clone(), token: token + 1 };
        Ok(Some(Granted { lease, takeovers }))
    }
}

/// The condition that an owner's heart has not beaten since it was seen.
fn still_silent(table: &str, owner: &RelayId, beat: Option<u64>) -> ConditionCheckBuilder {
    let check =
        ConditionCheck::builder().table_name(table).set_key(Some(key(CONTROL, &relay_sk(owner))));
    match beat {
        None => check.condition_expression("attribute_not_exists(pk)"),
        Some(beat) => {
            check.condition_expression("beat = :beat").expression_attribute_values(":beat", n(beat))
        }
    }
}

/// The condition that a lease stands, for every write under it.
pub(crate) fn standing(table: &str, lease: &Lease) -> Result<TransactWriteItem> {
    let check = ConditionCheck::builder()
        .table_name(table)
        .set_key(Some(key(CONTROL, &lease_sk(lease.partition))))
        .condition_expression("#owner = :owner AND #token = :token")
        .expression_attribute_names("#owner", "owner")
        .expression_attribute_names("#token", "token")
        .expression_attribute_values(":owner", s(lease.owner.as_str()))
        .expression_attribute_values(":token", n(lease.token));
    Ok(TransactWriteItem::builder().condition_check(built(check.build())?).build())
}

/// Reads whether a lease stands.
///
/// # Errors
/// `Fenced` if it does not.
pub(crate) async fn check(
    connection: &Connection,
    operation: &'static str,
    lease: &Lease,
) -> Result<LeaseItem> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let get = client
        .get_item()
        .table_name(table)
        .set_key(Some(key(CONTROL, &lease_sk(lease.partition))))
        .consistent_read(true);
    let item = call(operation, table, get.send()).await?.item.unwrap_or_default();
    let item = LeaseItem::of(&item);
    if item.is(lease) { Ok(item) } else { Err(fenced(operation, lease)) }
}

/// The refusal of an owner that is none any more.
pub(crate) fn fenced(operation: &'static str, lease: &Lease) -> Error {
    Error::new(ErrorKind::Fenced, operation)
        .message("the lease was taken over; nothing was written")
        .context("partition", lease.partition)
        .context("token", lease.token)
}

/// Prolongs every lease of a relay by one beat of its heart, and says which still stand.
pub(crate) async fn renew(
    store: &DynamoStore,
    request: &RenewRequest,
    passing: bool,
) -> Result<Renewed> {
    let connection = store.connection();
    let beat = Beat {
        owner: &request.owner,
        lease: request.lease_duration,
        current: request.current,
        presence: None,
        passing,
    };
    announce(connection, "renew", &beat).await?;
    // After the beat: whoever took a partition before it is seen, and nobody takes one on an older beat.
    let snapshot = store.look("renew").await?;
    release::unnamed(connection, &snapshot, request).await;
    let own = |lease: &&Lease| lease.owner == request.owner && snapshot.stands(lease);
    Ok(Renewed {
        kept: request.leases.iter().filter(own).cloned().collect(),
        census: snapshot.census(),
        definitions: snapshot.definitions,
        saves_apart: Duration::ZERO,
    })
}

/// Notes that a cursor moved: what kills processes is not here.
pub(crate) async fn forget_takeovers(connection: &Connection, lease: &Lease) -> Result<()> {
    let table = &connection.names().store;
    let client = connection.tables().await;
    let update = client
        .update_item()
        .table_name(table)
        .set_key(Some(key(CONTROL, &lease_sk(lease.partition))))
        .update_expression("SET takeovers = :none")
        .condition_expression("#token = :token")
        .expression_attribute_names("#token", "token")
        .expression_attribute_values(":token", n(lease.token))
        .expression_attribute_values(":none", n(0));
    match call("settle", table, update.send()).await {
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        other => other.map(drop),
    }
}
