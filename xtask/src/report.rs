//! What a run of many steps came to: all of them run, so one run tells everything.
//!
//! A step that fails without a failing test in it (a build, a format) counts as one failure: the closing line
//! never says `0 failed` of a run that failed.

use std::process::ExitCode;

use crate::step::{self, Verdict};
use crate::summary::Summary;

/// What stands before the reason of a step that failed.
const FAILED: &str = "failed step: ";

/// Sums, and the steps that failed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) summary: Summary,
    failed: Vec<String>,
}

impl Report {
    /// Runs a step and notes its verdict.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce(&mut Summary) -> Verdict) {
        let before = self.summary.failed;
        let verdict = step::run(name, || work(&mut self.summary));
        self.note(name, verdict, before);
    }

    /// Notes the verdict of a step that began when so many had failed.
    pub(crate) fn note(&mut self, name: &str, verdict: Verdict, before: u64) {
        if let Err(reason) = verdict {
            self.failed.push(format!("{name}: {reason}"));
            self.summary.failed += u64::from(self.summary.failed == before);
        }
    }

    /// Takes in the report of another program, line by line as [`Report::lines`] wrote them. True where a person
    /// should see the line now.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        if let Some(reason) = line.strip_prefix(FAILED) {
            self.failed.push(reason.to_owned());
        } else if line.starts_with("skipped: ") {
            self.summary.skipped.push(line.to_owned());
        } else {
            return true;
        }
        false
    }

    /// What was skipped, what failed: a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let one_line = |reason: &String| reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let failed = self.failed.iter().map(|reason| format!("{FAILED}{}", one_line(reason)));
        self.summary.skipped.iter().cloned().chain(failed).collect()
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed.is_empty() && self.summary.failed == 0
    }

    /// The closing line, alone on its line, and how the program ends.
    pub(crate) fn close(&self) -> ExitCode {
        println!("{}", self.summary.closing());
        if self.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_without_a_failing_test_is_one_failure() {
        let mut report = Report::default();
        report.step("format", |_| Err("it\n  differs".to_owned()));
        report.step("tests", |summary| {
            summary.take("test result: FAILED. 4 passed; 2 failed");
            Err("ended with 101".to_owned())
        });
        report.step("docs", |_| Ok(()));
        assert_eq!(report.summary.closing(), "4 passed, 3 failed");
        let said = ["failed step: format: it differs", "failed step: tests: ended with 101"];
        assert_eq!(report.lines(), said);
        assert!(!report.is_good());
    }
}
