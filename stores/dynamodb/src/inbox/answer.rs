//! What the item that stood in a claim's way says to it.

use std::time::Duration;

use postrider_core::inbox::{Accepted, RESULT_BYTES_MAX};
use postrider_core::{ClaimLease, ClaimRequest, Code, Error, ErrorKind, InboxKey, Result};

use crate::inbox::row::{Row, Stored};
use crate::transaction::ITEM_BYTES_MAX;

/// Why a claim wrote nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It did write: the client sent it again after a lost answer, and found its own claim.
    Ours {
        /// The token that it has.
        token: u64,
        /// The tries that count, this one included.
        tries: u32,
        /// Of those before this one, how many ended without a word.
        lost: u32,
    },
    /// The id is known with another payload.
    Mismatch,
    /// It was done.
    Processed {
        /// What was stored then.
        result: Stored,
    },
    /// Somebody is at it.
    Leased {
        /// The sign of life that was seen.
        beat: String,
        /// How long it is good for.
        duration: Duration,
    },
}

/// What a row says to a claim that named its own beat.
pub(crate) fn to_claim(row: Row, request: &ClaimRequest, beat: &str) -> Refused {
    match () {
        () if !row.is_of(&request.payload_hash) => Refused::Mismatch,
        () if row.processed => Refused::Processed { result: row.result },
        () if row.beat == beat => {
            Refused::Ours { token: row.token, tries: row.tries, lost: row.lost }
        }
        () => Refused::Leased { beat: row.beat, duration: row.duration },
    }
}

/// What a row says to a marker that found it.
///
/// # Errors
/// `Conflict` for another payload, `Busy` if a worker holds a lease.
pub(crate) fn to_marker(row: &Row, key: &InboxKey, hash: &[u8; 32]) -> Result<Accepted> {
    let told = |kind, message: &str| {
        let error = Error::new(kind, "accept").message(message.to_owned());
        error.context("event", key.event_id).context("handler", &key.handler)
    };
    match () {
        () if !row.is_of(hash) => Err(told(
            ErrorKind::Conflict,
            "this event id is known with another payload; the handler must not act on it",
        )
        .code(Code::PayloadMismatch)
        .context("source", &key.source)),
        () if row.processed => Ok(Accepted::Duplicate),
        () if row.released => Ok(Accepted::FirstTime),
        () => {
            Err(told(ErrorKind::Busy, "a worker holds a lease on the event; nothing was written"))
        }
    }
}

/// The refusal of a worker that lost its lease.
pub(crate) fn fenced(operation: &'static str, lease: &ClaimLease) -> Error {
    Error::new(ErrorKind::Fenced, operation)
        .message("the claim was lost; nothing was written")
        .context("event", lease.key.event_id)
        .context("handler", &lease.key.handler)
        .context("token", lease.token)
}

/// That an effect is recorded, and its result is not.
pub(crate) fn too_large(operation: &'static str, result: &[u8]) -> Error {
    let limit = match operation {
        "complete" if result.len() > RESULT_BYTES_MAX => {
            format!("a result may have {RESULT_BYTES_MAX}")
        }
        "complete" => "there was no room for it, or no capacity to write it".to_owned(),
        _ => format!("an item takes {ITEM_BYTES_MAX} with all that is in it"),
    };
    Error::new(ErrorKind::TooLarge, operation).message(format!(
        "the result has {} bytes, and {limit}; it is recorded that it was done, so that it is not done again, and its \
         result is not: keep what is large elsewhere, and return its address",
        result.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::row::{
        BEAT, CLAIMED, DURATION, HASH, PROCESSED, RELEASED, RESULT, STATUS, TOKEN,
    };
    use crate::item::{Item, b, n, s};
    use aws_sdk_dynamodb::types::AttributeValue;
    use bytes::Bytes;
    use postrider_core::{Event, EventId, HandlerName};

    fn request() -> ClaimRequest {
        let mut event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
        event.source = "/shop".into();
        let handler = HandlerName::new("billing").unwrap();
        ClaimRequest::new(&event, &handler, Duration::from_secs(30)).unwrap()
    }

    fn item(status: &str, hash: [u8; 32], beat: &str) -> Item {
        Item::from([
            (STATUS.to_owned(), s(status)),
            (HASH.to_owned(), b(hash.to_vec())),
            (TOKEN.to_owned(), n(3)),
            (BEAT.to_owned(), s(beat)),
            (DURATION.to_owned(), n(30_000)),
            (RESULT.to_owned(), b("done")),
        ])
    }

    fn row(status: &str, hash: [u8; 32], beat: &str) -> Row {
        Row::of(&item(status, hash, beat), "claim").unwrap()
    }

    /// R077: what stands in a claim's way, in each state, is told in the same call.
    #[test]
    fn each_state_of_a_row_has_its_answer() {
        let request = request();
        let hash = request.payload_hash;
        let leased = to_claim(row(CLAIMED, hash, "theirs"), &request, "ours");
        let duration = Duration::from_secs(30);
        assert_eq!(leased, Refused::Leased { beat: "theirs".to_owned(), duration });
        let done = to_claim(row(PROCESSED, hash, ""), &request, "ours");
        let result = Stored::Whole(Bytes::from_static(b"done"));
        assert_eq!(done, Refused::Processed { result });
        for status in [CLAIMED, PROCESSED] {
            let other = to_claim(row(status, [7; 32], "theirs"), &request, "ours");
            assert_eq!(other, Refused::Mismatch, "{status}");
        }
        let by_hand = to_claim(row(PROCESSED, [0; 32], ""), &request, "ours");
        assert!(matches!(by_hand, Refused::Processed { .. }), "a person had no payload");
    }

    /// A client that repeats a claim after a lost answer finds its own, and is told that it has it.
    #[test]
    fn a_repeated_claim_finds_itself() {
        let request = request();
        let found = to_claim(row(CLAIMED, request.payload_hash, "ours"), &request, "ours");
        assert_eq!(found, Refused::Ours { token: 3, tries: 1, lost: 0 });
    }

    #[test]
    fn a_marker_waits_for_a_lease_and_not_for_one_that_was_let_go() {
        let request = request();
        let hash = request.payload_hash;
        let held = to_marker(&row(CLAIMED, hash, "x"), &request.key, &hash).unwrap_err();
        assert_eq!(held.kind(), ErrorKind::Busy);
        let mut free = item(CLAIMED, hash, "x");
        free.insert(RELEASED.to_owned(), AttributeValue::Bool(true));
        let free = Row::of(&free, "accept").unwrap();
        assert_eq!(to_marker(&free, &request.key, &hash).unwrap(), Accepted::FirstTime);
        let other = to_marker(&free, &request.key, &[7; 32]).unwrap_err();
        assert_eq!(other.operator_code(), Some(Code::PayloadMismatch));
    }

    #[test]
    fn an_item_that_is_no_row_is_left_alone() {
        for missing in [STATUS, HASH, BEAT, DURATION] {
            let mut item = item(CLAIMED, [1; 32], "x");
            item.remove(missing);
            assert_eq!(Row::of(&item, "claim").unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
