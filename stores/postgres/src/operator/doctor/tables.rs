//! The tables: their guards, their numbers, their growth.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::operate::Finding;
use postrider_core::snapshot::SnapshotCursor;
use postrider_core::{Code, Cursor, Result};
use tokio_postgres::Row;

use super::{Patient, coded, critical, good, listed};
use crate::cursor::Columns;
use crate::operator::sequence;
use crate::operator::value::{count, flag, number, shown, text};
use crate::schema;
use crate::sql::{Sql, sql};
use crate::typed::{params, unsigned};

const OBJECTS: Sql = sql!("doctor/objects");
const CHECK: Sql = sql!("meta/check");
const CURSORS: Sql = sql!("doctor/cursors");
const CHILDREN: Sql = sql!("doctor/children");
const DEFAULT_ROWS: Sql = sql!("doctor/default_rows");
const TABLES: Sql = sql!("doctor/tables");
const AUTOVACUUM: Sql = sql!("doctor/autovacuum");
const HORIZON: Sql = sql!("doctor/horizon");
const STUCK: Sql = sql!("doctor/stuck");
const LEFTOVERS: Sql = sql!("doctor/leftovers");
const STATEMENT_TIMEOUT: Sql = sql!("operator/statement_timeout");

/// How long events are looked for that a cursor would pass unread, in milliseconds: a look at a screen.
const CARRIED_PAST_MAX: &str = "5000";

/// Events from which on a store without retention is said to grow: about a gigabyte.
const KEPT_MAX: u64 = 1_000_000;

/// A guard that the tables were made with, by the beginning of its name.
fn guards_of(patient: &Patient<'_>) -> Vec<String> {
    let outbox = patient.store.names().outbox();
    let trigger = |name: &str, table: &str| format!("trigger {outbox}_{name} on {outbox}{table}");
    let index = |name: &str| format!("index {outbox}_{name}");
    let indexes = [
        "partition_seq",
        "xid",
        "scheduled_due",
        "waiting_due",
        "waiting_key",
        "waiting_state",
        "waiting_endpoint",
        "request_open",
        "request_row_open",
    ];
    let mut guards =
        vec![trigger("rules", ""), trigger("append_only", ""), trigger("rules", "_scheduled")];
    guards.extend(indexes.map(index));
    guards.extend(
        ["processed", "claimed"]
            .map(|name| format!("index {}_{name}", patient.store.names().inbox())),
    );
    guards
}

/// Which version the tables have. Of one that does not serve this program the command has ended before, with what to do
/// about it: what it would look at may not be there.
pub(super) async fn version(patient: &Patient<'_>) -> Result<Finding> {
    let (found, known) = (schema::version(&patient.session).await?, schema::VERSION);
    let detail = match found.cmp(&known) {
        Ordering::Equal => format!("version {found}, the one that this program makes"),
        Ordering::Greater => format!(
            "version {found}, which serves this program as well, though it knows {known}: replace it when you can"
        ),
        Ordering::Less => format!(
            "version {found}, with which this program works, though it makes {known}: `postrider init` brings them there"
        ),
    };
    Ok(good("schema version", detail))
}

pub(super) async fn guards(patient: &Patient<'_>) -> Result<Finding> {
    let values = params![patient.store.names().schema(), patient.tables()];
    let rows = patient.session.rows("doctor", &OBJECTS, values).await?;
    let found: BTreeMap<String, bool> =
        rows.iter().map(|row| (shown(row, 0), flag(row, 1))).collect();
    let wrong: Vec<String> = guards_of(patient)
        .into_iter()
        .filter_map(|name| match found.get(&name) {
            Some(true) => None,
            Some(false) => Some(format!("{name} is off or not valid")),
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

async fn check(patient: &Patient<'_>) -> Result<Row> {
    let partitions = schema::setup(&patient.session).await?.partitions.unwrap_or_default();
    patient.session.row("doctor", &CHECK, params![i64::from(partitions)]).await
}

pub(super) async fn keys(patient: &Patient<'_>) -> Result<Finding> {
    let row = check(patient).await?;
    if row.get("same_hash") && row.get("same_function") {
        return Ok(good("keys", "keys go to the partitions that they always went to"));
    }
    let code = Code::PartitionsMoved;
    let message = "this server sends keys to other partitions than the one that made the tables";
    Ok(critical("keys", message, code.advice(), code))
}

pub(super) async fn numbers(patient: &Patient<'_>) -> Result<Finding> {
    let cache: i64 = check(patient).await?.get("sequence_cache");
    if cache != 1 {
        let code = Code::SequenceCached;
        let message = format!("the sequence hands out {cache} numbers at once");
        return Ok(critical("numbers", message, code.advice(), code));
    }
    let state = sequence::State::read(&patient.session).await?;
    let advice = format!("stop the relays, then: postrider repair sequence {}", patient.option());
    let behind = match state.behind() {
        None => carried_past(patient).await?,
        behind => behind,
    };
    Ok(match behind {
        None => good("numbers", "new events get numbers that no destination has passed"),
        Some(behind) => critical("numbers", behind, advice, Code::Rewound),
    })
}

/// What a sequence has given that was set back, and has been carried past all cursors since: relays find the same when
/// they begin, and stop. Only ranges of the outbox that may have such events are read, and not for long.
async fn carried_past(patient: &Patient<'_>) -> Result<Option<String>> {
    let tx = patient.store.sessions().begin_reading("doctor").await?;
    tx.row("doctor", &STATEMENT_TIMEOUT, params![CARRIED_PAST_MAX]).await?;
    let unread = sequence::passed_unread(&tx, "doctor").await?;
    tx.end("doctor").await;
    Ok((unread > 0).then(|| {
        format!("the sequence was set back: {unread} events have numbers that a destination has passed, unread")
    }))
}

/// Relays go by the bytes of a cursor, operators by its columns.
pub(super) async fn cursors(patient: &Patient<'_>) -> Result<Finding> {
    let rows = patient.session.rows("doctor", &CURSORS, params![]).await?;
    let mut wrong = Vec::new();
    for row in &rows {
        let base: Vec<u8> = row.get(2);
        let cursor = Cursor::new(base.into(), unsigned(row.get(3)));
        let said = (row.get::<_, i64>(4), row.get::<_, i64>(5), row.get::<_, i64>(6));
        let same = SnapshotCursor::decode(&cursor)
            .and_then(|_| Columns::of(&cursor))
            .is_ok_and(|columns| (columns.base_xmax, columns.floor, columns.ground) == said);
        if !same {
            let key = text(row, 7).map(|key| format!(" for the key `{}`", key.escape_debug()));
            let (name, partition) = (shown(row, 0), row.get::<_, i16>(1));
            wrong.push(format!("{name} in partition {partition}{}", key.unwrap_or_default()));
        }
    }
    if wrong.is_empty() {
        return Ok(good("cursors", format!("{} cursors can be read", rows.len())));
    }
    let advice = "somebody wrote to outbox_cursor or outbox_range: rewind these destinations, or `postrider reconcile`";
    let message = format!("cannot be read, or were changed by hand: {}", listed(&wrong));
    Ok(critical("cursors", message, advice, Code::Corrupt))
}

pub(super) async fn ahead(patient: &Patient<'_>) -> Result<Finding> {
    let row = patient.session.row("doctor", &CHILDREN, params![]).await?;
    if !flag(&row, 0) {
        return Ok(good("tables ahead", "the outbox is one table"));
    }
    Ok(room(count(&row, 2), number(&row, 1).map(unsigned)))
}

/// `given` and the first number that no table was made for.
fn room(given: u64, end: Option<u64>) -> Finding {
    match end {
        Some(end) if given < end => {
            good("tables ahead", format!("there are tables for the next {} events", end - given))
        }
        _ => coded(
            "tables ahead",
            "new events go to the default table, which no retention empties at once",
            "start a relay: it makes tables ahead. May its user create tables?",
            Code::TablesShort,
        ),
    }
}

pub(super) async fn default_table(patient: &Patient<'_>) -> Result<Finding> {
    let row = patient.session.row("doctor", &CHILDREN, params![]).await?;
    let rows = match flag(&row, 0) && count(&row, 4) > 0 {
        true => count(&patient.session.row("doctor", &DEFAULT_ROWS, params![]).await?, 0),
        false => 0,
    };
    Ok(stray(rows, count(&row, 4)))
}

/// More than this is split off: `outbox_ahead` has the same limit.
const DEFAULT_MAX: u64 = 64 * 1024 * 1024;

fn stray(rows: u64, bytes: u64) -> Finding {
    if bytes > DEFAULT_MAX {
        let code = Code::DefaultTableGrew;
        let message = format!(
            "{} MiB are in the default table: no relay made tables ahead for long",
            bytes >> 20
        );
        return coded("default table", message, code.advice(), code);
    }
    if rows == 0 {
        return good("default table", "every event is in a table made for its number");
    }
    let many = if rows >= 10_000 { "10000 or more" } else { &rows.to_string() };
    coded(
        "default table",
        format!("{many} events are in the default table"),
        "they are delivered as others; once retention has let them go it is empty again",
        Code::TablesShort,
    )
}

async fn statistics(patient: &Patient<'_>) -> Result<Vec<Row>> {
    let values = params![patient.store.names().schema(), patient.tables()];
    patient.session.rows("doctor", &TABLES, values).await
}

pub(super) async fn dead_rows(patient: &Patient<'_>) -> Result<Finding> {
    let rows = statistics(patient).await?;
    let bearable = patient.store.inner.options.thresholds.dead_rows;
    let bloated: Vec<String> = rows
        .iter()
        .filter(|row| bloats(count(row, 1), count(row, 2), bearable))
        .map(|row| format!("{} ({})", shown(row, 0), count(row, 1)))
        .collect();
    if bloated.is_empty() {
        return Ok(good("dead rows", "no table has more dead rows than living ones"));
    }
    let advice = "look at `old transactions` for who keeps them; then vacuum these tables";
    Ok(coded("dead rows", listed(&bloated), advice, Code::CleanupHeld))
}

fn bloats(dead: u64, live: u64, bearable: u64) -> bool {
    dead > bearable && dead > live
}

pub(super) async fn autovacuum(patient: &Patient<'_>) -> Result<Finding> {
    let on = patient.session.row("doctor", &AUTOVACUUM, params![]).await?;
    let advice =
        "turn it on: dead rows of cursors, leases, and `waiting` are never cleaned away else";
    if shown(&on, 0) != "on" || shown(&on, 1) != "on" {
        let message = "autovacuum, or what it counts by (track_counts), is off";
        return Ok(coded("autovacuum", message, advice, Code::AutovacuumOff));
    }
    let rows = statistics(patient).await?;
    let off: Vec<String> =
        rows.iter().filter(|row| flag(row, 3)).map(|row| shown(row, 0)).collect();
    Ok(match off.is_empty() {
        true => good("autovacuum", "it is on for every table"),
        false => {
            let message = format!("it is off for {}", listed(&off));
            coded("autovacuum", message, advice, Code::AutovacuumOff)
        }
    })
}

pub(super) async fn history(patient: &Patient<'_>) -> Result<Finding> {
    let meta = schema::meta(&patient.session).await?;
    Ok(growth(patient.overview.kept, schema::number(&meta, "history_start")?))
}

fn growth(kept: u64, start: u64) -> Finding {
    if kept <= KEPT_MAX || start > 1 {
        return good("history", format!("{kept} events are kept"));
    }
    coded(
        "history",
        format!("{kept} events are kept, and none was ever deleted"),
        "set a retention for the relay, so that the disk does not fill",
        Code::StoreGrows,
    )
}

/// Rows of destinations that are not there: a removal was cut off, or is under way.
pub(super) async fn leftovers(patient: &Patient<'_>) -> Result<Finding> {
    let rows = patient.session.rows("doctor", &LEFTOVERS, params![]).await?;
    let Some(first) = rows.first() else {
        return Ok(good("leftovers", "nothing is left of a destination that was removed"));
    };
    let many = |waiting: u64| match waiting {
        10_000.. => "10000 or more".to_owned(),
        fewer => fewer.to_string(),
    };
    let left: Vec<String> = rows
        .iter()
        .map(|row| format!("{} ({} that waited)", shown(row, 0), many(count(row, 1))))
        .collect();
    Ok(coded(
        "leftovers",
        format!("a removal was cut off, or is under way; left are rows of {}", listed(&left)),
        format!(
            "they are delivered to nobody; finish it: postrider destinations remove {} {}",
            shown(first, 0),
            patient.option()
        ),
        Code::StoreGrows,
    ))
}

pub(super) async fn horizon(patient: &Patient<'_>) -> Result<Finding> {
    let row = patient.session.row("doctor", &HORIZON, params![]).await?;
    let said = number(&row, 0).map(|seconds| Duration::from_secs(unsigned(seconds)));
    Ok(dedup(said, flag(&row, 1), &row.get::<_, Vec<String>>(2)))
}

/// `silent`: handlers that have not said for how long their messages may come again.
fn dedup(horizon: Option<Duration>, used: bool, silent: &[String]) -> Finding {
    match (horizon, used) {
        (Some(horizon), _) if !silent.is_empty() => coded(
            "dedup horizon",
            format!(
                "rows are kept for {} hours at least, and those of {} for 35 days, since nobody has said for how long its messages may come again; a purge that meets them goes no further",
                horizon.as_secs() / 3_600,
                listed(silent)
            ),
            "let their consumers record it, so that their rows go with the others",
            Code::HorizonShort,
        ),
        (Some(horizon), _) => good(
            "dedup horizon",
            format!("what was done is remembered for {} hours at least", horizon.as_secs() / 3_600),
        ),
        (None, false) => good("dedup horizon", "the inbox is not used"),
        (None, true) => coded(
            "dedup horizon",
            "no consumer has said for how long its broker may deliver a message again",
            "let consumers record it: until then a purge leaves all rows for 35 days",
            Code::HorizonShort,
        ),
    }
}

pub(super) async fn stuck(patient: &Patient<'_>) -> Result<Finding> {
    let stuck = count(&patient.session.row("doctor", &STUCK, params![]).await?, 0);
    if stuck == 0 {
        return Ok(good("stuck claims", "no claim of the inbox was left behind"));
    }
    let message = format!("{stuck} claims of the inbox ended an hour ago and were not taken over");
    let advice = format!(
        "postrider inbox ls --state expired {}: is the consumer running, and are these messages \
         still on their queue?",
        patient.option()
    );
    Ok(coded("stuck claims", message, advice, Code::ClaimsStuck))
}

#[cfg(test)]
mod tests {
    use postrider_core::operate::Level;

    use super::*;

    #[test]
    fn what_takes_a_large_store_is_judged_from_its_numbers() {
        assert_eq!(growth(KEPT_MAX, 1).level, Level::Good);
        assert_eq!(growth(KEPT_MAX + 1, 1).level, Level::Warning);
        assert_eq!(growth(KEPT_MAX + 1, 2).level, Level::Good);
        assert!(!bloats(9, 0, 9) && bloats(10, 5, 9) && !bloats(10, 10, 9));
        assert_eq!(room(5, Some(6)).level, Level::Good);
        assert_eq!(room(6, Some(6)).level, Level::Warning);
        assert_eq!(room(6, None).level, Level::Warning);
        assert_eq!(stray(0, DEFAULT_MAX).level, Level::Good);
        assert_eq!(stray(0, DEFAULT_MAX + 1).code, Some(Code::DefaultTableGrew));
        assert!(stray(10_000, 8_192).message.starts_with("10000 or more"));
        assert_eq!(dedup(None, true, &[]).level, Level::Warning);
        assert_eq!(dedup(None, false, &[]).level, Level::Good);
        let hours = Some(Duration::from_secs(7_200));
        assert_eq!(dedup(hours, true, &[]).level, Level::Good);
        assert_eq!(dedup(hours, true, &["mail".to_owned()]).level, Level::Warning);
    }
}
