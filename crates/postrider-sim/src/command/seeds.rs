//! Many seeds: what failed, what was shown, how fast it went.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use postrider_sim::many::{Ended, Plan};
use postrider_sim::table;
use postrider_sim::total::Total;

use super::arguments::Arguments;
use super::{Context, failure};

/// How often progress is told.
const PROGRESS: Duration = Duration::from_secs(5);

/// Runs them, and reports.
pub(super) fn run(context: &mut Context<'_>, arguments: &Arguments) -> io::Result<bool> {
    let plan = context.plan(arguments);
    let began = Instant::now();
    let total = sum(&plan, |_| {});
    let took = began.elapsed();
    failure::report(context, &total.failures, arguments.mutant, arguments.keep)?;
    context.out.write_all(total.report(took).as_bytes())?;
    if total.seeds < plan.seeds {
        let left = plan.seeds - total.seeds;
        writeln!(context.out, "{left} seeds were not begun: the time was over")?;
    }
    let passed = total.failures.is_empty();
    if arguments.bless {
        return Ok(context.bless("figures", &figures(&total, &plan, took))? && passed);
    }
    Ok(passed)
}

/// Runs them and sums them up, with a line about progress now and then.
pub(super) fn sum(plan: &Plan, mut each: impl FnMut(&Ended)) -> Total {
    let mut total = Total::default();
    let began = Instant::now();
    let mut told = began;
    plan.run(|ended| {
        total.add(&ended);
        each(&ended);
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let pace = total.pace(began.elapsed());
            eprintln!(
                "{} of {} seeds, {:.0} seeds/s, {:.2} simulated hours/s, {} failed",
                total.seeds,
                plan.seeds,
                pace.seeds,
                pace.hours,
                total.failures.len()
            );
        }
        ControlFlow::Continue(())
    });
    total
}

/// What is written into the page.
fn figures(total: &Total, plan: &Plan, took: Duration) -> String {
    let pace = total.pace(took);
    let rows = [
        ("seeds", format!("{} to {}", plan.from, plan.from + total.seeds.saturating_sub(1))),
        ("threads", plan.jobs.to_string()),
        ("seeds per second", format!("{:.0}", pace.seeds)),
        ("simulated hours per second", format!("{:.2}", pace.hours)),
        ("events committed", total.committed.to_string()),
        ("deliveries", total.delivered.to_string()),
        ("effects", total.effects.to_string()),
        ("faults that struck", total.faults.values().sum::<u64>().to_string()),
        ("runs that are vacuous in part", total.vacuous_runs.to_string()),
        ("failures", total.failures.len().to_string()),
    ];
    table::markdown(&["Measured", ""], rows.map(|(name, value)| vec![name.to_owned(), value]))
}
