//! What `cargo test` printed, summed: how many passed and failed, and which cases were skipped.
//!
//! Tests run with `--show-output`, so a case that cannot run here says so on a line of its own that
//! begins with `skipped:`. Such lines are collected, each with the name of its test, since many say no more than which server is
//! missing; the output of passing tests is not repeated.

/// Sums over all test programs read so far.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// As they came; two backends may skip a case of one suite for the same reason.
    pub(crate) skipped: Vec<String>,
    inside_successes: bool,
    /// The test inside of whose own output this is, which may look like anything.
    inside_output: Option<String>,
}

impl Summary {
    /// Takes one line in; true where a person should see it.
    pub(crate) fn take(&mut self, line: &str) -> bool {
        if let Some(reason) = line.trim_start().strip_prefix("skipped:") {
            let reason = reason.trim();
            let test = self.inside_output.as_deref().filter(|test| !says(reason, test));
            let test = test.map(|test| format!("{test}: ")).unwrap_or_default();
            self.skipped.push(format!("skipped: {test}{reason}"));
        }
        match line {
            "successes:" | "failures:" => {
                self.inside_successes = line == "successes:";
                self.inside_output = None;
            }
            _ => {
                let printed = line.strip_prefix("---- ");
                if let Some(test) = printed.and_then(|it| it.strip_suffix(" stdout ----")) {
                    self.inside_output = Some(test.to_owned());
                }
            }
        }
        if self.inside_output.is_none()
            && let Some(counts) = line.strip_prefix("test result: ")
        {
            self.inside_successes = false;
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            return true;
        }
        let dull = line.is_empty()
            || self.inside_successes
            || (line.starts_with("running ")
                && (line.ends_with(" tests") || line.ends_with(" test")))
            || (line.starts_with("test ") && (line.ends_with(" ... ok")));
        !dull
    }

    /// The closing line, alone on its line: the integration service reads it.
    pub(crate) fn closing(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed)
    }
}

/// Whether a reason begins with its test's name by itself.
fn says(reason: &str, test: &str) -> bool {
    let name = test.rsplit("::").next().unwrap_or(test);
    [test, name].iter().any(|it| reason.strip_prefix(it).is_some_and(|rest| rest.starts_with(':')))
}

/// The number before `word` in `ok. 3 passed; 0 failed; …`.
fn count(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split([' ', ';']).filter(|w| !w.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\nrunning 3 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ok\n\nsuccesses:\n\n---- a stdout ----\nskipped: claims under load: the store declares no leases\nnoise\n\nsuccesses:\n    a\n    c\n\nfailures:\n\n---- b stdout ----\nassertion failed\n\nfailures:\n    b\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";

    #[test]
    fn results_are_summed_over_programs() {
        let mut summary = Summary::default();
        for line in OUTPUT.lines().chain(OUTPUT.lines()) {
            summary.take(line);
        }
        assert_eq!(summary.closing(), "4 passed, 2 failed");
    }

    #[test]
    fn a_result_that_a_test_printed_is_not_counted() {
        let mut summary = Summary::default();
        let printed = "successes:\n\n---- a stdout ----\ntest result: FAILED. 9 passed; 9 failed\n\nsuccesses:\n    a\n\ntest result: ok. 1 passed; 0 failed\n";
        let shown: Vec<&str> = printed.lines().filter(|line| summary.take(line)).collect();
        assert_eq!(summary.closing(), "1 passed, 0 failed");
        assert_eq!(shown, ["test result: ok. 1 passed; 0 failed"]);
    }

    #[test]
    fn skipped_cases_are_kept_with_their_reason() {
        let mut summary = Summary::default();
        for line in OUTPUT.lines() {
            summary.take(line);
        }
        let expected = "skipped: a: claims under load: the store declares no leases";
        assert_eq!(summary.skipped, [expected]);
    }

    #[test]
    fn a_skipped_test_is_named_once() {
        for (printed, expected) in [
            ("---- m::it_works stdout ----\nskipped: no server", "skipped: m::it_works: no server"),
            (
                "---- m::it_works stdout ----\nskipped: it_works: no server",
                "skipped: it_works: no server",
            ),
            ("skipped: no server", "skipped: no server"),
        ] {
            let mut summary = Summary::default();
            for line in printed.lines() {
                summary.take(line);
            }
            assert_eq!(summary.skipped, [expected]);
        }
    }

    #[test]
    fn failures_are_shown_and_successes_are_not() {
        let mut summary = Summary::default();
        let shown: Vec<&str> = OUTPUT.lines().filter(|line| summary.take(line)).collect();
        assert!(shown.contains(&"test b ... FAILED") && shown.contains(&"assertion failed"));
        assert!(!shown.contains(&"noise") && !shown.contains(&"test a ... ok"));
    }
}
