//! `cargo x tidy`: the rules of this project that no other tool knows.
//!
//! Each rule is a module with the reason for the rule, and with a test in which it flags a sample
//! that breaks it. Rules look at the files as they stand in the work tree.

mod addresses;
mod dependencies;
mod lengths;
mod module_docs;
mod names;
mod phrases;
mod ratchet;
mod sleeps;
mod sql;
mod untested;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use crate::step::{self, Verdict};
use crate::tree::{self, File};

/// One place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// From 1; 0 means the file as a whole.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) message: String,
}

impl Finding {
    /// A finding on the line with this index (from 0).
    fn at(file: &File, index: usize, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line: index + 1, rule, message: message.into() }
    }

    fn whole(path: &str, rule: &'static str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: 0, rule, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": [{}] {}", self.rule, self.message)
    }
}

/// A rule about one file.
type Rule = fn(&File) -> Vec<Finding>;

const RULES: [Rule; 6] = [
    module_docs::examine,
    names::examine,
    phrases::examine,
    sleeps::examine,
    sql::examine,
    addresses::examine,
];

/// The command.
pub(crate) fn run(root: &Path, bless: bool) -> ExitCode {
    let blessed = if bless { record(root) } else { Ok(()) };
    match blessed.and_then(|()| verdict(root)) {
        Ok(()) => {
            println!("tidy: no findings");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("tidy: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Prints findings and notes; `Err` where there is a finding.
pub(crate) fn verdict(root: &Path) -> Verdict {
    let files = read(root)?;
    let recorded = ratchet::load(root)?;
    let metadata = step::metadata(root)?;
    let mut findings = dependencies::examine(&metadata)?;
    findings.extend(untested::examine(&metadata, &files)?);
    for file in files.iter().filter(|file| !file.is_compile_case()) {
        findings.extend(RULES.iter().flat_map(|rule| rule(file)));
    }
    let (over, notes) = ratchet::compare(&recorded, &lengths::measure(&files));
    findings.extend(over);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    for note in notes {
        println!("note: {note}");
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err("one finding".to_owned()),
        many => Err(format!("{many} findings")),
    }
}

fn record(root: &Path) -> Verdict {
    let measured = lengths::measure(&read(root)?);
    let recorded = ratchet::load(root)?;
    for line in ratchet::changes(&recorded, &measured) {
        println!("{line}");
    }
    ratchet::save(root, &measured)
}

fn read(root: &Path) -> Result<Vec<File>, String> {
    tree::read(root).map_err(|error| format!("the work tree cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_like_a_compilers() {
        let file = File::new("a/src/b.rs", "");
        let finding = Finding::at(&file, 4, "sleep", "why?");
        assert_eq!(finding.to_string(), "a/src/b.rs:5: [sleep] why?");
        let whole = Finding::whole("a/b.rs", "length", "long");
        assert_eq!(whole.to_string(), "a/b.rs: [length] long");
    }
}
