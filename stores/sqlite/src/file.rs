//! The database file as the operating system sees it: which file is at the path, whether it is
//! still the one that is open, and whether what was read from it is on the disk.
//!
//! Invariant: nothing here opens the database file itself. Closing any descriptor of it would drop
//! the locks that SQLite holds for the whole process.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_core::{Code, Error, ErrorKind, Result};

/// One database file, shared by the threads that have it open.
pub(crate) struct StoreFile {
    path: PathBuf,
    name: String,
    known: Mutex<Known>,
    /// Grows when the store is opened anew, so that every thread lets its old connection go. Changes
    /// only under the lock, with what is known.
    generation: AtomicU64,
}

/// What is known of the file that was open first. All of it is forgotten at once: what was flushed of
/// one file says nothing of another.
#[derive(Debug, Default)]
struct Known {
    /// Which file it is; `None` before the first connection.
    identity: Option<Identity>,
    /// Every row up to this number is known to be on the disk.
    durable: u64,
}

/// What tells one file from another that took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl StoreFile {
    /// A file at a path, which need not exist yet.
    pub(crate) fn new(path: &Path) -> Result<StoreFile> {
        // Absolute, because SQLite gives names like `:memory:` a meaning, and because the program
        // may change its directory.
        let path = std::path::absolute(path).map_err(|e| {
            Error::new(ErrorKind::Config, "open store")
                .message("the path cannot be made absolute")
                .source(e)
        })?;
        Ok(StoreFile {
            name: path.display().to_string(),
            path,
            known: Mutex::default(),
            generation: AtomicU64::new(0),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path, for logs and errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Accepts whatever file is at the path now as the store.
    pub(crate) fn adopt(&self) {
        let mut known = self.lock();
        *known = Known::default();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Checks that the file at the path is the one that was open first, and remembers it if none
    /// was. Returns the generation for which that is so: one that was read apart could be of the file that was
    /// there before.
    ///
    /// # Errors
    /// `NotFound` if there never was one; `Unavailable` with [`Code::StoreVanished`] if it went
    /// away.
    pub(crate) fn check(&self, operation: &'static str) -> Result<u64> {
        let mut known = self.lock();
        let found = fs::metadata(&self.path).map(|meta| identity(&meta));
        match (&known.identity, found) {
            (None, Ok(found)) => known.identity = Some(found),
            (Some(known), Ok(found)) if *known == found => {}
            (None, Err(e)) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::NotFound, operation)
                    .message("there is no file at the path; `postrider init` creates one")
                    .source(e));
            }
            (None, Err(e)) => {
                return Err(Error::new(ErrorKind::Unavailable, operation)
                    .message("the database file cannot be looked at")
                    .source(e));
            }
            (Some(_), found) => {
                let what = match found {
                    Ok(_) => "another file has taken the place of the one that is open",
                    Err(_) => "the file that is open is no longer at its path",
                };
                return Err(Error::new(ErrorKind::Unavailable, operation)
                    .code(Code::StoreVanished)
                    .message(what));
            }
        }
        Ok(self.generation())
    }

    /// Makes what was read durable before anybody is told of it.
    ///
    /// An application with `synchronous = NORMAL` commits before its commit is on the disk: a power
    /// cut takes the change back. An event published from it would be a ghost. So the write-ahead
    /// log is flushed before a page leaves the store, unless a flush made after a read of
    /// `sequence` covers all of it.
    pub(crate) fn make_durable(&self, last: u64, sequence: u64) -> Result<()> {
        let (durable, generation) = {
            let known = self.lock();
            (known.durable, self.generation())
        };
        if last <= durable && sequence >= durable {
            return Ok(());
        }
        // Windows flushes only what is open for writing; elsewhere the right to read is enough.
        let mut how = OpenOptions::new();
        how.read(true).write(cfg!(windows));
        match how.open(self.wal_path()).and_then(|wal| wal.sync_data()) {
            Ok(()) => {}
            // No log: the journal mode is another one, whose commits are durable by themselves.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                return Err(Error::new(ErrorKind::Unavailable, "fetch")
                    .message("the write-ahead log cannot be flushed; nothing was handed out")
                    .source(e));
            }
        }
        self.flushed(sequence, generation);
        Ok(())
    }

    /// Remembers a flush, unless another file was adopted since it was asked for.
    fn flushed(&self, sequence: u64, generation: u64) {
        let mut known = self.lock();
        if self.generation() == generation {
            known.durable = sequence;
        }
    }

    /// Where SQLite keeps the log: beside the file that a link leads to.
    fn wal_path(&self) -> PathBuf {
        beside(&self.real_path(), "-wal")
    }

    /// The path with links resolved, or as it is while nothing is there.
    pub(crate) fn real_path(&self) -> PathBuf {
        fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The path with something appended to its last part.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(unix)]
fn identity(meta: &fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    Identity { device: meta.dev(), inode: meta.ino() }
}

/// Elsewhere only the absence of the file is noticed: an open file cannot be replaced on Windows.
#[cfg(not(unix))]
fn identity(_: &fs::Metadata) -> Identity {
    Identity { device: 0, inode: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which file was looked at is told with the look: no `open` comes between them.
    #[test]
    fn a_look_at_the_file_says_for_which_generation_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("shop.db"), folder.path().join("other.db"));
        fs::write(&path, "").unwrap();
        let file = StoreFile::new(&path).unwrap();
        let first = file.check("look").unwrap();
        assert_eq!(file.check("look").unwrap(), first);
        fs::write(&other, "").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(file.check("look").is_err() || cfg!(not(unix)), "another file");
        file.adopt();
        assert!(file.check("look").unwrap() > first);
    }

    /// A flush of the file that was there before says nothing of the one that is there now.
    #[test]
    fn a_flush_of_another_file_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let file = StoreFile::new(&folder.path().join("shop.db")).unwrap();
        let before = file.generation();
        file.flushed(10, before);
        assert_eq!(file.lock().durable, 10);
        file.adopt();
        assert_eq!(file.lock().durable, 0);
        file.flushed(12, before);
        assert_eq!(file.lock().durable, 0, "a flush that was under way when the file changed");
        file.flushed(3, file.generation());
        assert_eq!(file.lock().durable, 3);
    }
}
