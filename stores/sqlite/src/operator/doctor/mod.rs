//! The doctor: looks for what will go wrong, and says what to do about it.
//!
//! Each examination is a small function that gives one finding, good or not. Invariant: nothing is
//! changed, and nothing that takes longer than a look at a screen is done to a large store.

mod file;
mod tables;

use std::path::Path;

use postrider_core::operate::findings::{self, coded, critical, good, listed, unexamined};
use postrider_core::operate::{Finding, Overview};
use postrider_core::{Code, Error, ErrorKind, Result, Timestamp};
use rusqlite::Connection;

use super::overview;

/// What the examinations look at.
struct Patient<'a> {
    connection: &'a Connection,
    /// Where the file is, with links resolved.
    path: &'a Path,
    overview: Overview,
}

/// One look at the patient.
type Examination = fn(&Patient<'_>) -> Result<Finding>;

impl Patient<'_> {
    /// How the command line names the store.
    fn store(&self) -> String {
        format!("--store sqlite://{}", self.path.display())
    }
}

/// Examines everything. What could not be examined is a finding, not an error: the others still say
/// what they say.
pub(super) fn examine(
    connection: &Connection,
    path: &Path,
    now: Timestamp,
) -> Result<Vec<Finding>> {
    let overview = overview::read(connection, path, path.display().to_string())?;
    let patient = Patient { connection, path, overview };
    let examinations: [(&str, Examination); 12] = [
        ("integrity", file::integrity),
        ("journal", file::journal),
        ("durability", file::durability),
        ("log size", file::log_size),
        ("disk space", file::space),
        ("permissions", file::permissions),
        ("copy", file::copy),
        ("tables", tables::guards),
        ("numbers", tables::numbers),
        ("settled log", tables::history),
        ("ranges", tables::ranges),
        ("stuck claims", tables::stuck),
    ];
    let findings = examinations.into_iter().map(|(subject, examine)| {
        examine(&patient).unwrap_or_else(|error| unexamined(subject, &error))
    });
    let mut findings: Vec<Finding> = findings.collect();
    findings.extend(findings::flow(&patient.overview, now, &patient.store()));
    Ok(findings)
}

/// A store that cannot be read at all has one finding. Where there is none it is an error.
pub(super) fn unreadable(error: Error) -> Result<Vec<Finding>> {
    if error.kind() != ErrorKind::Corrupt {
        return Err(error);
    }
    let advice = Code::Corrupt.advice();
    Ok(vec![critical("store", error.to_string(), advice, Code::Corrupt)])
}
