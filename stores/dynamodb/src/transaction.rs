//! Transactions: what the service would refuse is refused before the call, and a cancellation says which
//! action it was, and why.
//!
//! Invariant: a transaction that answers with an error has written nothing, unless the error is a timeout
//! or a broken answer, which say so.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::TransactWriteItem;
use postrider_core::{Error, ErrorKind, Jitter, Result};
use uuid::Uuid;

use crate::connection::Connection;
use crate::error::failed;
use crate::item::{Item, weight};

/// The most actions of a transaction.
pub const ACTIONS_MAX: usize = 100;
/// The most bytes of a transaction's items. Before the call those that are put are counted.
pub const TRANSACTION_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The most bytes of an item, names of attributes included.
pub const ITEM_BYTES_MAX: u64 = 400 * 1024;

/// How often a transaction is tried that others are in the way of.
pub(crate) const TRIES_MAX: u32 = 12;
/// The first pause between two tries; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// The longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Why an action of a transaction was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Its condition does not hold.
    Condition,
    /// Another transaction was writing the item.
    Conflict,
    /// The table or the index is throttled.
    Throttled,
    /// The item, or its collection, would be too large.
    TooLarge,
    /// It is not well formed.
    Invalid,
    /// Something newer than this program, by its code.
    Other(String),
}

/// A cancelled transaction: for each action why it was refused, or nothing where it was not to blame.
///
/// It is the source of the error; [`Cancelled::of`] finds it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// In the order of the actions.
    pub refusals: Vec<Option<Refusal>>,
}

impl Cancelled {
    /// The cancellation that an error tells of, if it does.
    pub fn of(error: &Error) -> Option<&Cancelled> {
        std::error::Error::source(error)?.downcast_ref()
    }

    /// The actions whose condition does not hold.
    pub fn conditions(&self) -> impl Iterator<Item = usize> {
        let refused = |refusal: &Option<Refusal>| *refusal == Some(Refusal::Condition);
        self.refusals.iter().enumerate().filter(move |(_, r)| refused(r)).map(|(index, _)| index)
    }

    /// Whether the same transaction may pass at another moment.
    pub(crate) fn is_passing(&self) -> bool {
        let passing = |r: &Refusal| matches!(r, Refusal::Conflict | Refusal::Throttled);
        self.refusals.iter().flatten().all(passing)
    }

    fn kind(&self) -> ErrorKind {
        let has = |wanted: &Refusal| self.refusals.iter().flatten().any(|r| r == wanted);
        match () {
            () if self.is_passing() => ErrorKind::Busy,
            () if has(&Refusal::Condition) => ErrorKind::Conflict,
            () if has(&Refusal::TooLarge) => ErrorKind::TooLarge,
            () => ErrorKind::Invalid,
        }
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cancelled because of")?;
        for (index, refusal) in self.refusals.iter().enumerate() {
            if let Some(refusal) = refusal {
                write!(f, " action {index} ({refusal:?})")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Cancelled {}

/// Checks a transaction against what the service takes: the number of actions, and the sizes of the items that are
/// put. What an update makes of an item is known to the service alone, which refuses it as well.
///
/// # Errors
/// `TooLarge` with what is too large; nothing was sent.
pub fn check(actions: &[TransactWriteItem]) -> Result<()> {
    let refuse = |message: String| Err(Error::new(ErrorKind::TooLarge, "enqueue").message(message));
    if actions.len() > ACTIONS_MAX {
        return refuse(format!(
            "a transaction takes {ACTIONS_MAX} actions and this has {}; nothing was written: split it",
            actions.len()
        ));
    }
    let mut total = 0u64;
    for (index, action) in actions.iter().enumerate() {
        let bytes = action.put().map_or(0, |put| weight(put.item()));
        if bytes > ITEM_BYTES_MAX {
            return refuse(format!(
                "an item takes {ITEM_BYTES_MAX} bytes and that of action {index} has {bytes}; nothing \
                 was written: keep large payloads elsewhere, and a reference in the event"
            ));
        }
        total += bytes;
    }
    if total > TRANSACTION_BYTES_MAX {
        return refuse(format!(
            "a transaction takes {TRANSACTION_BYTES_MAX} bytes and this has {total}; nothing was written"
        ));
    }
    Ok(())
}

/// Sends a transaction once. The client repeats it under one token if the answer is lost.
pub(crate) async fn send(
    connection: &Connection,
    operation: &'static str,
    table: &str,
    actions: Vec<TransactWriteItem>,
) -> Result<()> {
    check(&actions)?;
    let client = connection.tables().await;
    let request = client.transact_write_items().set_transact_items(Some(actions));
    match Box::pin(request.send()).await {
        Ok(_) => Ok(()),
        Err(error) => Err(cancelled(operation, table, error)),
    }
}

/// The same, again while nothing but others are in the way.
pub(crate) async fn send_patiently(
    connection: &Connection,
    operation: &'static str,
    table: &str,
    actions: &[TransactWriteItem],
) -> Result<()> {
    let mut patience = Patience::new();
    loop {
        match send(connection, operation, table, actions.to_vec()).await {
            Err(error) if Cancelled::of(&error).is_some_and(Cancelled::is_passing) => {
                patience.pause(error).await?;
            }
            other => return other,
        }
    }
}

/// Pauses between tries: doubling, spread by chance, and counted.
pub(crate) struct Patience {
    tries: u32,
    jitter: Jitter,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        let (_, seed) = Uuid::now_v7().as_u64_pair();
        Patience { tries: 1, jitter: Jitter::seeded(seed) }
    }

    /// Waits for the next try; the error, once there were enough.
    pub(crate) async fn pause(&mut self, error: Error) -> Result<()> {
        if self.tries >= TRIES_MAX {
            return Err(error.context("tries", self.tries));
        }
        let step = PAUSE_MIN.saturating_mul(1 << self.tries.min(10)).min(PAUSE_MAX);
        self.tries += 1;
        // waits: others write the same items; at another moment each
        tokio::time::sleep(step.mul_f64(self.jitter.unit())).await;
        Ok(())
    }
}

fn cancelled(
    operation: &'static str,
    table: &str,
    error: SdkError<TransactWriteItemsError>,
) -> Error {
    let told = match error.as_service_error() {
        Some(TransactWriteItemsError::TransactionCanceledException(told)) => Some(Cancelled {
            refusals: told.cancellation_reasons().iter().map(|r| refusal(r.code())).collect(),
        }),
        _ => None,
    };
    let Some(told) = told else { return failed(operation, table, error) };
    let message = match told.kind() {
        ErrorKind::Busy => {
            "others write the same items, or the table is throttled; nothing was written"
        }
        ErrorKind::Conflict => "an item is not as the transaction expects; nothing was written",
        _ => "the service refuses an action of the transaction; nothing was written",
    };
    let error = Error::new(told.kind(), operation)
        .message(format!("{message}: {told}"))
        .context("table", table);
    let is_throttled = told.refusals.contains(&Some(Refusal::Throttled));
    let error = if is_throttled { error.of_store() } else { error };
    error.source(told)
}

fn refusal(code: Option<&str>) -> Option<Refusal> {
    Some(match code? {
        "None" => return None,
        "ConditionalCheckFailed" => Refusal::Condition,
        "TransactionConflict" => Refusal::Conflict,
        "ThrottlingError" | "ProvisionedThroughputExceeded" => Refusal::Throttled,
        "ItemCollectionSizeLimitExceeded" => Refusal::TooLarge,
        "ValidationError" => Refusal::Invalid,
        other => Refusal::Other(other.to_owned()),
    })
}

/// An item that is put into a table, as the actions of a transaction have it.
pub(crate) fn put(table: &str, item: Item) -> aws_sdk_dynamodb::types::builders::PutBuilder {
    aws_sdk_dynamodb::types::Put::builder().table_name(table).set_item(Some(item))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::s;

    fn action(bytes: usize) -> TransactWriteItem {
        let item = Item::from([("pk".to_owned(), s("x".repeat(bytes)))]);
        TransactWriteItem::builder().put(put("t", item).build().unwrap()).build()
    }

    /// R053: what the service would refuse is refused before the call, by a typed error.
    #[test]
    fn a_hundred_and_one_actions_are_refused_before_the_call() {
        assert!(check(&vec![action(1); 100]).is_ok());
        let error = check(&vec![action(1); 101]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("101"), "{error}");
    }

    /// R053: and so are an item of more than 400 KB, and items of more than 4 MB together.
    #[test]
    fn large_items_are_refused_before_the_call() {
        assert!(check(&[action(400 * 1024 - 2)]).is_ok());
        assert!(check(&[action(400 * 1024)]).unwrap_err().to_string().contains("action 0"));
        assert!(check(&vec![action(300 * 1024); 14]).is_err());
    }

    #[test]
    fn a_cancellation_that_passes_is_told_from_one_that_does_not() {
        let of = |codes: &[&str]| Cancelled {
            refusals: codes.iter().map(|code| refusal(Some(code))).collect(),
        };
        assert_eq!(of(&["None", "TransactionConflict"]).kind(), ErrorKind::Busy);
        let refused = of(&["TransactionConflict", "ConditionalCheckFailed"]);
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert_eq!(refused.conditions().collect::<Vec<_>>(), [1]);
        assert_eq!(of(&["ItemCollectionSizeLimitExceeded"]).kind(), ErrorKind::TooLarge);
        assert_eq!(of(&["New"]).refusals, [Some(Refusal::Other("New".to_owned()))]);
    }
}
