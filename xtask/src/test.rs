//! `cargo x test`: everything a change must pass. All steps run, so one run tells everything.
//!
//! The last line is `N passed, N failed`, summed over all test programs. A step that fails without
//! a failing test in it (a build, a format) counts as one failure: the line never says `0 failed`
//! of a run that failed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use crate::step::{self, Verdict};
use crate::summary::Summary;
use crate::{check, programs, provision, recipes, rustdoc, services, sim};

/// Not xtask: a running program cannot be replaced everywhere.
///
/// The examples are asked for also because their dependencies are those of tests: only with them does cargo choose the
/// features that clippy and the test programs have. Without one nearly all of ours are built twice, and what they rest on.
pub(crate) const BUILD: [&str; 8] = [
    "build",
    "--quiet",
    "--workspace",
    "--exclude",
    "xtask",
    "--bins",
    "--examples",
    "--all-features",
];
/// Everything but the doc tests, which have a step of their own. A target with `test = false` is left out, which
/// `--lib` and `--bins` would not do.
const TESTS: [&str; 6] = [
    "test",
    "--workspace",
    "--all-features",
    "--no-run",
    "--message-format=json-render-diagnostics",
    "--tests",
];
const DOC_TESTS: [&str; 7] =
    ["test", "--workspace", "--all-features", "--no-fail-fast", "--doc", "--", "--show-output"];

/// The servers that the tests use. They stay up for the next run; `cargo x services down` stops them. Of Kafka tests start all
/// servers themselves: it is fetched and prepared, and runs only where somebody has started it.
const SERVICES: [&str; 7] = ["pg", "pg18", "pgbouncer", "nats", "kafka", "ddb", "aws"];

/// Runs everything and sums it up.
pub(crate) fn run(root: &Path) -> ExitCode {
    let began = Instant::now();
    let mut summary = Summary::default();
    summary.skipped.extend(provision::provide());
    let (variables, missing) = services::provide(&SERVICES);
    summary.skipped.extend(missing.iter().cloned());
    let mut failed = Vec::new();
    let mut note = |name: &str, verdict: Verdict, counted: bool, summary: &mut Summary| {
        if let Err(reason) = verdict {
            failed.push(format!("{name}: {reason}"));
            summary.failed += u64::from(!counted);
        }
    };
    let servers = provided(&missing, std::env::var_os("CI").is_some());
    note("servers", servers, false, &mut summary);
    for (name, work) in check::statics(root) {
        note(name, step::run(name, work), false, &mut summary);
    }
    // End-to-end tests start the binaries that stand in the target folder.
    let build = step::run("binaries", || step::complete(&mut step::cargo(root, &BUILD)));
    note("binaries", build, false, &mut summary);
    let before = summary.failed;
    let mut build = step::cargo(root, &TESTS);
    let verdict = step::run("tests", || programs::run(&mut build, &variables, &mut summary));
    let counted = summary.failed > before;
    note("tests", verdict, counted, &mut summary);
    let before = summary.failed;
    let mut command = step::cargo(root, &DOC_TESTS);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let verdict = step::run("doc tests", || count(&mut command, &mut summary));
    let counted = summary.failed > before;
    note("doc tests", verdict, counted, &mut summary);
    let lint = step::run("clippy with probes", || sim::lint(root));
    note("clippy with probes", lint, false, &mut summary);
    let before = summary.failed;
    let verdict = step::run("simulator", || sim::gate(root, &mut summary));
    let counted = summary.failed > before;
    note("simulator", verdict, counted, &mut summary);
    let docs = step::run("docs", || rustdoc::write(root));
    note("docs", docs, false, &mut summary);
    let recipes = step::run("recipes", || recipes::validate(root, &mut summary));
    note("recipes", recipes, false, &mut summary);
    let deny = step::run("dependencies", || dependencies(root, &mut summary));
    note("dependencies", deny, false, &mut summary);
    report(&failed, &summary, &step::seconds(began.elapsed()))
}

/// On a contributor's machine a server that cannot be had is a skip with its reason. The integration service
/// proves nothing without them, so there it is a failure.
fn provided(missing: &[String], integration: bool) -> Verdict {
    match missing {
        [first, ..] if integration => Err(first.replacen("skipped", "not run", 1)),
        _ => Ok(()),
    }
}

fn report(failed: &[String], summary: &Summary, duration: &str) -> ExitCode {
    println!();
    for line in &summary.skipped {
        println!("{line}");
    }
    for reason in failed {
        println!("failed step: {reason}");
    }
    println!("test took {duration}");
    println!("{}", summary.closing());
    if failed.is_empty() && summary.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a test program, or many of them, and reads its results as they come.
pub(crate) fn count(command: &mut Command, summary: &mut Summary) -> Verdict {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("`{}` did not start: {error}", step::shown(command)))?;
    let output = child.stdout.take().expect("invariant: the output is piped");
    for line in BufReader::new(output).split(b'\n') {
        let line = line.map_err(|error| format!("the output broke off: {error}"))?;
        let line = String::from_utf8_lossy(&line);
        if summary.take(line.trim_end_matches('\r')) {
            println!("{line}");
        }
    }
    let status = child.wait().map_err(|error| format!("the end was lost: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` ended with {status}", step::shown(command)))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn results_are_counted_even_where_the_run_fails() {
        let mut summary = Summary::default();
        let script = "echo 'test result: FAILED. 4 passed; 1 failed; 0 ignored'; exit 101";
        count(&mut shell(script), &mut summary).expect_err("the run failed");
        assert_eq!(summary.closing(), "4 passed, 1 failed");
    }

    #[test]
    fn without_its_servers_the_integration_service_fails() {
        let missing = ["skipped: tests with pg (PostgreSQL): no network".to_owned()];
        provided(&missing, false).expect("a skip is enough for a person");
        let reason = provided(&missing, true).expect_err("nothing would be proved");
        assert!(reason.contains("tests with pg"), "{reason}");
        provided(&[], true).expect("all of them are there");
    }

    #[test]
    fn a_run_that_passes_is_a_success() {
        let mut summary = Summary::default();
        count(&mut shell("echo 'test result: ok. 4 passed; 0 failed'"), &mut summary)
            .expect("the run passed");
        assert_eq!(summary.closing(), "4 passed, 0 failed");
    }
}
