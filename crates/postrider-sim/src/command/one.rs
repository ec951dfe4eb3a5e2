//! One world, with its story if somebody wants it.

use std::io;
use std::path::Path;

use postrider_sim::attempt::{Attempt, Options};
use postrider_sim::fixture::Fixture;
use postrider_sim::scenario::Scenario;

use super::Context;
use super::arguments::Arguments;

/// The world of a seed.
pub(super) fn seed(
    context: &mut Context<'_>,
    seed: u64,
    arguments: &Arguments,
) -> io::Result<bool> {
    let options = Options { trace: arguments.trace, mutant: arguments.mutant };
    show(context, &format!("seed {seed}"), &Scenario::of(seed), &options)
}

/// The world of a fixture, with its planted bug if it has one.
pub(super) fn fixture(
    context: &mut Context<'_>,
    path: &Path,
    arguments: &Arguments,
) -> io::Result<bool> {
    // Paths are printed as seen from the root, and typed there or elsewhere.
    let path = if path.exists() { path.to_owned() } else { context.root().join(path) };
    let fixture = match Fixture::read(&path) {
        Ok(fixture) => fixture,
        Err(reason) => {
            writeln!(context.out, "error: {reason}")?;
            return Ok(false);
        }
    };
    writeln!(context.out, "bug: {}", fixture.bug)?;
    let mut mutant = arguments.mutant;
    if let Some(fails) = &fixture.fails {
        let planted = context.planted.iter().find(|planted| planted.name == fails.mutant);
        mutant = mutant.or_else(|| planted.map(|planted| planted.name));
        match mutant {
            Some(name) => writeln!(context.out, "planted: {name}")?,
            None => writeln!(context.out, "{} cannot be planted in this build", fails.mutant)?,
        }
    }
    let options = Options { trace: arguments.trace, mutant };
    show(context, &context.shown(&path), &fixture.scenario, &options)
}

fn show(
    context: &mut Context<'_>,
    name: &str,
    scenario: &Scenario,
    options: &Options,
) -> io::Result<bool> {
    if options.trace {
        let text = serde_json::to_string(scenario).unwrap_or_default();
        writeln!(context.out, "{text}")?;
    }
    let Attempt { outcome, defect } = Attempt::at(&context.runner, scenario, options);
    for line in outcome.iter().flat_map(|outcome| &outcome.story) {
        writeln!(context.out, "{line}")?;
    }
    if let Some(outcome) = &outcome {
        let tally = &outcome.tally;
        let faults: Vec<String> =
            tally.faults.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(
            context.out,
            "{name}: {} committed, {} delivered, {} effects in {:.1} simulated seconds; {} steps, \
             fingerprint {:016x}; faults: {}{}",
            tally.committed,
            tally.delivered,
            tally.effects,
            std::time::Duration::from_millis(tally.virtual_ms).as_secs_f64(),
            tally.steps,
            outcome.fingerprint,
            if faults.is_empty() { "none".to_owned() } else { faults.join(", ") },
            never(&tally.unfired),
        )?;
    }
    match &defect {
        Some(defect) => writeln!(context.out, "{name} FAILED: {defect}")?,
        None => writeln!(context.out, "{name} passed")?,
    }
    Ok(defect.is_none())
}

fn never(unfired: &[String]) -> String {
    if unfired.is_empty() {
        String::new()
    } else {
        format!("; never struck: {}", unfired.join(", "))
    }
}
