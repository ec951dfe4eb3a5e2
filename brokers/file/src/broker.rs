//! The broker: batches become lines in the caller's task, and are appended by one thread, in the
//! order in which they were given.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Fault, Format, Outcome, Outgoing,
    Result, TargetUrl, cloudevents,
};
use tokio::sync::{mpsc, oneshot};

use crate::encode::encode;
use crate::file::Appended;
use crate::trouble::fault;
use crate::writer::{self, Plain, Sink};

/// Batches that may be given to the thread at once: one being written, one waiting, so that the disk
/// is never idle and little is left behind by a call that is dropped.
const BATCHES_MAX: usize = 2;

/// Limits of a file broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// How long one line may be, in bytes, without its break. Default 2 MiB: what readers of
    /// CloudEvents documents accept.
    pub line_bytes_max: usize,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions { line_bytes_max: cloudevents::DOCUMENT_BYTES_MAX }
    }
}

/// A broker that appends lines to a file, to standard output, or to a writer. Topics are not told
/// apart: all events go to one end.
///
/// **Durability.** Only of files.
/// **Cancellation.** A publish that is dropped before its batch is being written writes nothing;
/// later its lines may be there although nobody is told. At most two batches are affected.
#[derive(Clone)]
pub struct FileBroker {
    batches: mpsc::Sender<Batch>,
    name: Arc<str>,
    durable: bool,
    options: FileOptions,
    closed: Arc<AtomicBool>,
}

impl std::fmt::Debug for FileBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileBroker").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Lines on their way to the thread, and who waits for them.
struct Batch {
    /// None: the end. What comes behind it is not written, however early it was asked for.
    lines: Option<Vec<u8>>,
    answer: oneshot::Sender<Result<(), Fault>>,
}

impl FileBroker {
    /// Opens a file to append to, and makes it if there is none. A partial last line that a crash
    /// left is cut off. Blocks for as long as that takes.
    ///
    /// # Errors
    /// `NotFound` if its folder is missing, `ReadOnly`, `Busy` if another process holds its lock for
    /// long, `Config` if it is a folder, or `Unavailable`.
    pub fn open(path: impl AsRef<Path>) -> Result<FileBroker> {
        FileBroker::open_with(path, FileOptions::default())
    }

    /// Opens a file with limits of one's own.
    ///
    /// # Errors
    /// As [`open`](FileBroker::open).
    pub fn open_with(path: impl AsRef<Path>, options: FileOptions) -> Result<FileBroker> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let file = Appended::open(path, options.line_bytes_max)
            .map_err(|e| tell("open file", &name, fault(&e)))?;
        FileBroker::start(Box::new(file), &name, true, options)
    }

    /// The process's standard output. A reader that went away is a failure of the endpoint.
    ///
    /// # Errors
    /// `Unavailable` if there is no standard output.
    pub fn stdout() -> Result<FileBroker> {
        let sink = writer::stdout().map_err(|e| tell("open", "stdout", fault(&e)))?;
        FileBroker::start(sink, "stdout", false, FileOptions::default())
    }

    /// Any writer. It is flushed after every batch.
    ///
    /// # Errors
    /// `Unavailable` if no thread can be started.
    pub fn from_writer(
        writer: impl Write + Send + 'static,
        options: FileOptions,
    ) -> Result<FileBroker> {
        FileBroker::start(Box::new(Plain::new(writer)), "writer", false, options)
    }

    /// The broker of an address: `stdout` or `file://PATH`.
    ///
    /// # Errors
    /// `Config` for another address; else as [`open`](FileBroker::open).
    pub fn from_url(url: &TargetUrl) -> Result<FileBroker> {
        let plain = url.expose() == url.path();
        match (url.scheme(), url.path()) {
            ("stdout", "") if plain => FileBroker::stdout(),
            ("file", path) if plain && !path.is_empty() => FileBroker::open(path),
            _ => Err(Error::new(ErrorKind::Config, "open file broker")
                .message("the address is stdout or file://PATH, without parameters")
                .context("address", url)),
        }
    }

    fn start(
        mut sink: Box<dyn Sink>,
        name: &str,
        durable: bool,
        options: FileOptions,
    ) -> Result<FileBroker> {
        let (sender, mut batches) = mpsc::channel::<Batch>(BATCHES_MAX);
        std::thread::Builder::new()
            .name("postrider-file".to_owned())
            .spawn(move || {
                let mut closed = false;
                while let Some(batch) = batches.blocking_recv() {
                    if batch.answer.is_closed() {
                        continue;
                    }
                    closed |= batch.lines.is_none();
                    let written = match &batch.lines {
                        Some(_) if closed => Err(was_closed()),
                        lines => {
                            sink.append(lines.as_deref().unwrap_or_default()).map_err(|e| fault(&e))
                        }
                    };
                    // A caller that went away does not want to know.
                    let _ = batch.answer.send(written);
                }
            })
            .map_err(|e| tell("start file broker", name, fault(&e)))?;
        Ok(FileBroker {
            batches: sender,
            name: Arc::from(name),
            durable,
            options,
            closed: Arc::default(),
        })
    }

    /// Gives lines to the thread, and waits for what became of them; or the end, which is there when
    /// all lines before it are done.
    async fn append(&self, operation: &'static str, lines: Option<Vec<u8>>) -> Result<()> {
        let gone = || {
            let fault = Fault::new(ErrorKind::Closed, "the broker has ended");
            tell(operation, &self.name, fault)
        };
        let (answer, written) = oneshot::channel();
        let batch = Batch { lines, answer };
        self.batches.send(batch).await.map_err(|_| gone())?;
        match written.await {
            Ok(result) => result.map_err(|fault| tell(operation, &self.name, fault)),
            Err(_) => Err(gone()),
        }
    }

    async fn publish_batch(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(tell("publish", &self.name, was_closed()));
        }
        let (lines, outcomes) = encode(batch, self.options.line_bytes_max);
        if !lines.is_empty() {
            self.append("publish", Some(lines)).await?;
        }
        Ok(outcomes)
    }
}

fn was_closed() -> Fault {
    Fault::new(ErrorKind::Closed, "the broker was closed")
}

fn tell(operation: &'static str, name: &str, fault: Fault) -> Error {
    Error::new(fault.kind, operation).message(fault.detail).context("to", name)
}

impl Broker for FileBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut can = BrokerCapabilities::least();
        can.prefix_order = true;
        can.keeps_key_order = true;
        can.deduplicates_for = None;
        can.durable = self.durable;
        can.formats = &[Format::Structured];
        can.batch_rows_max = 1_000;
        can.batch_bytes_max = 4 * 1024 * 1024;
        can.batches_in_flight_max = BATCHES_MAX as u32;
        can.endpoint_batches_max = BATCHES_MAX as u32;
        can
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(self.publish_batch(batch))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.closed.store(true, Ordering::Release);
            self.append("close", None).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A publish that looked before the broker was closed, and came behind the end, writes
    /// nothing: `close` said that nothing more is sent.
    #[tokio::test]
    async fn a_publish_that_is_overtaken_by_the_end_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let broker = FileBroker::open(&path).unwrap();
        broker.append("publish", Some(b"1\n".to_vec())).await.unwrap();
        broker.close().await.unwrap();
        let refused = broker.append("publish", Some(b"2\n".to_vec())).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed, "{refused}");
        broker.close().await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1\n");
    }
}
