//! Waiting events: how they enter and what happens to them, as the functions of the schema take it.
//!
//! The rules of a key (only the first that holds it is due; what leaves promotes the next) are kept by those
//! functions, in the transaction that writes (`sql/schema/001/51_waiting.sql`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use postrider_core::waiting::{
    Attempted, DETAIL_BYTES_MAX, NewWaiting, Placement, RowRef, WaitingChange, WaitingState,
};
use serde_json::{Value, json};

use crate::typed::{micros, signed, uuid};

/// A detail, cut to the longest that is kept, between two characters, and without what the database takes
/// in no text.
pub(crate) fn cut(detail: &str) -> Cow<'_, str> {
    let detail = &detail[..detail.floor_char_boundary(DETAIL_BYTES_MAX)];
    match detail.contains('\0') {
        true => Cow::Owned(detail.replace('\0', " ")),
        false => Cow::Borrowed(detail),
    }
}

/// Events that enter, each once.
pub(crate) fn entering(new: &[NewWaiting]) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    new.iter().filter(|new| seen.insert(new.row.seq)).map(entry).collect()
}

fn entry(new: &NewWaiting) -> Value {
    let none = |reason| Attempted { attempts: 0, reason, detail: String::new() };
    let attempted;
    let (mut state, mut holds, mut delay, mut endpoint) =
        (WaitingState::Retrying, true, Duration::ZERO, None);
    match &new.placement {
        Placement::Behind(reason) => attempted = Cow::Owned(none(*reason)),
        Placement::Retry { delay: after, attempted: last } => {
            state = WaitingState::of_timed(last.reason);
            (delay, attempted) = (*after, Cow::Borrowed(last));
        }
        Placement::Disabled { endpoint: waits_for, attempted: last } => {
            (state, endpoint) = (WaitingState::Disabled, Some(&**waits_for));
            attempted = Cow::Borrowed(last);
        }
        Placement::Dead { attempted: last, holds_key } => {
            (state, holds, attempted) = (WaitingState::Dead, *holds_key, Cow::Borrowed(last));
        }
    }
    json!({
        "seq": signed(new.row.seq),
        "id": uuid(new.row.id).to_string(),
        "key_hash": new.key_hash.0.cast_signed(),
        "state": state.as_str(),
        "holds": holds,
        "delay": micros(delay),
        "attempts": attempts(&attempted),
        "reason": attempted.reason.as_str(),
        "detail": cut(&attempted.detail),
        "endpoint": endpoint,
    })
}

fn attempts(attempted: &Attempted) -> i32 {
    i32::try_from(attempted.attempts).unwrap_or(i32::MAX)
}

/// What happened to events, once for each: what is delivered is, whatever is said of it besides; else what
/// was said last, the end of its attempts before any other.
pub(crate) fn changes(changes: &[WaitingChange]) -> Vec<Value> {
    let mut last: BTreeMap<u64, &WaitingChange> = BTreeMap::new();
    for change in changes {
        let stands = last.entry(change.row().seq).or_insert(change);
        if weight(change) >= weight(stands) {
            *stands = change;
        }
    }
    last.into_values().map(change_one).collect()
}

fn weight(change: &WaitingChange) -> u8 {
    match change {
        WaitingChange::Delivered(_) | WaitingChange::Erased(_) => 2,
        WaitingChange::Dead { .. } => 1,
        _ => 0,
    }
}

fn change_one(change: &WaitingChange) -> Value {
    match change {
        WaitingChange::Delivered(row) | WaitingChange::Erased(row) => {
            json!({ "kind": "gone", "seq": signed(row.seq) })
        }
        WaitingChange::Dead { row, attempted, holds_key } => dead(*row, attempted, *holds_key),
        WaitingChange::Retry { row, delay, attempted } => json!({
            "kind": "retry",
            "seq": signed(row.seq),
            "delay": micros(*delay),
            "attempts": attempts(attempted),
            "reason": attempted.reason.as_str(),
            "detail": cut(&attempted.detail),
        }),
        WaitingChange::Disabled { row, endpoint, attempted } => json!({
            "kind": "disabled",
            "seq": signed(row.seq),
            "delay": 0,
            "endpoint": &**endpoint,
            "reason": attempted.reason.as_str(),
            "detail": cut(&attempted.detail),
        }),
        WaitingChange::Postpone { row, delay } => {
            json!({ "kind": "postpone", "seq": signed(row.seq), "delay": micros(*delay) })
        }
    }
}

fn dead(row: RowRef, attempted: &Attempted, holds_key: bool) -> Value {
    json!({
        "kind": "dead",
        "seq": signed(row.seq),
        "holds": holds_key,
        "attempts": attempts(attempted),
        "reason": attempted.reason.as_str(),
        "detail": cut(&attempted.detail),
    })
}
