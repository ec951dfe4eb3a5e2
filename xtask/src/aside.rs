//! `cargo x aside`: the steps of `cargo x test` that need none of its test programs.
//!
//! `test` starts them as a program of their own while its test programs run, most of which wait for servers and
//! for leases. They have the lowest priority, so that nobody's patience is tried by a compiler, and what they
//! print is shown in one piece when they have ended, so that the two never mix.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::thread::JoinHandle;

use crate::report::Report;
use crate::step::{self, Verdict};
use crate::summary::Summary;
use crate::{provision, recipes, rustdoc, sim, test};

const DOC_TESTS: [&str; 7] =
    ["test", "--workspace", "--all-features", "--no-fail-fast", "--doc", "--", "--show-output"];

/// What stands before skips and failures at the end: a step may print lines that look like them.
const SUM: &str = "==> all steps aside";

/// Runs them, one after the other.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut report = Report::default();
    report.step("clippy with probes", |_| sim::lint(root));
    // It runs when all is quiet: how many of its worlds can be judged in time is a question of processors.
    report.step("build of the simulator", |_| sim::build(root).map(drop));
    report.step("doc tests", |summary| test::count(&mut step::cargo(root, &DOC_TESTS), summary));
    report.step("docs", |_| rustdoc::write(root));
    report.step("recipes", |summary| recipes::validate(root, summary));
    report.step("dependencies", |summary| dependencies(root, summary));
    println!("{SUM}");
    report.lines().iter().for_each(|line| println!("{line}"));
    report.close()
}

/// Licences, bans and advisories, where cargo-deny is installed.
fn dependencies(root: &Path, summary: &mut Summary) -> Verdict {
    if !provision::starts("cargo-deny", "--version") {
        let line =
            "skipped: cargo-deny: not installed, so licences, bans and advisories were not checked";
        summary.skipped.push(line.to_owned());
        return Ok(());
    }
    step::complete(&mut step::cargo(root, &["deny", "check"]))
}

/// The steps, as a program that runs.
#[derive(Debug)]
pub(crate) struct Aside {
    program: Child,
    output: JoinHandle<std::io::Result<Vec<String>>>,
}

impl Aside {
    /// Starts them with these variables.
    pub(crate) fn start(variables: &[(String, String)]) -> Result<Aside, String> {
        let ours = std::env::current_exe()
            .map_err(|error| format!("this program is not found again: {error}"))?;
        let mut command = if provision::starts("nice", "--version") {
            let mut nice = Command::new("nice");
            nice.args(["-n", "19"]).arg(ours);
            nice
        } else {
            Command::new(ours)
        };
        command.arg("aside").envs(variables.iter().map(|(name, value)| (name, value)));
        Aside::of(command)
    }

    /// The command is gone afterwards, and with it our end of the pipe that it writes into.
    fn of(mut command: Command) -> Result<Aside, String> {
        let no_pipe = |error| format!("no pipe: {error}");
        let (reader, writer) = std::io::pipe().map_err(no_pipe)?;
        let program =
            command
                .stdout(writer.try_clone().map_err(no_pipe)?)
                .stderr(writer)
                .spawn()
                .map_err(|error| format!("`{}` did not start: {error}", step::shown(&command)))?;
        drop(command);
        let output = std::thread::spawn(move || {
            let mut lines = Vec::new();
            for line in BufReader::new(reader).split(b'\n') {
                let line = String::from_utf8_lossy(&line?).into_owned();
                // Of a step that never ends this is all that is seen.
                if let Some(name) = line.strip_prefix("==> ") {
                    println!("    aside: {name} …");
                }
                lines.push(line);
            }
            Ok(lines)
        });
        Ok(Aside { program, output })
    }

    /// Waits until they have ended, shows what they printed, and takes their results in.
    pub(crate) fn join(mut self, report: &mut Report) -> Verdict {
        let output = self.output.join().map_err(|_| "its reader panicked".to_owned())?;
        let output = output.map_err(|error| format!("the output broke off: {error}"))?;
        let ended = self.program.wait().map_err(|error| format!("the end was lost: {error}"))?;
        let (closing, said) = output.split_last().ok_or("they said nothing")?;
        let mut is_sum = false;
        for line in said {
            if !is_sum || report.take(line) {
                println!("{line}");
            }
            is_sum |= line == SUM;
        }
        let before = (report.summary.passed, report.summary.failed);
        let has_closed = report.summary.add(closing);
        let has_failed = report.summary.failed > before.1;
        let has_run = report.summary.passed > before.0 || has_failed;
        if has_closed && has_run && ended.success() != has_failed {
            return Ok(());
        }
        Err(format!("they ended with {ended}, and at last said `{closing}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(script: &str) -> (Report, Verdict) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut report = Report::default();
        report.summary.take("test result: ok. 1 passed; 0 failed");
        let verdict = Aside::of(command).expect("it starts").join(&mut report);
        (report, verdict)
    }

    #[test]
    fn what_they_came_to_is_taken_in() {
        let (report, verdict) = joined(&format!(
            "echo 'skipped: printed by a step'; echo '{SUM}'; echo 'skipped: a: b'; echo '5 passed, 0 failed'"
        ));
        verdict.expect("it went well");
        assert_eq!(report.summary.closing(), "6 passed, 0 failed");
        assert_eq!(report.summary.skipped, ["skipped: a: b"]);
        assert!(report.is_good());
    }

    #[test]
    fn a_step_that_fails_there_fails_here() {
        let script = format!(
            "echo '{SUM}'; echo 'failed step: docs: a warning' >&2; echo '5 passed, 1 failed'; exit 1"
        );
        let (report, verdict) = joined(&script);
        verdict.expect("it said what failed");
        assert_eq!(report.summary.closing(), "6 passed, 1 failed");
        assert_eq!(report.lines(), ["failed step: docs: a warning"]);
        assert!(!report.is_good());
    }

    #[test]
    fn one_that_does_not_end_as_it_should_is_a_failure() {
        for script in [
            "kill -9 $$",
            "exit 0",
            "echo '0 passed, 0 failed'",
            "echo '5 passed, 0 failed'; exit 1",
        ] {
            let (_, verdict) = joined(script);
            verdict.expect_err(script);
        }
    }
}
