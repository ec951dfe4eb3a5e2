//! Which copy of the file publishes.
//!
//! A copy of a production file must not send its events to partners. So the store remembers the file
//! it was first opened by a relay as: the number and the time of birth that the file system gave it
//! (`outbox_meta`, key `file`). Both survive a restart, another mount, and being moved within the file
//! system; a copy, a restored backup, and a `vacuum into` have others.
//!
//! What is left out, and why: the device's number and the path, because they change when nothing was
//! copied; the host's name, because a container has another each time it starts.
//!
//! What it cannot see: a backup that is written *over* the file, byte by byte (the sequence tells of
//! that one), and a clone of the whole disk, whose files have the same numbers and times.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use postrider_core::operate::Note;
use postrider_core::{Code, Error, ErrorKind, Result};
use rusqlite::Connection;

use super::audit;
use crate::error::During;
use crate::file::StoreFile;
use crate::{schema, sql};

/// Where the fingerprint stands in `outbox_meta`.
const KEY: &str = "file";

/// How a file and what its store remembers go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copy {
    /// No relay has opened the store yet.
    Unknown,
    /// It is the one.
    Adopted,
    /// It is another.
    Other,
}

/// The file's own marks. What a file system does not keep is left out.
fn fingerprint(path: &Path) -> Result<String> {
    let meta = fs::metadata(path).map_err(|e| {
        Error::new(ErrorKind::Unavailable, "read file")
            .message("the database file cannot be looked at")
            .source(e)
    })?;
    let born = meta.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(String::new(), |born| format!(" born {}", born.as_nanos()));
    Ok(format!("inode {}{born}", inode(&meta)))
}

#[cfg(unix)]
fn inode(meta: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(meta)
}

/// Elsewhere the time of birth must do.
#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}

/// Compares the file at a path with what its store remembers.
pub(crate) fn compare(connection: &Connection, path: &Path) -> Result<Copy> {
    let known = schema::read_meta(connection, KEY)?;
    let found = fingerprint(path)?;
    Ok(match known {
        None => Copy::Unknown,
        Some(known) if known == found => Copy::Adopted,
        Some(_) => Copy::Other,
    })
}

/// Checks that the file is the one that publishes; the first one ever checked becomes it. For a
/// relay, in a transaction that may write, before it asks for a partition.
///
/// # Errors
/// `Conflict` if this is a copy that nobody adopted.
pub(crate) fn check(connection: &Connection, file: &StoreFile) -> Result<()> {
    match compare(connection, file.path())? {
        Copy::Adopted => Ok(()),
        Copy::Unknown => remember(connection, file.path()),
        Copy::Other => Err(Error::new(ErrorKind::Conflict, "open store")
            .code(Code::StoreMoved)
            .message("this file is not the one that published last: a copy, or a restored backup")),
    }
}

fn remember(connection: &Connection, path: &Path) -> Result<()> {
    let found = fingerprint(path)?;
    connection.execute(sql::META_WRITE, (KEY, found)).map(drop).during("adopt")
}

/// Makes the file at a path the one that publishes.
pub(super) fn adopt(connection: &Connection, path: &Path, note: &Note) -> Result<()> {
    let before = schema::read_meta(connection, KEY)?.unwrap_or_else(|| "none".to_owned());
    remember(connection, path)?;
    audit::write(
        connection,
        note,
        "adopt",
        &format!("the file at {} (was: {before})", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{connect, init};

    /// What a copy is taken for, and what is none.
    #[test]
    fn a_copy_is_told_from_the_file_and_from_the_file_moved() {
        let folder = tempfile::tempdir().unwrap();
        let (first, moved) = (folder.path().join("shop.db"), folder.path().join("moved.db"));
        init(&first).unwrap();
        let connection = connect(&first).unwrap();
        assert_eq!(compare(&connection, &first).unwrap(), Copy::Unknown);
        let file = StoreFile::new(&first).unwrap();
        check(&connection, &file).unwrap();
        connection.execute_batch("vacuum; pragma wal_checkpoint(truncate)").unwrap();
        check(&connection, &file).unwrap();
        drop(connection);
        fs::rename(&first, &moved).unwrap();
        assert_eq!(compare(&connect(&moved).unwrap(), &moved).unwrap(), Copy::Adopted);
        fs::copy(&moved, &first).unwrap();
        let copy = connect(&first).unwrap();
        assert_eq!(compare(&copy, &first).unwrap(), Copy::Other);
        let refused = check(&copy, &file).unwrap_err();
        assert_eq!(refused.operator_code(), Some(Code::StoreMoved), "{refused}");
        let note = Note::new("anna", "moved to db2").unwrap();
        adopt(&copy, &first, &note).unwrap();
        assert_eq!(compare(&copy, &first).unwrap(), Copy::Adopted);
        check(&copy, &file).unwrap();
    }
}
