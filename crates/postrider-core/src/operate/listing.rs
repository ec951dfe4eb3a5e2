//! For stores that list rows page by page: which rows a filter lets through, where a page ended, and how far
//! one call may look.
//!
//! Invariant: no text of a filter becomes part of a statement. What SQL compares is bound; patterns
//! are matched here, by the same [`Glob`](crate::Glob) as in routes.

use crate::operate::{DeliveryView, Filter, Listed, Status};
use crate::waiting::WaitingState;
use crate::{Error, ErrorKind, EventId, Result, Timestamp};

/// Rows that one call looks at, however few of them a filter lets through: about a tenth of a second
/// of the reading thread. The page then ends early and says where to go on.
pub const SCAN_MAX: u64 = 100_000;

/// An event's own fields, as filters compare them.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// Its id, if it can be read.
    pub id: Option<EventId>,
    /// Its key.
    pub key: &'a str,
    /// Its type.
    pub event_type: &'a str,
    /// The type of its aggregate.
    pub aggregate_type: &'a str,
    /// Its tenant.
    pub tenant: Option<&'a str>,
    /// When its row was created, if that can be read.
    pub created_at: Option<Timestamp>,
}

impl Fields<'_> {
    /// Whether the conditions on the event itself hold. What cannot be read meets none.
    pub fn pass(&self, filter: &Filter) -> bool {
        fn holds<T>(wanted: Option<&T>, test: impl FnOnce(&T) -> bool) -> bool {
            wanted.is_none_or(test)
        }
        holds(filter.id.as_ref(), |id| self.id == Some(*id))
            && holds(filter.key.as_ref(), |key| self.key == key)
            && holds(filter.event_type.as_ref(), |glob| glob.matches(self.event_type))
            && holds(filter.aggregate_type.as_ref(), |glob| glob.matches(self.aggregate_type))
            && holds(filter.tenant.as_ref(), |tenant| self.tenant == Some(tenant))
            && holds(filter.since.as_ref(), |since| self.created_at.is_some_and(|at| at >= *since))
            && holds(filter.until.as_ref(), |until| self.created_at.is_some_and(|at| at < *until))
    }
}

/// Whether a key or a tenant is asked for that no row can have: text in the database has no zero byte,
/// and a statement with one is refused.
pub fn asks_for_no_text(filter: &Filter) -> bool {
    let zero = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('\0'));
    zero(&filter.key) || zero(&filter.tenant)
}

/// Whether a filter has conditions on what became of an event at a destination.
pub fn asks_for_delivery(filter: &Filter) -> bool {
    filter.destination.is_some()
        || !filter.status.is_empty()
        || filter.error.is_some()
        || filter.attempts_min.is_some()
}

/// Whether one delivery meets all the conditions on deliveries.
pub fn delivery_passes(filter: &Filter, delivery: &DeliveryView) -> bool {
    filter.destination.as_ref().is_none_or(|wanted| delivery.destination == *wanted)
        && (filter.status.is_empty() || filter.status.contains(&delivery.status))
        && filter.attempts_min.is_none_or(|least| delivery.attempts >= least)
        && error_passes(
            filter,
            delivery.reason.as_deref().unwrap_or_default(),
            delivery.detail.as_deref().unwrap_or_default(),
        )
}

/// Whether the reason or the detail has the text that is looked for, whatever its case.
pub fn error_passes(filter: &Filter, reason: &str, detail: &str) -> bool {
    filter.error.as_ref().is_none_or(|wanted| {
        let wanted = wanted.to_lowercase();
        reason.to_lowercase().contains(&wanted) || detail.to_lowercase().contains(&wanted)
    })
}

/// The states of waiting events that a filter's statuses ask for; all of them if it names none.
pub fn states(filter: &Filter) -> Vec<WaitingState> {
    let all = [
        (Status::Retrying, WaitingState::Retrying),
        (Status::Parked, WaitingState::Parked),
        (Status::Held, WaitingState::Held),
        (Status::Disabled, WaitingState::Disabled),
        (Status::Dead, WaitingState::Dead),
        (Status::Discarded, WaitingState::Discarded),
    ];
    let wanted =
        |(status, _): &&(Status, _)| filter.status.is_empty() || filter.status.contains(status);
    all.iter().filter(wanted).map(|(_, state)| *state).collect()
}

/// A waiting event's state in the words of an operator.
pub fn status_of(state: &str) -> Option<Status> {
    Some(match state.parse::<WaitingState>().ok()? {
        WaitingState::Retrying => Status::Retrying,
        WaitingState::Parked => Status::Parked,
        WaitingState::Held => Status::Held,
        WaitingState::Disabled => Status::Disabled,
        WaitingState::Dead => Status::Dead,
        WaitingState::Discarded => Status::Discarded,
    })
}

/// Where the page before ended, as a number.
///
/// # Errors
/// `Invalid` for what is none.
pub fn number_after(after: Option<&str>, operation: &'static str) -> Result<Option<i64>> {
    after.map(|text| number(text, operation)).transpose()
}

/// Where the page before ended, as two parts with a colon between them. The last colon counts,
/// because names may have some.
///
/// # Errors
/// `Invalid` for what has no such parts.
pub fn parts_after<'a>(
    after: Option<&'a str>,
    operation: &'static str,
) -> Result<Option<(&'a str, i64)>> {
    let Some(text) = after else { return Ok(None) };
    let (first, last) = text.rsplit_once(':').ok_or_else(|| misplaced(operation, text))?;
    Ok(Some((first, number(last, operation)?)))
}

/// A number that stands for a place in a list.
///
/// # Errors
/// `Invalid` for what is none.
pub fn number(text: &str, operation: &'static str) -> Result<i64> {
    let plain = !text.is_empty() && text.len() <= 19 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain).ok_or_else(|| misplaced(operation, text))
}

/// The error for a place that no page ended at.
pub fn misplaced(operation: &'static str, text: &str) -> Error {
    let shown: String = text.escape_debug().take(80).collect();
    Error::new(ErrorKind::Invalid, operation)
        .message(format!("`{shown}` is not where a page of this list ended"))
}

/// Rows as they are gathered into a page of a limited size.
#[derive(Clone, Debug)]
pub struct Gathering<T> {
    limit: usize,
    rows: Vec<T>,
    /// The place of the last row that was taken.
    taken: Option<String>,
    scanned: u64,
}

impl<T> Gathering<T> {
    /// An empty page of at most so many rows.
    pub fn new(limit: usize) -> Gathering<T> {
        Gathering { limit, rows: Vec::new(), taken: None, scanned: 0 }
    }

    /// Counts a row that was looked at, and says whether another may be.
    pub fn look(&mut self) -> bool {
        self.scanned += 1;
        self.scanned < SCAN_MAX
    }

    /// How many more rows the page takes.
    pub fn wanted(&self) -> usize {
        self.limit.saturating_sub(self.rows.len())
    }

    /// Whether the page is full, so that one more row means that there is another page.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.limit
    }

    /// Takes a row, which stands at a place.
    pub fn push(&mut self, row: T, place: String) {
        self.rows.push(row);
        self.taken = Some(place);
    }

    /// The page, with nothing behind it.
    pub fn end(self) -> Listed<T> {
        Listed { rows: self.rows, next: None }
    }

    /// The page, with more behind its last row.
    pub fn more(self) -> Listed<T> {
        Listed { rows: self.rows, next: self.taken }
    }

    /// The page, which goes on behind a row that was looked at.
    pub fn more_after(self, place: String) -> Listed<T> {
        Listed { rows: self.rows, next: Some(place) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_given() {
        assert_eq!(number_after(None, "list").unwrap(), None);
        assert_eq!(number_after(Some("42"), "list").unwrap(), Some(42));
        assert_eq!(parts_after(Some("a:b:7"), "list").unwrap(), Some(("a:b", 7)));
        for wrong in ["", "-1", "+1", "1 ", "99999999999999999999", "x"] {
            assert_eq!(number(wrong, "list").unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
        }
        assert!(parts_after(Some("7"), "list").is_err());
    }

    #[test]
    fn a_page_ends_where_it_is_full() {
        let mut page = Gathering::new(2);
        for row in [5, 6] {
            assert!(!page.is_full() && page.look());
            page.push(row, row.to_string());
        }
        assert!(page.is_full() && page.wanted() == 0);
        let listed = page.more();
        assert_eq!((listed.rows, listed.next.as_deref()), (vec![5, 6], Some("6")));
    }
}
