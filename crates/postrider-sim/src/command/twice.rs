//! Each world twice, on two threads: the same to the last line, or chance came from somewhere else.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use postrider_sim::attempt::{Attempt, Options, Runner};
use postrider_sim::many::Plan;
use postrider_sim::outcome::{Outcome, Tally};

use super::Context;
use super::arguments::Arguments;

/// Runs seeds twice, and says which were not the same.
pub(super) fn run(context: &mut Context<'_>, arguments: &Arguments) -> io::Result<bool> {
    let plan = context.plan(arguments);
    let differing = differing(&plan);
    for (seed, how) in &differing {
        writeln!(context.out, "seed {seed} is not the same twice: {how}")?;
    }
    let (seeds, bad) = (plan.seeds, differing.len());
    writeln!(context.out, "{seeds} seeds twice: {bad} were not the same to the last line")?;
    Ok(differing.is_empty())
}

/// The seeds whose two runs differ, and how.
pub(super) fn differing(plan: &Plan) -> Vec<(u64, String)> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let (world, notes) = (Arc::clone(&plan.runner), Arc::clone(&found));
    let runner: Runner = Arc::new(move |scenario, options| {
        let options = Options { trace: true, ..*options };
        let one = Attempt::at(&world, scenario, &options);
        let two = std::thread::scope(|scope| {
            let other = scope.spawn(|| Attempt::at(&world, scenario, &options));
            other.join().unwrap_or_else(|_| Attempt::hung())
        });
        if let Some(how) = difference(&one, &two) {
            notes.lock().unwrap_or_else(PoisonError::into_inner).push((scenario.seed, how));
        }
        // What the run itself came to is judged elsewhere.
        Outcome { failure: None, story: Vec::new(), ..one.outcome.unwrap_or_else(nothing) }
    });
    Plan { runner, ..plan.clone() }.run(|_| ControlFlow::Continue(()));
    let mut found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    found.sort();
    found
}

fn nothing() -> Outcome {
    Outcome {
        failure: None,
        fingerprint: 0,
        story: Vec::new(),
        tally: Tally::default(),
        reached: Vec::new(),
    }
}

/// How two runs of one scenario differ.
fn difference(one: &Attempt, two: &Attempt) -> Option<String> {
    let (Some(first), Some(second)) = (&one.outcome, &two.outcome) else {
        return (one != two).then(|| "one of them panicked, or both differently".to_owned());
    };
    let line = first.story.iter().zip(&second.story).position(|(a, b)| a != b);
    if let Some(line) = line {
        let (a, b) = (&first.story[line], &second.story[line]);
        return Some(format!("line {} of the story:\n    {a}\n    {b}", line + 1));
    }
    (first != second).then(|| {
        let (a, b) = (first.fingerprint, second.fingerprint);
        let (c, d) = (first.story.len(), second.story.len());
        format!("fingerprints {a:016x} and {b:016x}, {c} and {d} lines, the same as far as both go")
    })
}
