//! Figures: medians of rounds in which the contenders take turns, ratios, percentiles.
//!
//! The machine drifts while a benchmark runs, so contenders are measured in turns, and each round
//! begins with another one: none always has the same predecessor.

use std::path::Path;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::{Result, progress};

/// The middle of some values; of an even number of them, the mean of the two in the middle. Zero of
/// none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// How many times the baseline ours is; zero where there is no baseline to compare with.
pub(crate) fn ratio(ours: f64, baseline: f64) -> f64 {
    if baseline > 0.0 { ours / baseline } else { 0.0 }
}

/// The least value that at least so many percent of all values do not exceed.
pub(crate) fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
    values.get(rank.max(1) - 1).copied().unwrap_or_default()
}

/// Things per second, of so many since a moment.
pub(crate) fn rate(things: u64, since: Instant) -> f64 {
    things as f64 / since.elapsed().as_secs_f64().max(1e-9)
}

/// A moment of the machine's monotonic clock, which all its processes share, in nanoseconds.
pub(crate) fn now_nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

/// Seconds of processor time that this process took so far, in user and system mode together.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes that this process gave to write calls so far; zero where the system does not say.
pub(crate) fn written_bytes() -> u64 {
    field("/proc/self/io", "wchar:")
}

/// The most memory that this process had resident so far, in KiB; zero where the system does not
/// say.
pub(crate) fn peak_memory_kib() -> u64 {
    field("/proc/self/status", "VmHWM:")
}

/// How often threads of this process stopped running by themselves so far, to wait for something;
/// zero where the system does not say. Those of threads that have ended are not counted.
pub(crate) fn wake_ups() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let paths = tasks.map(|task| task.path().join("status"));
    paths.map(|path| field(&path, "voluntary_ctxt_switches:")).sum()
}

/// The machine's load average over the last minute, which every figure is to be read beside: how many wanted
/// its processors, this program included. Zero where the system does not say.
pub(crate) fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// Seconds of processor time that running children of this process with such a name took so far; zero where
/// the system does not say.
#[cfg(feature = "brokers")]
pub(crate) fn cpu_seconds_of_children(name: &str) -> f64 {
    /// What the kernel counts in, everywhere.
    const TICKS_PER_SECOND: f64 = 100.0;
    let own = std::process::id().to_string();
    let ticks = |entry: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (before, after) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let is_ours = before.ends_with(&format!("({name}")) && *fields.get(1)? == own;
        is_ours
            .then_some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(ticks).sum::<u64>() as f64 / TICKS_PER_SECOND
}

fn field(path: impl AsRef<Path>, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// One that is measured: runs once, and says how many per second it did.
pub(crate) struct Contender<'a> {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnMut() -> Result<f64> + 'a>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: &'static str, run: impl FnMut() -> Result<f64> + 'a) -> Contender<'a> {
        Contender { name, run: Box::new(run) }
    }
}

/// What a contender did in each round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) rates: Vec<f64>,
}

impl Series {
    pub(crate) fn median(&self) -> f64 {
        median(&self.rates)
    }

    /// The least and the greatest ratio of two contenders in one round.
    pub(crate) fn ratio_range(&self, baseline: &Series) -> [f64; 2] {
        let pairs = self.rates.iter().zip(&baseline.rates);
        pairs
            .map(|(ours, other)| ratio(*ours, *other))
            .fold([f64::MAX, 0.0], |range, ratio| [range[0].min(ratio), range[1].max(ratio)])
    }
}

/// Measures the contenders in turns, and returns a series for each, in their order.
pub(crate) fn take_turns(rounds: u32, contenders: &mut [Contender<'_>]) -> Result<Vec<Series>> {
    let mut all: Vec<Series> = contenders
        .iter()
        .map(|contender| Series { name: contender.name, rates: Vec::new() })
        .collect();
    for round in 0..rounds as usize {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let rate = (contenders[at].run)()?;
            progress(format_args!("round {}: {:<18} {rate:>12.1}/s", round + 1, all[at].name));
            all[at].rates.push(rate);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_ignores_outliers_and_order() {
        assert_eq!(median(&[3.0, 1.0, 1_000_000.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_ratio_says_how_many_times_the_baseline() {
        assert_eq!(ratio(50.0, 100.0), 0.5);
        assert_eq!(ratio(50.0, 0.0), 0.0);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 50.0), 50.0);
        assert_eq!(percentile(&mut values, 99.0), 99.0);
        assert_eq!(percentile(&mut values, 100.0), 100.0);
        assert_eq!(percentile(&mut [7.0], 1.0), 7.0);
        assert_eq!(percentile(&mut [], 99.0), 0.0);
    }

    #[test]
    fn ratios_are_paired_by_round() {
        let ours = Series { name: "ours", rates: vec![10.0, 40.0] };
        let other = Series { name: "other", rates: vec![20.0, 50.0] };
        assert_eq!(ours.ratio_range(&other), [0.5, 0.8]);
    }

    #[test]
    fn contenders_take_turns_and_each_round_begins_with_another() {
        let order = std::cell::RefCell::new(Vec::new());
        let note = |name| order.borrow_mut().push(name);
        let mut contenders = [
            Contender::new("a", || {
                note("a");
                Ok(1.0)
            }),
            Contender::new("b", || {
                note("b");
                Ok(2.0)
            }),
        ];
        let series = take_turns(2, &mut contenders).unwrap();
        drop(contenders);
        assert_eq!(*order.borrow(), ["a", "b", "b", "a"]);
        assert_eq!(series[1], Series { name: "b", rates: vec![2.0, 2.0] });
    }
}
