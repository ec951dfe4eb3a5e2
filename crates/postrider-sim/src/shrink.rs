//! A failing scenario, made smaller: what is left is what the failure needs.
//!
//! It works on the scenario as data, so that a field that is added later is made smaller as well. What
//! it tries comes in one order and depends on nothing but the answers: the same failure always ends
//! as the same small scenario. It is kept only if it fails the same way.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::attempt::Defect;
use crate::scenario::Scenario;

/// The least that still makes a world.
const FLOORS: [(&str, u64); 8] = [
    ("/apps", 1),
    ("/destinations", 1),
    ("/keys", 1),
    ("/partitions", 1),
    ("/relays", 1),
    ("/span_ms", 1_000),
    ("/transactions", 1),
    ("/window_rows", 8),
];

/// Left alone: another seed is another run, and an earlier moment is not a smaller one.
const FIXED: [&str; 2] = ["/seed", "/at_ms"];

/// How often a number is halved towards what it failed to be: closer is not worth the runs.
const HALVINGS: u32 = 4;

/// When to be content.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Runs. 400: a few seconds' worth, and more than most failures need.
    pub runs: u32,
    /// Real time, checked between runs. A minute: somebody waits for the report.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { runs: 400, time: Duration::from_secs(60) }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest that failed the same way.
    pub scenario: Scenario,
    /// How it failed.
    pub defect: Defect,
    /// Runs that it took.
    pub runs: u32,
}

/// Makes a failing scenario smaller. `run` says how a scenario fails, if it does.
pub fn shrink(
    scenario: &Scenario,
    defect: &Defect,
    limits: Limits,
    run: &mut dyn FnMut(&Scenario) -> Option<Defect>,
) -> Shrunk {
    let mut search = Search {
        data: serde_json::to_value(scenario).unwrap_or_default(),
        best: Shrunk { scenario: scenario.clone(), defect: defect.clone(), runs: 0 },
        limits,
        began: Instant::now(),
        run,
    };
    while !search.spent() {
        let before = search.data.clone();
        search.shorten_lists();
        search.silence_rates();
        search.switch_off();
        search.lower_numbers();
        if search.data == before {
            break;
        }
    }
    search.best
}

struct Search<'a> {
    /// The smallest so far.
    best: Shrunk,
    /// The same as data.
    data: Value,
    limits: Limits,
    began: Instant,
    run: &'a mut dyn FnMut(&Scenario) -> Option<Defect>,
}

impl Search<'_> {
    fn spent(&self) -> bool {
        self.best.runs >= self.limits.runs || self.began.elapsed() >= self.limits.time
    }

    /// Tries what a change makes of the best; whether it still fails the same way, and is the best now.
    fn keeps(&mut self, change: impl FnOnce(&mut Value)) -> bool {
        let mut data = self.data.clone();
        change(&mut data);
        if data == self.data || self.spent() {
            return false;
        }
        let Ok(scenario) = serde_json::from_value::<Scenario>(data.clone()) else { return false };
        self.best.runs += 1;
        let Some(defect) = (self.run)(&scenario) else { return false };
        if !defect.is_like(&self.best.defect) {
            return false;
        }
        self.best = Shrunk { scenario, defect, runs: self.best.runs };
        self.data = data;
        true
    }

    /// Leaves out entries of each list: all, halves, quarters, … single ones.
    fn shorten_lists(&mut self) {
        for place in places(&self.data, Value::is_array) {
            let length = |data: &Value| data.pointer(&place).map_or(0, |list| array(list).len());
            let mut chunk = length(&self.data);
            while chunk > 0 {
                // From the end, so that what is left out does not move what is tried next.
                let mut end = length(&self.data);
                while end > 0 {
                    let start = end.saturating_sub(chunk);
                    self.keeps(|data| drop(entries(data, &place).drain(start..end)));
                    end = start;
                }
                chunk /= 2;
            }
        }
    }

    /// Sets rates to zero: all at once, halves of them, single ones.
    fn silence_rates(&mut self) {
        let all = places(&self.data, |value| value.as_u64().is_some_and(|rate| rate > 0));
        let all: Vec<String> = all.into_iter().filter(|at| at.starts_with("/rates/")).collect();
        let mut chunk = all.len();
        while chunk > 0 {
            for some in all.chunks(chunk) {
                self.keeps(|data| some.iter().for_each(|place| put(data, place, 0.into())));
            }
            chunk /= 2;
        }
    }

    fn switch_off(&mut self) {
        for place in places(&self.data, |value| value == &Value::Bool(true)) {
            self.keeps(|data| put(data, &place, false.into()));
        }
    }

    /// Sets each number to its floor, or else halves its way there.
    fn lower_numbers(&mut self) {
        for place in places(&self.data, Value::is_u64) {
            if FIXED.iter().any(|fixed| place.ends_with(fixed)) {
                continue;
            }
            let floor = FLOORS.iter().find(|(at, _)| *at == place).map_or(0, |(_, least)| *least);
            let Some(mut fails) = self.data.pointer(&place).and_then(Value::as_u64) else {
                continue;
            };
            if fails <= floor || self.keeps(|data| put(data, &place, floor.into())) {
                continue;
            }
            let mut passes = floor;
            for _ in 0..HALVINGS {
                let middle = passes + (fails - passes) / 2;
                if middle == passes {
                    break;
                }
                if self.keeps(|data| put(data, &place, middle.into())) {
                    fails = middle;
                } else {
                    passes = middle;
                }
            }
        }
    }
}

/// Where values of a sort stand, as JSON pointers, in the order of the data.
fn places(data: &Value, wanted: impl Fn(&Value) -> bool + Copy) -> Vec<String> {
    fn walk(data: &Value, at: &str, wanted: &dyn Fn(&Value) -> bool, found: &mut Vec<String>) {
        if wanted(data) {
            found.push(at.to_owned());
        }
        match data {
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    walk(value, &format!("{at}/{index}"), wanted, found);
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    walk(value, &format!("{at}/{name}"), wanted, found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(data, "", &wanted, &mut found);
    found
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn entries<'a>(data: &'a mut Value, place: &str) -> &'a mut Vec<Value> {
    let list = data.pointer_mut(place).and_then(Value::as_array_mut);
    list.expect("invariant: the place of a list that was just seen")
}

fn put(data: &mut Value, place: &str, value: Value) {
    if let Some(at) = data.pointer_mut(place) {
        *at = value;
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Invariant;

    use super::*;
    use crate::incident::{Incident, What};
    use crate::outcome::Failure;

    fn broken(invariant: Invariant) -> Defect {
        Defect::Broken(Failure::new(invariant, "as it was"))
    }

    fn pause(relay: u8) -> Incident {
        Incident { at_ms: 7_000, what: What::PauseRelay { relay, steps: 1, for_ms: 2_000 } }
    }

    /// A scenario with everything in it.
    fn large() -> Scenario {
        let mut scenario = Scenario::of(4);
        scenario.rates.each().into_iter().for_each(|(_, rate)| *rate = 300);
        scenario.incidents = (0..8).map(pause).collect();
        scenario.transactions = 40;
        scenario.relays = 5;
        scenario.operator = 2_000;
        scenario.retention = true;
        scenario.span_ms = 100_000;
        scenario
    }

    fn run(fails: impl Fn(&Scenario) -> Option<Defect>, limits: Limits) -> Shrunk {
        shrink(&large(), &broken(Invariant::NoLoss), limits, &mut |scenario| fails(scenario))
    }

    #[test]
    fn what_the_failure_needs_stays_and_everything_else_goes() {
        let needs = |scenario: &Scenario| {
            let paused = scenario.incidents.contains(&pause(3));
            let enough = paused && scenario.rates.poison > 0 && scenario.transactions >= 11;
            enough.then(|| broken(Invariant::NoLoss))
        };
        let small = run(needs, Limits::default());
        assert_eq!(small.scenario.incidents, [pause(3)]);
        let mut rates = small.scenario.rates;
        let left: Vec<_> = rates.each().into_iter().filter(|(_, rate)| **rate > 0).collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].0, "poison");
        assert!((11..16).contains(&small.scenario.transactions), "{:?}", small.scenario);
        assert_eq!((small.scenario.relays, small.scenario.span_ms), (1, 1_000));
        assert_eq!((small.scenario.operator, small.scenario.retention), (0, false));
        assert_eq!(small.scenario.seed, large().seed);
        assert!(small.runs < 150, "{}", small.runs);
    }

    #[test]
    fn two_faults_that_are_needed_together_both_stay() {
        let both = |scenario: &Scenario| {
            let both = [1, 6].iter().all(|relay| scenario.incidents.contains(&pause(*relay)));
            both.then(|| broken(Invariant::NoLoss))
        };
        assert_eq!(run(both, Limits::default()).scenario.incidents, [pause(1), pause(6)]);
    }

    #[test]
    fn another_failure_is_not_the_same_one_made_smaller() {
        let other = |scenario: &Scenario| {
            let whole = *scenario == large();
            Some(broken(if whole { Invariant::NoLoss } else { Invariant::KeyOrder }))
        };
        let small = run(other, Limits::default());
        assert_eq!(small.scenario, large());
        assert_eq!(small.defect, broken(Invariant::NoLoss));
    }

    #[test]
    fn it_ends_when_its_runs_or_its_time_are_spent() {
        let always = |_: &Scenario| Some(broken(Invariant::NoLoss));
        let few = Limits { runs: 3, ..Limits::default() };
        assert_eq!(run(always, few).runs, 3);
        let hurried = Limits { time: Duration::ZERO, ..Limits::default() };
        assert_eq!(run(always, hurried).scenario, large());
    }

    #[test]
    fn the_same_failure_ends_as_the_same_small_scenario() {
        let odd = |scenario: &Scenario| {
            let odd = scenario.incidents.len() % 2 == 1 || scenario.keys > 2;
            odd.then(|| broken(Invariant::NoLoss))
        };
        let (one, two) = (run(odd, Limits::default()), run(odd, Limits::default()));
        assert_eq!((one.scenario, one.runs), (two.scenario, two.runs));
    }
}
