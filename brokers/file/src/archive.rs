//! An archive: events that retention is about to delete, as lines of a file per day.
//!
//! Invariant: when `append` returns, every event of it is a line on disk. A crash after that leaves
//! the event in the outbox as well, and the line comes again: ids tell.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_core::{
    Archive, BoxFuture, Broker, Error, ErrorKind, Event, Format, Marks, Outcome, Outgoing, Result,
    Timestamp,
};
use tokio::sync::Mutex;

use crate::{FileBroker, FileOptions};

/// Events of one write: what is encoded at once in memory.
const ROWS_MAX: usize = 100;

/// An archive in a folder: `outbox-2026-11-21.ndjson` has what was archived on that day, UTC, a
/// CloudEvent per line.
///
/// ```
/// # use std::sync::Arc;
/// # use postrider_core::{Archive, Event, EventId};
/// # use postrider_file::FileArchive;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> postrider_core::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// let archive = FileArchive::open(folder.path())?;
/// let event = Event::new(EventId::mint(), "order", "42", "order.placed");
/// archive.append(&[Arc::new(event)]).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FileArchive {
    folder: PathBuf,
    /// The file of the day, open.
    present: Mutex<Option<(String, FileBroker)>>,
}

impl FileArchive {
    /// An archive in a folder, which is made if it is missing.
    ///
    /// # Errors
    /// `ReadOnly`, `Unavailable`, or what else the file system says; `Config` if it is no folder.
    pub fn open(folder: impl AsRef<Path>) -> Result<FileArchive> {
        let folder = folder.as_ref().to_path_buf();
        let told = |kind, message: String| {
            Error::new(kind, "open archive").message(message).context("folder", folder.display())
        };
        if let Err(error) = std::fs::create_dir_all(&folder) {
            let kind = match error.kind() {
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    ErrorKind::ReadOnly
                }
                std::io::ErrorKind::AlreadyExists | std::io::ErrorKind::NotADirectory => {
                    ErrorKind::Config
                }
                std::io::ErrorKind::StorageFull => ErrorKind::DiskFull,
                _ => ErrorKind::Unavailable,
            };
            return Err(told(kind, format!("{error}; nothing is deleted from the outbox")));
        }
        Ok(FileArchive { folder, present: Mutex::new(None) })
    }

    async fn write(&self, events: &[Arc<Event>], day: &str) -> Result<()> {
        let name = format!("outbox-{day}.ndjson");
        let mut present = self.present.lock().await;
        if present.as_ref().is_none_or(|(open, _)| *open != name) {
            let options = FileOptions {
                // Whatever the outbox took, the archive takes.
                line_bytes_max: postrider_core::cloudevents::DOCUMENT_BYTES_MAX * 2,
            };
            *present =
                Some((name.clone(), FileBroker::open_with(self.folder.join(&name), options)?));
        }
        let Some((_, file)) = present.as_ref() else { return Ok(()) };
        for events in events.chunks(ROWS_MAX) {
            let lines: Vec<Outgoing> = events.iter().map(line).collect();
            for (outcome, event) in file.publish(&lines).await?.iter().zip(events) {
                if *outcome != Outcome::Acked {
                    return Err(Error::new(ErrorKind::Rejected, "archive")
                        .message(format!("{outcome:?}; nothing is deleted from the outbox"))
                        .context("event", event.id));
                }
            }
        }
        Ok(())
    }
}

fn line(event: &Arc<Event>) -> Outgoing {
    Outgoing {
        event: Arc::clone(event),
        topic: Arc::from("archive"),
        format: Format::Structured,
        layout: None,
        marks: Marks::default(),
        attempt: 1,
    }
}

impl Archive for FileArchive {
    fn append<'a>(&'a self, events: &'a [Arc<Event>]) -> BoxFuture<'a, Result<()>> {
        let now = Timestamp::now().to_string();
        let day = now.get(..10).unwrap_or("undated").to_owned();
        Box::pin(async move { self.write(events, &day).await })
    }
}
