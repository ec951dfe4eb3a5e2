//! What many runs were made of, summed: also what they did not show.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use postrider_testkit::memory::Kind;

use crate::attempt::Defect;
use crate::many::Ended;
use crate::outcome::Outcome;
use crate::scenario::Scenario;

/// In so many runs a fault that was planned must strike somewhere.
const MANY: u64 = 20;

/// The sum over runs.
#[derive(Clone, Debug, Default)]
pub struct Total {
    /// Runs.
    pub seeds: u64,
    /// Seeds that failed, and how.
    pub failures: Vec<(u64, Defect)>,
    /// Runs that prove little, by the reason. One run may have several.
    pub vacuous: BTreeMap<String, u64>,
    /// Runs that have a reason to be vacuous.
    pub vacuous_runs: u64,
    /// Faults that struck, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// In how many runs a fault was planned, or had a rate, by name.
    pub planned: BTreeMap<&'static str, u64>,
    /// Runs by kind of store.
    pub stores: BTreeMap<Kind, u64>,
    /// Events that were committed.
    pub committed: u64,
    /// Deliveries that were acknowledged.
    pub delivered: u64,
    /// Effects of handlers.
    pub effects: u64,
    /// Steps of tasks.
    pub steps: u64,
    /// The time of all worlds, in milliseconds.
    pub virtual_ms: u64,
    /// How often each spot was reached.
    pub reached: Vec<u64>,
}

impl Total {
    /// Adds a run.
    pub fn add(&mut self, ended: &Ended) {
        self.seeds += 1;
        if let Some(defect) = &ended.attempt.defect {
            self.failures.push((ended.seed, defect.clone()));
        }
        self.plan(&mut Scenario::of(ended.seed));
        let Some(outcome) = &ended.attempt.outcome else { return };
        let reasons = vacuous(outcome);
        self.vacuous_runs += u64::from(!reasons.is_empty());
        for reason in reasons {
            *self.vacuous.entry(reason).or_default() += 1;
        }
        let tally = &outcome.tally;
        for (fault, count) in &tally.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        self.committed += tally.committed;
        self.delivered += tally.delivered;
        self.effects += tally.effects;
        self.steps += tally.steps;
        self.virtual_ms += tally.virtual_ms;
        self.reached.resize(self.reached.len().max(outcome.reached.len()), 0);
        for (sum, count) in self.reached.iter_mut().zip(&outcome.reached) {
            *sum += count;
        }
    }

    fn plan(&mut self, scenario: &mut Scenario) {
        *self.stores.entry(scenario.store).or_default() += 1;
        let mut names: BTreeSet<&'static str> =
            scenario.incidents.iter().map(|incident| incident.what.name()).collect();
        let rates = scenario.rates.each().into_iter().filter(|(_, rate)| **rate > 0);
        names.extend(rates.map(|(name, _)| name));
        for name in names {
            *self.planned.entry(name).or_default() += 1;
        }
    }

    /// Faults that were planned in many of these runs, and struck in none.
    pub fn never_struck(&self) -> Vec<&'static str> {
        let planned = self.planned.iter().filter(|(_, runs)| **runs >= MANY);
        planned.map(|(name, _)| *name).filter(|name| !self.faults.contains_key(name)).collect()
    }

    /// Runs per second, and hours of the worlds' time per second.
    pub fn pace(&self, took: Duration) -> Pace {
        let seconds = took.as_secs_f64().max(0.001);
        let hours = Duration::from_millis(self.virtual_ms).as_secs_f64() / 3_600.0;
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        Pace { seeds: self.seeds as f64 / seconds, hours: hours / seconds }
    }

    /// The summary, a line per matter.
    pub fn report(&self, took: Duration) -> String {
        let mut text = String::new();
        let Pace { seeds, hours } = self.pace(took);
        let _ = writeln!(
            text,
            "{} seeds in {:.1} s: {seeds:.0} seeds/s, {hours:.2} simulated hours/s",
            self.seeds,
            took.as_secs_f64()
        );
        let _ = writeln!(
            text,
            "{} committed, {} delivered, {} effects, {} steps",
            self.committed, self.delivered, self.effects, self.steps
        );
        let _ = writeln!(text, "stores: {}", listed(&self.stores, |kind| named(*kind)));
        let faults = if self.faults.is_empty() {
            "none".to_owned()
        } else {
            listed(&self.faults, |name| (*name).to_owned())
        };
        let _ = writeln!(text, "faults that struck: {faults}");
        let never = self.never_struck();
        if !never.is_empty() {
            let _ = writeln!(text, "planned, and never struck: {}", never.join(", "));
        }
        let _ = match self.vacuous_runs {
            0 => writeln!(text, "vacuous: none"),
            some => {
                writeln!(text, "vacuous: {some} runs: {}", listed(&self.vacuous, String::clone))
            }
        };
        let _ = writeln!(text, "failures: {}", self.failures.len());
        text
    }
}

/// How fast many runs were.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Runs per second of real time.
    pub seeds: f64,
    /// Hours of the worlds' time per second of real time.
    pub hours: f64,
}

/// The name of a kind in a scenario.
fn named(kind: Kind) -> String {
    serde_json::to_value(kind)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn listed<K>(counts: &BTreeMap<K, u64>, name: impl Fn(&K) -> String) -> String {
    let each: Vec<String> =
        counts.iter().map(|(key, count)| format!("{} {count}", name(key))).collect();
    each.join(", ")
}

/// Why a run that passed proves little.
fn vacuous(outcome: &Outcome) -> Vec<String> {
    let tally = &outcome.tally;
    let mut reasons = Vec::new();
    if tally.committed == 0 {
        reasons.push("nothing was committed".to_owned());
    } else if tally.delivered == 0 {
        reasons.push("nothing was delivered".to_owned());
    }
    reasons.extend(tally.unfired.iter().map(|what| format!("{what} never struck")));
    reasons
}

#[cfg(test)]
mod tests {
    use postrider_core::Invariant;

    use super::*;
    use crate::attempt::Attempt;
    use crate::outcome::{Failure, Tally};

    #[test]
    fn a_fault_that_is_planned_again_and_again_and_never_strikes_is_named() {
        let mut total = Total::default();
        for seed in 0..200 {
            total.add(&ended(seed, 1, &[]));
        }
        let never = total.never_struck();
        assert!(never.contains(&"poison") && never.contains(&"relay_killed"), "{never:?}");
        assert!(!never.contains(&"line_lost_back"), "{never:?}");
        assert!(total.report(Duration::from_secs(1)).contains("planned, and never struck: "));
    }

    fn ended(seed: u64, delivered: u64, unfired: &[&str]) -> Ended {
        let tally = Tally {
            committed: 2,
            delivered,
            virtual_ms: 1_800_000,
            faults: [("line_lost_back", 3)].into(),
            unfired: unfired.iter().map(|what| (*what).to_owned()).collect(),
            ..Tally::default()
        };
        let failure = (seed == 3).then(|| Failure::new(Invariant::NoLoss, "gone"));
        let defect = failure.clone().map(Defect::Broken);
        let (fingerprint, story, reached) = (seed, Vec::new(), vec![1, seed]);
        let outcome = Outcome { failure, fingerprint, story, tally, reached };
        Ended { seed, attempt: Attempt { outcome: Some(outcome), defect } }
    }

    #[test]
    fn runs_that_prove_little_are_counted_by_their_reason() {
        let mut total = Total::default();
        for run in [ended(1, 2, &[]), ended(2, 0, &["kill_relay"]), ended(3, 1, &["kill_relay"])] {
            total.add(&run);
        }
        total.add(&Ended { seed: 4, attempt: Attempt::hung() });
        assert_eq!((total.seeds, total.vacuous_runs, total.failures.len()), (4, 2, 2));
        assert_eq!(total.reached, [3, 6]);
        assert!(total.never_struck().is_empty(), "four runs are not many");
        let report = total.report(Duration::from_secs(2));
        assert!(report.contains("4 seeds in 2.0 s: 2 seeds/s, 0.75 simulated hours/s"), "{report}");
        assert!(report.contains("faults that struck: line_lost_back 9"), "{report}");
        let vacuous = "vacuous: 2 runs: kill_relay never struck 2, nothing was delivered 1";
        assert!(report.contains(vacuous), "{report}");
        assert!(report.contains("failures: 2"), "{report}");
    }
}
