//! A file that lines are appended to. Under the file's lock, and with a whole last line before and
//! after each batch, so that neither a crash nor another process ever leaves a torn line between two
//! others.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::writer::Sink;

/// How long another process may hold the lock before the batch fails as busy.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How every line of ours begins: only what begins like it is cut off.
const LINE_BEGIN: &[u8] = b"{\"specversion\":\"1.0\"";

pub(crate) struct Appended {
    path: PathBuf,
    file: File,
    line_bytes_max: u64,
}

impl Appended {
    /// Opens the file, makes it if there is none, and mends its end.
    pub(crate) fn open(path: &Path, line_bytes_max: usize) -> io::Result<Appended> {
        let mut opened = Appended {
            file: open_file(path)?,
            path: path.to_owned(),
            line_bytes_max: line_bytes_max as u64,
        };
        opened.locked(|file, line_bytes_max| mend(file, line_bytes_max).map(|_| ()))?;
        Ok(opened)
    }

    /// Does something while no other process that uses this type writes.
    fn locked<T>(&mut self, act: impl FnOnce(&mut File, u64) -> io::Result<T>) -> io::Result<T> {
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match self.file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    // waits: another process holds the file lock for one write; the lock has no queue to wait in
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(TryLockError::Error(e)) => return Err(e),
            }
        }
        let result = act(&mut self.file, self.line_bytes_max);
        // Closing the file unlocks it too; an error here changes nothing about what was written.
        let _ = self.file.unlock();
        result
    }
}

impl Sink for Appended {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if was_replaced(&self.file, &self.path) {
            self.file = open_file(&self.path)?;
        }
        self.locked(|file, line_bytes_max| {
            let Some(length) = mend(file, line_bytes_max)? else {
                // Not a regular file: a pipe or a device, which has no end to mend and no disk.
                return file.write_all(lines).and_then(|()| file.flush());
            };
            let written = file.write_all(lines).and_then(|()| file.sync_data());
            if written.is_err() {
                // Not acknowledged, so it need not stay. If this fails too, the next batch mends.
                let _ = file.set_len(length);
            }
            written
        })
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let is_new = !path.exists();
    let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    if is_new {
        sync_folder(path)?;
    }
    Ok(file)
}

/// A synced file whose name is not synced is lost with its name.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Whether the path leads elsewhere now: rotated, or deleted.
#[cfg(unix)]
fn was_replaced(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(there)) => (open.dev(), open.ino()) != (there.dev(), there.ino()),
        _ => true,
    }
}

#[cfg(not(unix))]
fn was_replaced(_: &File, path: &Path) -> bool {
    !path.exists()
}

/// Makes the last line whole, and returns the length; `None` if this is no regular file.
fn mend(file: &mut File, line_bytes_max: u64) -> io::Result<Option<u64>> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let length = metadata.len();
    let Some(tail) = read_tail(file, length, line_bytes_max)? else {
        return Ok(Some(length));
    };
    let begin = &tail.bytes[..tail.bytes.len().min(LINE_BEGIN.len())];
    if tail.is_whole_line && LINE_BEGIN.starts_with(begin) {
        let kept = length - tail.bytes.len() as u64;
        file.set_len(kept)?;
        file.sync_data()?;
        return Ok(Some(kept));
    }
    // Somebody else's text. It is theirs, and stays; ours begins on the next line.
    file.write_all(b"\n")?;
    Ok(Some(length + 1))
}

/// What stands behind the last line break.
struct Tail {
    bytes: Vec<u8>,
    /// Whether the bytes reach back to a line break or to the file's beginning.
    is_whole_line: bool,
}

/// The partial last line; `None` if the file is empty or ends with a line break.
fn read_tail(file: &mut File, length: u64, line_bytes_max: u64) -> io::Result<Option<Tail>> {
    if length == 0 {
        return Ok(None);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" {
        return Ok(None);
    }
    // A line of ours and the break before it fit in so much; anything longer is not ours.
    let reach = length.min(line_bytes_max + 2);
    file.seek(SeekFrom::Start(length - reach))?;
    let mut bytes = vec![0; usize::try_from(reach).map_err(io::Error::other)?];
    file.read_exact(&mut bytes)?;
    let line_break = bytes.iter().rposition(|byte| *byte == b'\n');
    if let Some(at) = line_break {
        bytes.drain(..=at);
    }
    Ok(Some(Tail { bytes, is_whole_line: line_break.is_some() || reach == length }))
}
