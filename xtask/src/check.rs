//! `cargo x check`: the quick part, for every few minutes of work. It stops at the first failure.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use crate::step::{self, Verdict};
use crate::{docs, lean, requirements, tidy};

/// What clippy is told: the same wherever it is started, so that cargo takes over what it has checked.
pub(crate) const LINTS: [&str; 2] = ["-D", "warnings"];

/// Format, clippy, tidy, generated pages, unit tests.
pub(crate) fn run(root: &Path) -> ExitCode {
    let began = Instant::now();
    let unit = ["test", "--workspace", "--lib", "--bins", "--quiet"];
    let verdict = statics(root)
        .into_iter()
        .try_for_each(|(name, work)| step::run(name, work))
        .and_then(|()| step::run("unit tests", || step::complete(&mut step::cargo(root, &unit))));
    match verdict {
        Ok(()) => {
            println!("check passed in {}", step::seconds(began.elapsed()));
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("check failed: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// A step's name and work.
pub(crate) type Work<'root> = (&'static str, Box<dyn FnOnce() -> Verdict + 'root>);

/// What is checked without running a test; the cheapest first.
pub(crate) fn statics(root: &Path) -> Vec<Work<'_>> {
    let format = ["fmt", "--all", "--", "--check"];
    let clippy = ["clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--"];
    // What a newcomer builds: by all features alone nobody sees that it does not stand without one.
    let default = ["clippy", "--quiet", "--package", "postrider-cli", "--bins", "--"];
    vec![
        (
            "format",
            Box::new(move || {
                step::complete(&mut step::cargo(root, &format))
                    .map_err(|reason| format!("{reason}; `cargo fmt --all` mends it"))
            }),
        ),
        ("tidy", Box::new(move || tidy::verdict(root))),
        ("dependencies of the default build", Box::new(move || lean::verdict(root))),
        ("requirements page", Box::new(move || requirements::verdict(root))),
        ("clippy", Box::new(move || step::complete(step::cargo(root, &clippy).args(LINTS)))),
        (
            "clippy of the default build",
            Box::new(move || step::complete(step::cargo(root, &default).args(LINTS))),
        ),
        ("reference pages", Box::new(move || docs::verdict(root))),
    ]
}
