//! Steps that only compute, run beside the test programs, which mostly wait for servers.
//!
//! One after the other, and below the tests where the system has `nice`: a test that needs a processor
//! finds it. They begin when the test programs are built, since cargo builds one thing at a time in a
//! target folder.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::provision;
use crate::sim;
use crate::step::{self, Verdict};
use crate::summary::Summary;

const DOC_TESTS: [&str; 7] =
    ["test", "--workspace", "--all-features", "--no-fail-fast", "--doc", "--", "--show-output"];
const DOCS: [&str; 5] = ["doc", "--quiet", "--workspace", "--no-deps", "--all-features"];

/// How far below the tests: ten steps leave nine tenths of a busy processor to those above.
const STEPS_BELOW: &str = "10";

/// What a step came to, and what it counted.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) summary: Summary,
}

/// Runs all of them.
pub(crate) fn run(root: &Path, variables: &[(String, String)]) -> Vec<Ended> {
    let mut doc_tests = step::cargo(root, &DOC_TESTS);
    doc_tests.envs(variables.iter().map(|(name, value)| (name, value)));
    let mut docs = step::cargo(root, &DOCS);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    let steps = [("doc tests", doc_tests), ("docs", docs), ("clippy with probes", sim::lint(root))];
    steps.map(|(name, command)| run_one(name, command)).into()
}

/// Runs one, and shows what it counted in one piece when it has ended.
fn run_one(name: &'static str, command: Command) -> Ended {
    let began = Instant::now();
    let (lines, verdict) = step::captured_whole(&mut below(command));
    let mut summary = Summary::default();
    let mut shown = vec![format!("==> {name}, beside the tests")];
    shown.extend(lines.into_iter().filter(|line| summary.take(line)));
    let duration = step::seconds(began.elapsed());
    shown.push(match &verdict {
        Ok(()) => format!("    ok: {name} ({duration})"),
        Err(reason) => format!("    FAILED: {name} ({duration}): {reason}"),
    });
    step::show(&shown);
    Ended { name, verdict, summary }
}

/// The same command below the tests.
fn below(command: Command) -> Command {
    if !provision::starts("nice", "true") {
        return command;
    }
    let mut nice = Command::new("nice");
    nice.args(["-n", STEPS_BELOW]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_it_counted_and_how_it_failed_is_told() {
        let script =
            "echo 'test result: FAILED. 4 passed; 1 failed; 0 ignored'; echo why >&2; exit 101";
        let (lines, _) = step::captured_whole(&mut shell(script));
        assert_eq!(lines.last().map(String::as_str), Some("why"));
        let ended = run_one("doc tests", shell(script));
        assert_eq!(ended.summary.closing(), "4 passed, 1 failed");
        let reason = ended.verdict.expect_err("the run failed");
        assert!(reason.contains("exit status: 101"), "{reason}");
    }

    #[test]
    fn below_the_tests_it_is_the_same_command() {
        let mut command = shell("test \"$HERE\" = yes && test -z \"$HOME\" && pwd");
        command.current_dir("/").env("HERE", "yes").env_remove("HOME");
        let (lines, verdict) = step::captured_whole(&mut below(command));
        verdict.expect("its variables and folder are the same");
        assert_eq!(lines, ["/"]);
    }
}
