//! Groups of actions: what one row takes, written together with as many others as a transaction has room for.
//!
//! Invariants: a group is in one transaction, under the lease, and groups go in the order in which they are given; an
//! event that somebody let go meanwhile does not wait again; and an event whose item is gone keeps no other from
//! being written.

use std::collections::VecDeque;

use aws_sdk_dynamodb::types::TransactWriteItem;
use postrider_core::{Error, ErrorKind, Lease, Result};

use crate::collection::single;
use crate::derived;
use crate::record::{DISCARDED_AT, Place};
use crate::settle::fenced_write;
use crate::store::DynamoStore;
use crate::transaction::{ACTIONS_MAX, Cancelled};

/// The actions of a row: first its own, then that on its event's item, if that changes.
pub(crate) struct Group {
    pub(crate) seq: u64,
    pub(crate) place: Place,
    pub(crate) actions: Vec<TransactWriteItem>,
}

/// What a settlement has written so far.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Whether anything of what waits was written.
    pub(crate) begun: bool,
}

impl Progress {
    /// What failed, as it is to be told: of a settlement of which a part is written it may not be said that nothing
    /// is. Who hears so carries out no request before it is written whole.
    pub(crate) fn told(&self, error: Error) -> Error {
        if !self.begun || !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Backpressure) {
            return error;
        }
        Error::new(ErrorKind::Timeout, error.operation())
            .message(
                "a part of it is written, and then the table was throttled, or others wrote the same items; the \
                 rest is written when it is sent again",
            )
            .source(error)
    }
}

/// Writes groups. Returns the rows that were not written, because an operator had let their events go.
pub(crate) async fn write(
    store: &DynamoStore,
    lease: &Lease,
    groups: Vec<Group>,
    progress: &mut Progress,
) -> Result<Vec<u64>> {
    let (mut groups, mut let_go) = (VecDeque::from(groups), Vec::new());
    while !groups.is_empty() {
        let mut some = cut(&mut groups);
        // Each round has a group or an action less than the one before.
        while !some.is_empty() {
            let actions = some.iter().flat_map(|group| group.actions.iter().cloned()).collect();
            let Err(error) = fenced_write(store, "settle", lease, actions).await else {
                progress.begun = true;
                break;
            };
            let refused = refused(&error, &some);
            if refused.is_empty() {
                return Err(error);
            }
            for at in refused.into_iter().rev() {
                let group = &mut some[at];
                match single(store.connection(), "settle", &group.place).await? {
                    // Somebody deleted the item by hand: what waits says so when it is due.
                    None if group.actions.len() > 1 => group.actions.truncate(1),
                    Some(item) if group.place.version.is_some() && group.actions.len() > 1 => {
                        match derived::is_row_left(store, group, &item).await? {
                            true => group.actions.truncate(1),
                            false => let_go.push(some.remove(at).seq),
                        }
                    }
                    Some(item) if item.contains_key(DISCARDED_AT) => {
                        let_go.push(some.remove(at).seq);
                    }
                    _ => return Err(error),
                }
            }
        }
    }
    Ok(let_go)
}

/// Takes as many groups as a transaction takes; its last action is the lease.
fn cut(groups: &mut VecDeque<Group>) -> Vec<Group> {
    let (mut some, mut actions) = (Vec::new(), 1);
    while let Some(next) = groups.pop_front_if(|next| actions + next.actions.len() <= ACTIONS_MAX) {
        actions += next.actions.len();
        some.push(next);
    }
    some
}

/// Which groups have an action whose condition does not hold, in ascending order.
fn refused(error: &Error, groups: &[Group]) -> Vec<usize> {
    let Some(told) = Cancelled::of(error) else { return Vec::new() };
    let of =
        groups.iter().enumerate().flat_map(|(at, group)| group.actions.iter().map(move |_| at));
    let of: Vec<usize> = of.collect();
    let mut refused: Vec<usize> =
        told.conditions().filter_map(|action| of.get(action).copied()).collect();
    refused.dedup();
    refused
}
