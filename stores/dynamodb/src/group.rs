//! Groups of actions: what one row takes, written together with as many others as a transaction has room for.
//!
//! Invariants: a group is in one transaction, under the lease, and groups go in the order in which they are given; an
//! event that somebody let go meanwhile does not wait again; an event whose item is gone keeps no other from being
//! written; and no transaction has two actions on one item.

use std::collections::{HashSet, VecDeque};

use aws_sdk_dynamodb::types::TransactWriteItem;
use postrider_core::{Error, ErrorKind, Result};

use crate::collection::single;
use crate::derived;
use crate::fence::Fence;
use crate::record::{DISCARDED_AT, Place};
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
    /// is, whatever the kind. Who hears so carries out no request before it is written whole. Of a lease that is lost,
    /// and of a conflict, nobody concludes that: both are told as they are.
    pub(crate) fn told(&self, error: Error) -> Error {
        if !self.begun || matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Conflict) {
            return error;
        }
        Error::new(ErrorKind::Timeout, error.operation())
            .message(format!(
                "a part of it is written, and then it broke off ({:?}); the rest is written when it is sent again",
                error.kind()
            ))
            .source(error)
    }
}

/// Writes groups. Returns the rows that were not written, because an operator had let their events go.
pub(crate) async fn write(
    store: &DynamoStore,
    fence: &Fence<'_>,
    groups: Vec<Group>,
    progress: &mut Progress,
) -> Result<Vec<u64>> {
    let (mut groups, mut let_go) = (VecDeque::from(groups), Vec::new());
    while !groups.is_empty() {
        let mut some = cut(&mut groups);
        // Each round has a group or an action less than the one before.
        while !some.is_empty() {
            let actions = some.iter().flat_map(|group| group.actions.iter().cloned()).collect();
            let Err(error) = fence.write(store.connection(), "settle", actions).await else {
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

/// Takes as many groups as a transaction takes; its last action is the lease. One whose event's item is another's in
/// it already begins the next: the service refuses two actions on one item, and two versions of a business item have
/// theirs on the same.
fn cut(groups: &mut VecDeque<Group>) -> Vec<Group> {
    let (mut some, mut actions, mut items) = (Vec::new(), 1, HashSet::new());
    while let Some(next) = groups.pop_front_if(|next| {
        let apart = next.actions.len() < 2 || !items.contains(&next.place.whichever());
        apart && actions + next.actions.len() <= ACTIONS_MAX
    }) {
        actions += next.actions.len();
        if next.actions.len() > 1 {
            items.insert(next.place.whichever());
        }
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

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::ConditionCheck;

    use super::*;

    fn group(seq: u64, place: &Place, actions: usize) -> Group {
        let check = ConditionCheck::builder().table_name("t").key("pk", crate::item::s("k"));
        let check = check.condition_expression("attribute_exists(pk)").build().unwrap();
        let action = TransactWriteItem::builder().condition_check(check).build();
        Group { seq, place: place.clone(), actions: vec![action; actions] }
    }

    /// The rows of each transaction.
    fn transactions(groups: Vec<Group>) -> Vec<Vec<u64>> {
        let (mut groups, mut all) = (VecDeque::from(groups), Vec::new());
        while !groups.is_empty() {
            all.push(cut(&mut groups).iter().map(|group| group.seq).collect());
        }
        all
    }

    /// R053: a transaction has no two actions on one item, and no more than the service takes.
    #[test]
    fn versions_of_one_item_are_written_one_transaction_after_the_other() {
        let order = Place::new("order/1", "ORDER");
        let [first, second] = ["1", "2"].map(|version| order.of_version(version));
        let other = Place::new("order/2", "ORDER").of_version("3");
        let groups = vec![group(1, &first, 2), group(2, &other, 2), group(3, &second, 2)];
        assert_eq!(transactions(groups), [vec![1, 2], vec![3]]);
        let rows_alone = vec![group(1, &first, 2), group(3, &second, 1), group(2, &first, 1)];
        assert_eq!(transactions(rows_alone), [[1, 3, 2]]);
        let many: Vec<Group> = (0..60)
            .map(|n| group(n, &Place::new("k", &crate::record::numbered_sk(n)), 2))
            .collect();
        let lengths: Vec<usize> = transactions(many).iter().map(Vec::len).collect();
        assert_eq!(lengths, [49, 11]);
    }

    /// R053: what broke off after a part of it was written never says that nothing was.
    #[test]
    fn what_is_written_halfway_is_told_as_unknown() {
        let failed = |kind| Error::new(kind, "settle").message("nothing was written");
        for kind in [
            ErrorKind::Busy,
            ErrorKind::Backpressure,
            ErrorKind::Invalid,
            ErrorKind::TooLarge,
            ErrorKind::Unauthorized,
            ErrorKind::Unavailable,
        ] {
            assert_eq!(Progress { begun: false }.told(failed(kind)).kind(), kind);
            let told = Progress { begun: true }.told(failed(kind));
            assert_eq!(told.kind(), ErrorKind::Timeout, "{kind:?}");
            assert!(told.to_string().contains("a part of it is written"), "{told}");
        }
        for kind in [ErrorKind::Fenced, ErrorKind::Conflict] {
            assert_eq!(Progress { begun: true }.told(failed(kind)).kind(), kind);
        }
    }
}
