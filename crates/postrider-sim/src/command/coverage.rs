//! What many seeds reach.

use std::io;

use postrider_sim::coverage;

use super::arguments::Arguments;
use super::{Context, failure, seeds};

/// Runs seeds, and tells of every spot.
pub(super) fn run(context: &mut Context<'_>, arguments: &Arguments) -> io::Result<bool> {
    if !postrider_sim::planted::PROBES {
        writeln!(context.out, "probes are not compiled in; `cargo x sim` builds with them")?;
        return Ok(false);
    }
    let plan = context.plan(arguments);
    let total = seeds::sum(&plan, |_| {});
    failure::report(context, &total.failures, arguments.mutant, arguments.keep)?;
    let all = coverage::named(&total.reached);
    context.out.write_all(coverage::report(&all).as_bytes())?;
    writeln!(context.out, "over {} seeds from {}", total.seeds, plan.from)?;
    let passed = total.failures.is_empty();
    if arguments.bless {
        return Ok(context.bless("coverage", &coverage::page(&all))? && passed);
    }
    Ok(passed)
}
