//! `drain`: a backlog through the whole relay.
//!
//! Ours opens the store, takes the lease, reads, decodes, orders by key, publishes, settles, and lets
//! the lease go. The baselines do less: a plain read does none of it, the textbook loop keeps no
//! order and no lease.

use std::cell::RefCell;

use serde_json::json;

use crate::backlog::{Backlog, KEYS, PAYLOAD_BYTES};
use crate::measure::{Contender, median, take_turns};
use crate::options::Options;
use crate::outcome::{Outcome, rounded};
use crate::relay::Drained;
use crate::textbook::Marking;
use crate::{Result, broker, plain, progress, relay, textbook};

const ROWS: u64 = 200_000;
const ROUNDS: u32 = 5;

/// The textbook loop waits for the disk once per row; more rows would only take longer.
const TEXTBOOK_ROWS_MAX: u64 = 1_000;

/// The same, where it waits once per hundred rows.
const BATCHED_ROWS_MAX: u64 = 20_000;

/// Rows that are drained once before anything is measured.
const WARM_UP_ROWS: u64 = 20_000;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    progress(format_args!("building a backlog of {rows} rows"));
    let backlog = Backlog::build(rows)?;
    let warm_up = Backlog::build(rows.min(WARM_UP_ROWS))?;
    let drain = |backlog: &Backlog, name: &str| -> Result<Drained> {
        backlog.rewind()?;
        let broker = broker::open(options.broker, &backlog.beside(name))?;
        relay::drain(&runtime, &backlog.path(), broker, backlog.rows())
    };
    drain(&warm_up, "warm-up.db")?;
    plain::read(&warm_up.path(), warm_up.rows())?;

    let drained = RefCell::new(Vec::new());
    let row_by_row = RefCell::new(Vec::new());
    let textbook = |rows_max: u64, marking: Marking| -> Result<textbook::Published> {
        let folder = tempfile::tempdir()?;
        textbook::publish(&folder.path().join("textbook.db"), rows.min(rows_max), marking)
    };
    let mut contenders = [
        Contender::new("ours", || {
            let name = format!("broker-{}.db", drained.borrow().len());
            let round = drain(&backlog, &name)?;
            let per_s = round.per_s;
            drained.borrow_mut().push(round);
            Ok(per_s)
        }),
        Contender::new("plain_read", || plain::read(&backlog.path(), rows)),
        Contender::new("textbook", || {
            let round = textbook(TEXTBOOK_ROWS_MAX, Marking::RowByRow)?;
            row_by_row.borrow_mut().push(round.written_bytes);
            Ok(round.per_s)
        }),
        Contender::new("textbook_batched", || {
            Ok(textbook(BATCHED_ROWS_MAX, Marking::PageByPage)?.per_s)
        }),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let outcome = Outcome::new("drain", options.broker.as_str(), rows, rounds, &series);
    let (read, loops) = (outcome.ratio("plain_read"), outcome.ratio("textbook"));
    Ok(describe(outcome, &backlog, &drained.into_inner(), &row_by_row.into_inner())?
        .aim_at_least("ours / plain_read", 0.5, read)
        .aim_at_least("ours / textbook", 20.0, loops))
}

/// Adds what the relay and the files say about the rounds.
fn describe(
    outcome: Outcome,
    backlog: &Backlog,
    drained: &[Drained],
    textbook_written: &[u64],
) -> Result<Outcome> {
    let rows = backlog.rows();
    let of = |value: fn(&Drained) -> u64| {
        median(&drained.iter().map(|round| value(round) as f64).collect::<Vec<_>>())
    };
    let textbook_rows = rows.min(TEXTBOOK_ROWS_MAX);
    let textbook_written =
        median(&textbook_written.iter().map(|bytes| *bytes as f64).collect::<Vec<_>>());
    Ok(outcome
        .add("keys", KEYS)
        .add("payload_bytes", PAYLOAD_BYTES as u64)
        .add("file_bytes_per_event", rounded(backlog.file_bytes()? as f64 / rows as f64))
        .add(
            "relay",
            json!({
                "fetches": of(|round| round.health.fetches),
                "rows_read": of(|round| round.health.rows_read),
                "batches": of(|round| round.health.batches),
                "settlements": of(|round| round.health.settlements),
            }),
        )
        .add(
            "written_bytes_per_event",
            json!({
                "ours": rounded(of(|round| round.written_bytes) / rows as f64),
                "textbook": rounded(textbook_written / textbook_rows as f64),
            }),
        )
        .note(format!(
            "the textbook loops ran on {textbook_rows} and {} rows of their own and publish to \
             nobody; their rates are taken to hold for {rows}",
            rows.min(BATCHED_ROWS_MAX)
        )))
}
