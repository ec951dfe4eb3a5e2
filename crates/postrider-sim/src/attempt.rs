//! One run that cannot take the program with it: a panic inside a world is that run's defect.
//!
//! The engines assert what must never be. Such an assertion is as good as a checker, so its text is
//! kept, and two runs that panic at the same place have the same defect.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Arc, Once};

use crate::outcome::{Failure, Outcome};
use crate::scenario::Scenario;
pub use crate::world::Options;

/// What runs a scenario: the world, or a fake of it in the tests of what stands around it.
pub type Runner = Arc<dyn Fn(&Scenario, &Options) -> Outcome + Send + Sync>;

/// What is wrong with a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defect {
    /// A promise was broken.
    Broken(Failure),
    /// Something panicked.
    Panicked {
        /// The file and the line.
        place: String,
        /// What it said.
        text: String,
    },
    /// It did not come to an end.
    Hung,
}

impl Defect {
    /// Whether two runs show the same mistake, as far as that can be told from outside.
    pub fn is_like(&self, other: &Defect) -> bool {
        match (self, other) {
            (Defect::Broken(one), Defect::Broken(two)) => {
                one.invariant == two.invariant && gist(&one.what) == gist(&two.what)
            }
            (Defect::Panicked { place: one, .. }, Defect::Panicked { place: two, .. }) => {
                one == two
            }
            (Defect::Hung, Defect::Hung) => true,
            _ => false,
        }
    }

    /// The invariant's id, or what it was instead: one word.
    pub fn kind(&self) -> String {
        match self {
            Defect::Broken(failure) => failure.invariant.to_string(),
            Defect::Panicked { .. } => "panic".to_owned(),
            Defect::Hung => "hang".to_owned(),
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::Broken(Failure { invariant, what }) => {
                write!(f, "{invariant} ({}): {what}", invariant.promise())
            }
            Defect::Panicked { place, text } => write!(f, "panic at {place}: {text}"),
            Defect::Hung => write!(f, "the run does not come to an end"),
        }
    }
}

/// The words of a sentence without what is another one each time: numbers, names with a number in
/// them, and the state of everything that follows in brackets.
fn gist(what: &str) -> Vec<&str> {
    let sentence = what.split(['[', '{']).next().unwrap_or_default();
    sentence
        .split_whitespace()
        .filter(|word| !word.contains(|c: char| c.is_ascii_digit()))
        .collect()
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// What the world said; nothing if it panicked.
    pub outcome: Option<Outcome>,
    /// What is wrong, if something is.
    pub defect: Option<Defect>,
}

impl Attempt {
    /// Runs a scenario.
    pub fn at(runner: &Runner, scenario: &Scenario, options: &Options) -> Attempt {
        static HOOK: Once = Once::new();
        HOOK.call_once(keep_panics);
        WATCHED.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| runner(scenario, options)));
        WATCHED.set(false);
        match result {
            Ok(outcome) => {
                let defect = outcome.failure.clone().map(Defect::Broken);
                Attempt { outcome: Some(outcome), defect }
            }
            Err(_) => Attempt { outcome: None, defect: Some(LAST.replace(Defect::Hung)) },
        }
    }

    /// What a run that was given up came to.
    pub fn hung() -> Attempt {
        Attempt { outcome: None, defect: Some(Defect::Hung) }
    }
}

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<Defect> = const { RefCell::new(Defect::Hung) };
}

/// From now on a panic of a watched thread is kept and not printed.
fn keep_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if WATCHED.get() {
            LAST.set(described(info));
        } else {
            before(info);
        }
    }));
}

fn described(info: &PanicHookInfo<'_>) -> Defect {
    let place = info.location().map_or_else(String::new, ToString::to_string);
    let text = info.payload_as_str().unwrap_or("(no text)").to_owned();
    Defect::Panicked { place, text }
}

#[cfg(test)]
mod tests {
    use postrider_core::Invariant;

    use super::*;

    fn panics(text: &'static str) -> Attempt {
        let runner: Runner = Arc::new(move |_, _| panic!("{text}"));
        Attempt::at(&runner, &Scenario::of(1), &Options::default())
    }

    #[test]
    fn a_panic_is_the_defect_of_its_run_and_known_again_by_its_place() {
        let (one, two) = (panics("invariant: one").defect.unwrap(), panics("two").defect.unwrap());
        assert!(one.to_string().contains("attempt.rs:"), "{one}");
        assert!(one.to_string().ends_with("invariant: one"), "{one}");
        assert!(one.is_like(&two) && one != two);
        let broken = Defect::Broken(Failure::new(Invariant::NoLoss, "gone"));
        assert!(!one.is_like(&broken) && !broken.is_like(&Defect::Hung));
    }

    #[test]
    fn two_broken_promises_are_alike_if_the_same_happened_to_others() {
        let broken = |invariant, what: &str| Defect::Broken(Failure::new(invariant, what));
        let one = broken(Invariant::KeyOrder, "event 7 came before 6 at dest-0 [state 1]");
        assert!(
            one.is_like(&broken(Invariant::KeyOrder, "event 9 came before 2 at dest-3 [else]"))
        );
        assert!(!one.is_like(&broken(Invariant::KeyOrder, "event 7 never came")));
        assert!(!one.is_like(&broken(Invariant::NoLoss, "event 7 came before 6 at dest-0")));
    }
}
