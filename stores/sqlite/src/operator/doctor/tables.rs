//! The tables: their guards, their numbers, their growth.

use std::collections::BTreeMap;

use postrider_core::operate::Finding;
use postrider_core::{Code, Result};
use rusqlite::Connection;

use super::{Patient, coded, critical, good, listed};
use crate::error::During;
use crate::operator::range::{self, RangeRow};
use crate::operator::sql;
use crate::operator::value::{self, count, shown};
use crate::schema;

/// Events from which on a store without retention is said to grow: about a gigabyte.
const KEPT_MAX: u64 = 1_000_000;

/// A claim whose lease ended so long ago that nobody is coming back for it, in milliseconds: an hour.
const STUCK_AFTER: i64 = 3_600_000;

/// Stuck claims that are counted.
const STUCK_MAX: i64 = 10_000;

/// Triggers and indexes by name, with their text.
fn objects(connection: &Connection) -> Result<BTreeMap<String, String>> {
    let rows = value::all(connection, "doctor", sql::DOCTOR_OBJECTS, (), |row| {
        let text = shown(row, 2).split_whitespace().collect::<Vec<_>>().join(" ");
        (format!("{} {}", shown(row, 0), shown(row, 1)), text)
    })?;
    Ok(rows.into_iter().collect())
}

pub(super) fn guards(patient: &Patient<'_>) -> Result<Finding> {
    let fresh = Connection::open_in_memory().during("doctor")?;
    fresh.execute_batch(&schema::Schema::sql()).during("doctor")?;
    let (wanted, found) = (objects(&fresh)?, objects(patient.connection)?);
    let wrong: Vec<String> = wanted
        .iter()
        .filter_map(|(name, text)| match found.get(name) {
            Some(there) if there == text => None,
            Some(_) => Some(format!("{name} was changed")),
            None => Some(format!("{name} is missing")),
        })
        .collect();
    if wrong.is_empty() {
        return Ok(good("tables", "triggers and indexes are as `init` made them"));
    }
    Ok(critical(
        "tables",
        listed(&wrong),
        "take it over from `postrider init --print`; without its guards the outbox can be \
         changed after it was delivered, and without its indexes the relay is slow",
        Code::GuardsMissing,
    ))
}

pub(super) fn numbers(patient: &Patient<'_>) -> Result<Finding> {
    let sequence =
        value::first(patient.connection, "doctor", sql::DOCTOR_SEQUENCE, (), |row| count(row, 0))?;
    let advice = format!("stop the relays, then: postrider repair sequence {}", patient.store());
    let needed =
        value::first(patient.connection, "doctor", sql::SEQUENCE_NEEDED, (), |row| count(row, 1))?
            .unwrap_or_default();
    let finding = match sequence {
        Some(sequence) if sequence >= needed => {
            good("numbers", "new events get numbers that no destination has passed")
        }
        Some(sequence) => critical(
            "numbers",
            format!("the sequence stands at {sequence}, and {needed} was given already"),
            advice,
            Code::Rewound,
        ),
        None if needed == 0 => good("numbers", "there was no event yet"),
        None => critical(
            "numbers",
            format!("sqlite_sequence has no row for the outbox, and {needed} was given already"),
            advice,
            Code::Rewound,
        ),
    };
    Ok(finding)
}

pub(super) fn history(patient: &Patient<'_>) -> Result<Finding> {
    let kept = patient.overview.kept;
    let start = schema::read_number(patient.connection, "history_start")?;
    Ok(growth(kept, start))
}

fn growth(kept: u64, start: u64) -> Finding {
    if kept <= KEPT_MAX || start > 1 {
        return good("history", format!("{kept} events are kept"));
    }
    coded(
        "history",
        format!("{kept} events are kept, and none was ever deleted"),
        "set a retention for the relay, so that the file does not grow for ever",
        Code::StoreGrows,
    )
}

/// Keys of which so much waits that a range stands for the rest.
pub(super) fn ranges(patient: &Patient<'_>) -> Result<Finding> {
    let ranges = range::read(patient.connection)?;
    let Some(oldest) = ranges.first() else {
        return Ok(good("ranges", "of no key so much waits that it is not copied any more"));
    };
    let name = |range: &RangeRow| {
        format!("`{}` of destination {}", range.key.escape_debug(), range.destination)
    };
    let names: Vec<String> = ranges.iter().map(name).collect();
    Ok(coded(
        "ranges",
        format!(
            "so much waits of {} keys that nothing more of them is copied, of the first since {}, and nothing \
             behind is deleted until it is delivered: {}",
            ranges.len(),
            oldest.opened_at,
            listed(&names)
        ),
        format!("postrider dead ls {}: what is at the head of these keys?", patient.store()),
        Code::StoreGrows,
    ))
}

pub(super) fn stuck(patient: &Patient<'_>) -> Result<Finding> {
    let before = patient.overview.now.as_micros() / 1_000 - STUCK_AFTER;
    let limit = [before, STUCK_MAX];
    let stuck =
        value::first(patient.connection, "doctor", sql::DOCTOR_STUCK, limit, |row| count(row, 0))?
            .unwrap_or_default();
    if stuck == 0 {
        return Ok(good("stuck claims", "no claim of the inbox was left behind"));
    }
    let message = format!("{stuck} claims of the inbox ended an hour ago and were not taken over");
    let advice = format!(
        "postrider inbox ls --state expired {}: is the consumer running, and are these messages \
         still on their queue?",
        patient.store()
    );
    Ok(coded("stuck claims", message, advice, Code::ClaimsStuck))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::operate::Level;

    #[test]
    fn a_store_that_never_forgets_is_said_to_grow() {
        assert_eq!(growth(KEPT_MAX, 1).level, Level::Good);
        assert_eq!(growth(KEPT_MAX + 1, 1).level, Level::Warning);
        assert_eq!(growth(KEPT_MAX + 1, 2).level, Level::Good);
    }
}
