//! The file: whole, durable, with room to grow, and the one that publishes.

use std::path::Path;

use postrider_core::operate::Finding;
use postrider_core::{Code, Error, ErrorKind, Result};

use super::{Patient, coded, critical, good};
use crate::error::During;
use crate::file::beside;
use crate::operator::identity::{self, Copy};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A file up to this size is examined whole, which takes seconds; a larger one is left to its owner.
const EXAMINED_MAX: u64 = GIB;

/// A log of this size is one that cannot be written back: somebody reads an old state.
const LOG_MAX: u64 = GIB;

/// Free space that leaves no time to act.
const FREE_MIN: u64 = 256 * MIB;

fn size(path: &Path) -> Result<u64> {
    match std::fs::metadata(path) {
        Ok(meta) => Ok(meta.len()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(e) => Err(Error::new(ErrorKind::Unavailable, "doctor")
            .message("the file cannot be looked at")
            .source(e)),
    }
}

pub(super) fn integrity(patient: &Patient<'_>) -> Result<Finding> {
    let size = size(patient.path)?;
    if let Some(finding) = too_large(size, patient.path) {
        return Ok(finding);
    }
    let mut lines: Vec<String> = Vec::new();
    let mut statement = patient.connection.prepare("pragma quick_check(10)").during("doctor")?;
    let mut rows = statement.query(()).during("doctor")?;
    while let Some(row) = rows.next().during("doctor")? {
        lines.push(row.get(0).during("doctor")?);
    }
    Ok(checked(&lines))
}

fn too_large(size: u64, path: &Path) -> Option<Finding> {
    let advice = format!("when it is quiet: sqlite3 {} 'pragma quick_check'", path.display());
    (size > EXAMINED_MAX).then(|| {
        let message = format!("not examined: the file has {} MiB", size / MIB);
        coded("integrity", message, advice, Code::Unexamined)
    })
}

fn checked(lines: &[String]) -> Finding {
    if lines.iter().all(|line| line == "ok") {
        return good("integrity", "the file is whole");
    }
    let past =
        |line: &&String| line.contains("constraint failed") || line.starts_with("NULL value");
    if lines.iter().filter(past).count() == lines.len() {
        return coded(
            "integrity",
            format!("rows were written past the checks of the tables: {}", lines.join("; ")),
            "find the program that turns the checks off: such rows become dead letters",
            Code::WritersUnchecked,
        );
    }
    critical(
        "integrity",
        format!("the file is damaged: {}", lines.join("; ")),
        Code::Corrupt.advice(),
        Code::Corrupt,
    )
}

pub(super) fn journal(patient: &Patient<'_>) -> Result<Finding> {
    let mode: String = patient
        .connection
        .query_row("pragma journal_mode", (), |row| row.get(0))
        .during("doctor")?;
    Ok(journal_mode(&mode, &patient.store()))
}

fn journal_mode(mode: &str, store: &str) -> Finding {
    if mode == "wal" {
        return good("journal", "readers and the writer do not wait for each other (WAL)");
    }
    coded(
        "journal",
        format!("the journal mode is `{mode}`: each write keeps every reader out"),
        format!("stop what has it open, then: postrider init {}", store.replace("--store ", "")),
        Code::ReadersBlocked,
    )
}

pub(super) fn durability(patient: &Patient<'_>) -> Result<Finding> {
    let level: i64 = patient
        .connection
        .query_row("pragma synchronous", (), |row| row.get(0))
        .during("doctor")?;
    Ok(synchronous(level))
}

fn synchronous(level: i64) -> Finding {
    if level >= 2 {
        return good("durability", "what Postrider commits is on the disk (synchronous = FULL)");
    }
    critical(
        "durability",
        "a power cut can take back what Postrider has committed (synchronous is below FULL)",
        "use a build of SQLite that keeps the setting",
        Code::DurabilityOff,
    )
}

pub(super) fn log_size(patient: &Patient<'_>) -> Result<Finding> {
    Ok(log_of(size(&beside(patient.path, "-wal"))?))
}

fn log_of(size: u64) -> Finding {
    if size <= LOG_MAX {
        return good("log size", format!("the write-ahead log has {} MiB", size / MIB));
    }
    coded(
        "log size",
        format!("the write-ahead log has {} MiB and cannot be written back", size / MIB),
        "look for a program that keeps a reading transaction open, and end it",
        Code::LogKept,
    )
}

/// Elsewhere the file system is not asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn space(_: &Patient<'_>) -> Result<Finding> {
    Ok(good("disk space", "not examined on this system"))
}

#[cfg(target_os = "linux")]
pub(super) fn space(patient: &Patient<'_>) -> Result<Finding> {
    let folder = patient.path.parent().unwrap_or_else(|| Path::new("/"));
    let stat = rustix::fs::statvfs(folder).map_err(|e| {
        Error::new(ErrorKind::Unavailable, "doctor")
            .message("the file system does not say how full it is")
            .source(std::io::Error::from(e))
    })?;
    Ok(room(
        stat.f_bavail.saturating_mul(stat.f_frsize),
        stat.f_blocks.saturating_mul(stat.f_frsize),
    ))
}

#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux is asked"))]
fn room(free: u64, total: u64) -> Finding {
    let message = format!("{} MiB of {} MiB are free", free / MIB, total / MIB);
    if free >= FREE_MIN && free >= total / 10 {
        return good("disk space", message);
    }
    let advice = "free space, or let retention delete: when the disk is full, producers fail";
    coded("disk space", message, advice, Code::StoreGrows)
}

/// Elsewhere permissions are not bits.
#[cfg(not(unix))]
pub(super) fn permissions(_: &Patient<'_>) -> Result<Finding> {
    Ok(good("permissions", "not examined on this system"))
}

#[cfg(unix)]
pub(super) fn permissions(patient: &Patient<'_>) -> Result<Finding> {
    use std::os::unix::fs::PermissionsExt;
    let everybody = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o002 != 0)
    };
    let files =
        [patient.path.to_owned(), beside(patient.path, "-wal"), beside(patient.path, "-shm")];
    let open: Vec<String> = files
        .iter()
        .filter(|path| everybody(path))
        .map(|path| path.display().to_string())
        .collect();
    if open.is_empty() {
        return Ok(good("permissions", "not everybody on this machine may write to the file"));
    }
    Ok(coded(
        "permissions",
        format!("everybody on this machine may write to {}", super::listed(&open)),
        format!("chmod o-w {}", open.join(" ")),
        Code::WritersUnchecked,
    ))
}

pub(super) fn copy(patient: &Patient<'_>) -> Result<Finding> {
    Ok(match identity::compare(patient.connection, patient.path)? {
        Copy::Adopted => good("copy", "this file is the one that publishes"),
        Copy::Unknown => good("copy", "no relay has opened the file yet"),
        Copy::Other => critical(
            "copy",
            "this file is a copy of the one that publishes: was it restored, or moved here?",
            format!(
                "if it takes that one's place: postrider adopt {} --reason '…'",
                patient.store()
            ),
            Code::StoreMoved,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::operate::Level;

    #[test]
    fn what_cannot_be_brought_about_in_a_test_is_judged_from_its_numbers() {
        assert_eq!(checked(&["ok".to_owned()]).level, Level::Good);
        let damaged = checked(&["wrong # of entries in index a".to_owned()]);
        assert_eq!((damaged.level, damaged.code), (Level::Critical, Some(Code::Corrupt)));
        assert_eq!(journal_mode("delete", "--store sqlite://a").level, Level::Warning);
        assert_eq!(synchronous(1).level, Level::Critical);
        assert_eq!(synchronous(3).level, Level::Good);
        assert_eq!(log_of(LOG_MAX + 1).level, Level::Warning);
        assert!(too_large(EXAMINED_MAX, Path::new("a")).is_none());
        assert!(too_large(EXAMINED_MAX + 1, Path::new("a")).is_some());
    }

    #[test]
    fn space_is_short_in_parts_or_in_bytes() {
        assert_eq!(room(GIB, 4 * GIB).level, Level::Good);
        assert_eq!(room(GIB, 100 * GIB).level, Level::Warning, "one hundredth");
        assert_eq!(room(FREE_MIN - 1, FREE_MIN).level, Level::Warning, "too few bytes");
    }
}
