//! What a benchmark found, as JSON for programs and as a table for people.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::measure::{Series, ratio};
use crate::options::StoreKind;

/// The result of one run. Rates are per second, and medians over the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    name: &'static str,
    store: &'static str,
    broker: &'static str,
    rows: u64,
    rounds: u32,
    ours_per_s: f64,
    baselines: BTreeMap<&'static str, f64>,
    /// Ours divided by the baseline, of the medians.
    ratios: BTreeMap<&'static str, f64>,
    /// The least and the greatest of the same within one round.
    ratio_ranges: BTreeMap<&'static str, [f64; 2]>,
    aims: Vec<Aim>,
    notes: Vec<String>,
    #[serde(flatten)]
    measured: BTreeMap<&'static str, Value>,
}

/// A figure that should be reached, and whether it was.
#[derive(Debug, Serialize)]
struct Aim {
    what: &'static str,
    aim: String,
    measured: f64,
    met: bool,
}

impl Outcome {
    /// The result of contenders that took turns; the first is ours.
    pub(crate) fn new(
        name: &'static str,
        broker: &'static str,
        rows: u64,
        rounds: u32,
        series: &[Series],
    ) -> Outcome {
        let (ours, baselines) =
            series.split_first().expect("invariant: a benchmark measures something of ours");
        let mut outcome = Outcome {
            name,
            store: "sqlite",
            broker,
            rows,
            rounds,
            ours_per_s: rounded(ours.median()),
            baselines: BTreeMap::new(),
            ratios: BTreeMap::new(),
            ratio_ranges: BTreeMap::new(),
            aims: Vec::new(),
            notes: Vec::new(),
            measured: BTreeMap::new(),
        };
        for baseline in baselines {
            let range = ours.ratio_range(baseline).map(rounded);
            outcome.baselines.insert(baseline.name, rounded(baseline.median()));
            outcome.ratios.insert(baseline.name, rounded(ratio(ours.median(), baseline.median())));
            outcome.ratio_ranges.insert(baseline.name, range);
        }
        outcome.add("sqlite_version", rusqlite::version())
    }

    /// The same, of another store than SQLite.
    pub(crate) fn on(mut self, store: StoreKind, version: &str) -> Outcome {
        self.store = store.as_str();
        self.measured.remove("sqlite_version");
        self.add("server_version", version)
    }

    /// Adds whatever else was measured.
    pub(crate) fn add(mut self, name: &'static str, value: impl Into<Value>) -> Outcome {
        self.measured.insert(name, value.into());
        self
    }

    /// Adds a sentence without which the figures would be misread.
    pub(crate) fn note(mut self, text: impl Into<String>) -> Outcome {
        self.notes.push(text.into());
        self
    }

    /// Compares a figure with the least that it should be.
    pub(crate) fn aim_at_least(self, what: &'static str, aim: f64, measured: f64) -> Outcome {
        self.aim(what, format!("at least {aim}"), measured, measured >= aim)
    }

    /// Compares a figure with the most that it should be.
    pub(crate) fn aim_at_most(self, what: &'static str, aim: f64, measured: f64) -> Outcome {
        self.aim(what, format!("at most {aim}"), measured, measured <= aim)
    }

    fn aim(mut self, what: &'static str, aim: String, measured: f64, met: bool) -> Outcome {
        self.aims.push(Aim { what, aim, measured: rounded(measured), met });
        self
    }

    /// Ours divided by a baseline.
    pub(crate) fn ratio(&self, baseline: &str) -> f64 {
        self.ratios.get(baseline).copied().unwrap_or_default()
    }
}

/// Four digits after the point are more than any run repeats.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { name, store, broker, rows, rounds, .. } = self;
        writeln!(f, "{name}: store {store}, broker {broker}, rows {rows}, rounds {rounds}\n")?;
        writeln!(f, "  {:<24} {:>14} {:>10}   within one round", "", "per second", "ours is")?;
        writeln!(f, "  {:<24} {:>14.1}", "ours", self.ours_per_s)?;
        for (baseline, rate) in &self.baselines {
            let times = self.ratio(baseline);
            let [least, most] = self.ratio_ranges.get(baseline).copied().unwrap_or_default();
            writeln!(f, "  {baseline:<24} {rate:>14.1} {times:>9.2}x   {least:.2}x to {most:.2}x")?;
        }
        writeln!(f)?;
        for (what, value) in &self.measured {
            show(f, what, value)?;
        }
        for Aim { what, aim, measured, met } in &self.aims {
            let word = if *met { "met" } else { "MISSED" };
            writeln!(f, "  aim {word}: {what} {aim}, measured {measured}")?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }
}

/// A value by its path, one per line.
fn show(f: &mut fmt::Formatter<'_>, path: &str, value: &Value) -> fmt::Result {
    match value {
        Value::Object(fields) => {
            fields.iter().try_for_each(|(field, value)| show(f, &format!("{path}.{field}"), value))
        }
        Value::String(text) => writeln!(f, "  {path}: {text}"),
        other => writeln!(f, "  {path}: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let ours = Series { name: "ours", rates: vec![50.0, 60.0, 40.0] };
        let base = Series { name: "base", rates: vec![100.0, 90.0, 110.0] };
        Outcome::new("drain", "noop", 3, 3, &[ours, base])
    }

    #[test]
    fn the_json_has_the_names_that_programs_read() {
        let text = serde_json::to_string(&outcome().add("extra", 7)).unwrap();
        assert!(!text.contains('\n'));
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["ours_per_s"], 50.0);
        assert_eq!(json["baselines"]["base"], 100.0);
        assert_eq!(json["ratios"]["base"], 0.5);
        assert_eq!(json["ratio_ranges"]["base"][0], 0.3636);
        assert_eq!((&json["name"], &json["extra"]), (&Value::from("drain"), &Value::from(7)));
    }

    #[test]
    fn an_aim_that_is_missed_says_so() {
        let text =
            outcome().aim_at_least("speed", 0.6, 0.5).aim_at_most("size", 2.0, 1.5).to_string();
        assert!(text.contains("aim MISSED: speed at least 0.6, measured 0.5"), "{text}");
        assert!(text.contains("aim met: size at most 2, measured 1.5"), "{text}");
    }
}
