//! Each planted bug, and the first seed that finds it: a checker that never failed proves nothing.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use postrider_sim::attempt::{Attempt, Defect, Options, Runner};
use postrider_sim::many::Plan;
use postrider_sim::planted::Planted;
use postrider_sim::scenario::Scenario;
use postrider_sim::table;

use super::Context;
use super::arguments::Arguments;

/// A planted bug that was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) seed: u64,
    /// Seeds that it took, this one included.
    pub(super) needed: u64,
    pub(super) defect: Defect,
}

/// Searches for each, and tells.
pub(super) fn run(context: &mut Context<'_>, arguments: &Arguments) -> io::Result<bool> {
    if context.planted.is_empty() {
        writeln!(context.out, "no bugs are planted in this build; `cargo x sim` builds with them")?;
        return Ok(false);
    }
    let mut rows = Vec::new();
    let mut survivors = Vec::new();
    let began = Instant::now();
    for planted in context.planted.clone() {
        if arguments.mutant.is_some_and(|only| only != planted.name) {
            continue;
        }
        let found = search(&context.plan(arguments), planted);
        eprintln!("{}: {}", planted.name, told(found.as_ref()));
        if found.is_none() {
            survivors.push(planted.name);
        }
        rows.push((planted, found));
    }
    let cells: Vec<Vec<String>> = rows.iter().map(|(planted, found)| row(planted, found)).collect();
    let head = HEAD.map(str::to_owned).to_vec();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(cells.clone()).collect();
    context.out.write_all(table::columns(&all).as_bytes())?;
    let (count, seconds) = (rows.len() - survivors.len(), began.elapsed().as_secs_f64());
    writeln!(context.out, "{count} of {} found in {seconds:.1} s", rows.len())?;
    if !survivors.is_empty() {
        let names = survivors.join(", ");
        writeln!(context.out, "SURVIVED {} seeds: {names}", arguments.seeds)?;
    }
    if arguments.bless && arguments.mutant.is_none() {
        let page: Vec<Vec<String>> =
            rows.iter().map(|(planted, found)| on_page(planted, found)).collect();
        return Ok(context.bless("mutants", &table::markdown(&HEAD, page))? && survivors.is_empty());
    }
    Ok(survivors.is_empty())
}

const HEAD: [&str; 5] = ["Planted bug", "The mistake", "Found by", "First seed", "Seeds needed"];

/// The first seed of a plan that fails with the bug, and passes without it.
pub(super) fn search(plan: &Plan, planted: Planted) -> Option<Found> {
    let options = Options { trace: false, mutant: Some(planted.name) };
    let plan = Plan { options, ..plan.clone() };
    let mut found = None;
    plan.run(|ended| {
        let Some(defect) = ended.attempt.defect else { return ControlFlow::Continue(()) };
        // What fails without it as well shows something else.
        if !passes(&plan.runner, ended.seed) {
            return ControlFlow::Continue(());
        }
        let needed = ended.seed - plan.from + 1;
        found = Some(Found { seed: ended.seed, needed, defect });
        ControlFlow::Break(())
    });
    found
}

fn passes(runner: &Runner, seed: u64) -> bool {
    Attempt::at(&Arc::clone(runner), &Scenario::of(seed), &Options::default()).defect.is_none()
}

/// The seeds that the page names, by planted bug.
pub(super) fn on_record(page: &str) -> BTreeMap<String, u64> {
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split(" | ").collect();
        let name = cells.first()?.strip_prefix("| `")?.strip_suffix('`')?;
        Some((name.to_owned(), cells.get(cells.len().checked_sub(2)?)?.parse().ok()?))
    });
    rows.collect()
}

/// In a few words.
pub(super) fn told(found: Option<&Found>) -> String {
    found.map_or_else(
        || "not found".to_owned(),
        |found| format!("{} at seed {}", found.defect.kind(), found.seed),
    )
}

fn row(planted: &Planted, found: &Option<Found>) -> Vec<String> {
    let mut cells = vec![planted.name.to_owned(), planted.mistake.to_owned()];
    match found {
        Some(found) => {
            cells.extend([found.defect.kind(), found.seed.to_string(), found.needed.to_string()])
        }
        None => cells.extend(["not found".to_owned(), String::new(), String::new()]),
    }
    cells
}

fn on_page(planted: &Planted, found: &Option<Found>) -> Vec<String> {
    let mut cells = row(planted, found);
    cells[0] = format!("`{}`", cells[0]);
    cells
}

#[cfg(test)]
mod tests {
    use postrider_core::Invariant;
    use postrider_sim::outcome::Failure;

    use super::*;

    #[test]
    fn what_is_written_on_the_page_is_read_again() {
        let planted = Planted { name: "BreakerDrops", mistake: "An open breaker drops a | b." };
        let defect = Defect::Broken(Failure::new(Invariant::NoLoss, "gone"));
        let found = Some(Found { seed: 17, needed: 18, defect });
        let lost = Planted { name: "NobodyFindsIt", mistake: "It is not found." };
        let rows = [on_page(&planted, &found), on_page(&lost, &None)];
        let page = table::markdown(&HEAD, rows);
        assert_eq!(on_record(&page), [("BreakerDrops".to_owned(), 17)].into(), "{page}");
    }
}
