//! What is said of a seed that failed: the promise, what happened, and how to see it again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_sim::attempt::{Attempt, Defect, Options, Runner};
use postrider_sim::fixture::{Fails, Fixture};
use postrider_sim::scenario::Scenario;
use postrider_sim::shrink::{Limits, Shrunk, shrink};

use super::Context;

/// Failures that are made smaller: each kind of defect once, and no more of them than somebody reads.
const SHRUNK_MAX: usize = 5;
/// Failures that are told of one by one.
const TOLD_MAX: usize = 20;

/// Letters of a failure that is told a second time.
const BRIEF: usize = 200;

/// Tells of failures, in order of their seeds. Keeps what was made smaller in a folder.
pub(super) fn report(
    context: &mut Context<'_>,
    failures: &[(u64, Defect)],
    mutant: Option<&'static str>,
    keep: bool,
) -> io::Result<()> {
    let mut kinds: Vec<&Defect> = Vec::new();
    for (seed, defect) in failures.iter().take(TOLD_MAX) {
        told(context, *seed, defect, mutant)?;
        let fresh = !kinds.iter().any(|known| known.is_like(defect));
        if fresh && kinds.len() < SHRUNK_MAX && *defect != Defect::Hung {
            kinds.push(defect);
            kept(context, *seed, defect, mutant, keep)?;
        }
    }
    if let Some(more) = failures.len().checked_sub(TOLD_MAX).filter(|more| *more > 0) {
        writeln!(context.out, "and {more} more seeds")?;
    }
    Ok(())
}

fn told(
    context: &mut Context<'_>,
    seed: u64,
    defect: &Defect,
    mutant: Option<&str>,
) -> io::Result<()> {
    writeln!(context.out, "seed {seed} failed: {defect}")?;
    writeln!(context.out, "    again: {}", again(seed, mutant))
}

/// The command that shows a seed again.
pub(super) fn again(seed: u64, mutant: Option<&str>) -> String {
    let mutant = mutant.map(|name| format!(" --mutant {name}")).unwrap_or_default();
    format!("cargo x sim --seed {seed}{mutant} --trace")
}

fn kept(
    context: &mut Context<'_>,
    seed: u64,
    defect: &Defect,
    mutant: Option<&'static str>,
    keep: bool,
) -> io::Result<()> {
    let options = Options { trace: false, mutant };
    let small = smaller(&context.runner, &Scenario::of(seed), defect, &options);
    let folder = if keep { context.fixtures() } else { context.root().join("target/sim-failures") };
    let name = Fixture::name(defect, mutant, seed);
    let planted = context.planted.iter().find(|planted| Some(planted.name) == mutant);
    let bug = planted.map_or_else(|| brief(&small.defect), |planted| planted.mistake.to_owned());
    match store(&folder, &name, &small, mutant, bug) {
        Ok(path) => {
            let (path, runs) = (context.shown(&path), small.runs);
            writeln!(context.out, "    made smaller in {runs} runs: {}", brief(&small.defect))?;
            writeln!(context.out, "    again: cargo x sim --fixture {path} --trace")
        }
        Err(reason) => writeln!(context.out, "    what was made smaller is lost: {reason}"),
    }
}

fn smaller(runner: &Runner, scenario: &Scenario, defect: &Defect, options: &Options) -> Shrunk {
    let runner = Arc::clone(runner);
    shrink(scenario, defect, Limits::default(), &mut |scenario| {
        Attempt::at(&runner, scenario, options).defect
    })
}

fn store(
    folder: &Path,
    name: &str,
    small: &Shrunk,
    mutant: Option<&str>,
    bug: String,
) -> Result<PathBuf, String> {
    let fails = mutant.map(|mutant| Fails { mutant: mutant.to_owned() });
    Fixture { bug, fails, scenario: small.scenario.clone() }.write(folder, name)
}

/// What happened, without the state of everything at the end.
fn brief(defect: &Defect) -> String {
    let text = match defect {
        Defect::Broken(failure) => format!("{}: {}", failure.invariant, failure.what),
        other => other.to_string(),
    };
    match text.char_indices().nth(BRIEF) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
