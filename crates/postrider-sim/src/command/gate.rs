//! What every change must pass, written like the output of a test program, so that it is counted
//! like one.

use std::io;
use std::time::{Duration, Instant};

use postrider_sim::fixture;
use postrider_sim::many::Plan;
use postrider_sim::total::Total;

use super::arguments::Arguments;
use super::{Context, failure, mutants, seeds, twice};

/// Seeds of one line.
const BATCH: u64 = 100;
/// Seeds that are run twice.
const TWICE: u64 = 50;
/// How long the seeds may take: on a machine that is slower than that, fewer are run, and it says so.
const SEEDS_WITHIN: Duration = Duration::from_secs(180);
/// So many it must be on any machine: fewer say little.
const SEEDS_LEAST: u64 = 500;
/// How long the search for planted bugs may take.
const MUTANTS_WITHIN: Duration = Duration::from_secs(120);

/// Runs all of it.
pub(super) fn run(context: &mut Context<'_>, arguments: &Arguments) -> io::Result<bool> {
    let began = Instant::now();
    let mut count = Count::default();
    replay_fixtures(context, &mut count)?;
    compare(context, arguments, &mut count)?;
    run_seeds(context, arguments, &mut count)?;
    search_planted(context, arguments, &mut count)?;
    let Count { passed, failed, ignored } = count;
    let word = if failed == 0 { "ok" } else { "FAILED" };
    writeln!(
        context.out,
        "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; \
         0 filtered out; finished in {:.2}s",
        began.elapsed().as_secs_f64()
    )?;
    Ok(failed == 0)
}

#[derive(Debug, Default)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Count {
    /// A line of a test; what is to be said of a failure stands before it.
    fn line(&mut self, context: &mut Context<'_>, name: &str, passed: bool) -> io::Result<()> {
        let word = if passed { "ok" } else { "FAILED" };
        self.passed += u64::from(passed);
        self.failed += u64::from(!passed);
        writeln!(context.out, "test sim::{name} ... {word}")
    }

    /// A line of a test that was not run.
    fn skip(&mut self, context: &mut Context<'_>, name: &str, reason: &str) -> io::Result<()> {
        self.ignored += 1;
        writeln!(context.out, "skipped: sim::{name}: {reason}")
    }
}

fn replay_fixtures(context: &mut Context<'_>, count: &mut Count) -> io::Result<()> {
    let all = match fixture::all(&context.fixtures()) {
        Ok(all) => all,
        Err(reason) => {
            writeln!(context.out, "{reason}")?;
            return count.line(context, "fixtures", false);
        }
    };
    for (name, fixture) in all {
        let result = fixture.replay(&context.runner, &context.planted);
        if let Err(reason) = &result {
            writeln!(context.out, "fixture {name} {reason}")?;
            let path = context.fixtures().join(format!("{name}.json"));
            let path = context.shown(&path);
            writeln!(context.out, "    again: cargo x sim --fixture {path} --trace")?;
        }
        count.line(context, &format!("fixture::{name}"), result.is_ok())?;
    }
    Ok(())
}

fn compare(context: &mut Context<'_>, arguments: &Arguments, count: &mut Count) -> io::Result<()> {
    let plan = Plan { seeds: TWICE, ..context.plan(arguments) };
    let differing = twice::differing(&plan);
    for (seed, how) in &differing {
        writeln!(context.out, "seed {seed} is not the same twice: {how}")?;
    }
    count.line(context, &format!("twice::{TWICE}_seeds"), differing.is_empty())
}

fn run_seeds(
    context: &mut Context<'_>,
    arguments: &Arguments,
    count: &mut Count,
) -> io::Result<()> {
    let mut plan = context.plan(arguments);
    plan.until = Some(Instant::now() + SEEDS_WITHIN);
    let began = Instant::now();
    let total = seeds::sum(&plan, |_| {});
    let took = began.elapsed();
    failure::report(context, &total.failures, None, arguments.keep)?;
    let end = plan.from + plan.seeds;
    let mut first = plan.from;
    while first < end {
        let last = (first + BATCH).min(end) - 1;
        let name = format!("seeds::{first}_to_{last}");
        if last < plan.from + total.seeds {
            let failed = total.failures.iter().any(|(seed, _)| (first..=last).contains(seed));
            count.line(context, &name, !failed)?;
        } else {
            let reason = format!("not run within {} s on this machine", SEEDS_WITHIN.as_secs());
            count.skip(context, &name, &reason)?;
        }
        first = last + 1;
    }
    context.out.write_all(total.report(took).as_bytes())?;
    let shown = shows_something(&total, plan.seeds.min(SEEDS_LEAST));
    if let Err(reason) = &shown {
        writeln!(context.out, "{reason}")?;
    }
    count.line(context, "seeds::show_something", shown.is_ok())
}

/// Runs in which nothing happened prove nothing.
fn shows_something(total: &Total, least: u64) -> Result<(), String> {
    if total.seeds < least {
        return Err(format!(
            "only {} worlds were run in the time, of {least} at least",
            total.seeds
        ));
    }
    if total.vacuous_runs * 10 > total.seeds {
        return Err(format!("{} of {} runs are vacuous", total.vacuous_runs, total.seeds));
    }
    let never = total.never_struck();
    if !never.is_empty() {
        return Err(format!("planned in many runs, and never struck: {}", never.join(", ")));
    }
    Ok(())
}

fn search_planted(
    context: &mut Context<'_>,
    arguments: &Arguments,
    count: &mut Count,
) -> io::Result<()> {
    if context.planted.is_empty() {
        return count.skip(context, "planted", "no bugs are planted in this build");
    }
    let mut plan = context.plan(arguments);
    let until = Instant::now() + MUTANTS_WITHIN;
    plan.until = Some(until);
    let page = std::fs::read_to_string(context.page()).unwrap_or_default();
    let record = mutants::on_record(&page);
    let mut moved = Vec::new();
    for planted in context.planted.clone() {
        let name = format!("planted::{}", planted.name);
        let known =
            record.get(planted.name).map(|seed| Plan { from: *seed, seeds: 1, ..plan.clone() });
        let mut found = known.and_then(|plan| mutants::search(&plan, planted));
        if found.is_none() {
            moved.push(planted.name);
            found = mutants::search(&plan, planted);
        }
        if found.is_none() && Instant::now() >= until {
            let within = MUTANTS_WITHIN.as_secs();
            count.skip(context, &name, &format!("not found within {within} s on this machine"))?;
            continue;
        }
        if found.is_none() {
            let seeds = arguments.seeds;
            writeln!(context.out, "{}: {seeds} seeds pass with it planted", planted.name)?;
        }
        count.line(context, &name, found.is_some())?;
    }
    if !moved.is_empty() {
        let (names, page) = (moved.join(", "), context.shown(&context.page()));
        writeln!(
            context.out,
            "{page} names no seed that finds {names}; `cargo x sim --mutants --bless` writes them"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::sync::Arc;

    use postrider_core::Invariant;
    use postrider_sim::attempt::Runner;
    use postrider_sim::outcome::{Failure, Outcome, Tally};
    use postrider_sim::planted::Planted;
    use postrider_sim::scenario::Scenario;

    use super::*;

    /// A world that fails where this is so.
    fn world(fails: fn(u64, Option<&str>) -> bool, delivered: u64) -> Runner {
        Arc::new(move |scenario, options| Outcome {
            failure: fails(scenario.seed, options.mutant)
                .then(|| Failure::new(Invariant::NoLoss, "gone")),
            fingerprint: 0,
            story: Vec::new(),
            tally: Tally { committed: 1, delivered, faults: planned(), ..Tally::default() },
            reached: Vec::new(),
        })
    }

    /// Every fault, as if it had struck.
    fn planned() -> BTreeMap<&'static str, u64> {
        let mut names = BTreeMap::new();
        for mut scenario in (0..200).map(Scenario::of) {
            names.extend(scenario.rates.each().map(|(name, _)| (name, 1)));
            names.extend(scenario.incidents.iter().map(|incident| (incident.what.name(), 1)));
        }
        names
    }

    fn gate(runner: Runner) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let words = ["--gate", "--seeds", "200"].map(str::to_owned).to_vec();
        let planted = vec![Planted { name: "BreakerDrops", mistake: "" }];
        let arguments = Arguments::read(words, &planted).unwrap();
        let mut out = Vec::new();
        let home: PathBuf = folder.path().join("crates/sim");
        let mut context = Context { runner, planted, home, out: &mut out };
        let passed = run(&mut context, &arguments).unwrap();
        (passed, String::from_utf8(out).unwrap())
    }

    #[test]
    fn what_is_right_passes_and_is_counted() {
        let (passed, text) = gate(world(|_, mutant| mutant.is_some(), 1));
        assert!(passed, "{text}");
        assert!(text.contains("test sim::seeds::100_to_199 ... ok"), "{text}");
        assert!(text.contains("test result: ok. 5 passed; 0 failed"), "{text}");
    }

    #[test]
    fn a_seed_that_fails_fails_its_batch_and_says_how_to_see_it() {
        let (passed, text) = gate(world(|seed, mutant| seed == 117 || mutant.is_some(), 1));
        assert!(!passed, "{text}");
        assert!(text.contains("test sim::seeds::0_to_99 ... ok"), "{text}");
        assert!(text.contains("test sim::seeds::100_to_199 ... FAILED"), "{text}");
        assert!(text.contains("again: cargo x sim --seed 117 --trace"), "{text}");
        let fixture =
            "again: cargo x sim --fixture target/sim-failures/inv-1-seed-117.json --trace";
        assert!(text.contains(fixture), "{text}");
        assert!(text.contains("test result: FAILED. 4 passed; 1 failed"), "{text}");
    }

    #[test]
    fn a_planted_bug_that_nothing_finds_fails() {
        let (passed, text) = gate(world(|_, _| false, 1));
        assert!(!passed);
        assert!(text.contains("test sim::planted::BreakerDrops ... FAILED"), "{text}");
    }

    #[test]
    fn runs_in_which_nothing_happens_fail() {
        let (passed, text) = gate(world(|_, mutant| mutant.is_some(), 0));
        assert!(!passed);
        assert!(text.contains("test sim::seeds::show_something ... FAILED"), "{text}");
    }
}
