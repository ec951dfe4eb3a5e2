//! `memory`: the peak memory of a relay does not depend on its backlog (INV-6).

use std::cell::RefCell;

use serde_json::{Value, json};

use crate::backlog::Backlog;
use crate::measure::{Contender, median, ratio, take_turns};
use crate::options::Options;
use crate::outcome::{Outcome, rounded};
use crate::{Result, child, progress};

const ROWS: u64 = 1_000_000;
const SMALL_ROWS: u64 = 10_000;
const ROUNDS: u32 = 3;

/// How much more memory the large backlog may take.
const AIM: f64 = 1.2;

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let rows = options.rows.unwrap_or(ROWS);
    let small_rows = SMALL_ROWS.min((rows / 10).max(1));
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let tenth_rows = (rows / 10).max(1);
    progress(format_args!("building backlogs of {rows}, {tenth_rows}, and {small_rows} rows"));
    let (large, small) = (Backlog::build(rows)?, Backlog::build(small_rows)?);
    let tenth = Backlog::build(tenth_rows)?;
    let peaks = RefCell::new([Vec::new(), Vec::new(), Vec::new()]);
    let drain = |backlog: &Backlog, which: usize| -> Result<f64> {
        backlog.rewind()?;
        let name = format!("broker-{}.db", peaks.borrow()[which].len());
        let answer = child::ask(&[
            "drain",
            &backlog.path().to_string_lossy(),
            &backlog.rows().to_string(),
            options.broker.as_str(),
            &backlog.beside(&name).to_string_lossy(),
        ])?;
        let number = |name: &str| answer.get(name).and_then(Value::as_f64).unwrap_or_default();
        peaks.borrow_mut()[which].push(number("peak_kib"));
        Ok(number("per_s"))
    };
    let mut contenders = [
        Contender::new("ours", || drain(&large, 0)),
        Contender::new("small_backlog", || drain(&small, 1)),
        Contender::new("tenth_backlog", || drain(&tenth, 2)),
    ];
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let [large_peak, small_peak, tenth_peak] = peaks.into_inner().map(|all| median(&all));
    let times = ratio(large_peak, small_peak);
    Ok(Outcome::new("memory", options.broker.as_str(), rows, rounds, &series)
        .add("small_rows", small_rows)
        .add("tenth_rows", tenth_rows)
        .add(
            "peak_rss_kib",
            json!({ "large": large_peak, "tenth": tenth_peak, "small": small_peak }),
        )
        .add("peak_rss_ratio", rounded(times))
        .add("peak_rss_ratio_to_tenth", rounded(ratio(large_peak, tenth_peak)))
        .note(
            "rates are of the children, each with the start of its relay: a small backlog is slow",
        )
        .aim_at_most("peak memory, large / small", AIM, times))
}
