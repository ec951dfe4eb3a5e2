//! Threads that own a connection: SQLite blocks, so nothing of it runs on the runtime's threads.
//!
//! Invariants: a job runs from its beginning to its end without waiting for anything but the
//! database, so no lock is ever held while something is awaited; and a job runs only on the file
//! that was opened first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use postrider_core::{Error, ErrorKind, Result};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::connection;
use crate::file::StoreFile;

/// Jobs that wait for one thread. The engine has a handful of calls under way; 64 leaves room for
/// health checks, and a caller beyond that waits.
const JOBS_MAX: usize = 64;

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// A thread with a connection, and the queue to it. The thread ends when this is dropped and the
/// queue is empty.
pub(crate) struct Worker {
    jobs: mpsc::Sender<Job>,
}

/// What the thread has at hand.
struct Desk {
    file: Arc<StoreFile>,
    connection: Option<Connection>,
    generation: u64,
}

impl Worker {
    /// Starts the thread. The connection is opened by the first job that needs it.
    pub(crate) fn start(name: &str, file: Arc<StoreFile>) -> Result<Worker> {
        let (jobs, mut queue) = mpsc::channel::<Job>(JOBS_MAX);
        let mut desk = Desk { generation: file.generation(), file, connection: None };
        std::thread::Builder::new()
            .name(format!("postrider-sqlite-{name}"))
            .spawn(move || {
                while let Some(job) = queue.blocking_recv() {
                    job(&mut desk);
                }
            })
            .map_err(|e| {
                Error::new(ErrorKind::Unavailable, "start store")
                    .message("a thread could not be started")
                    .source(e)
            })?;
        Ok(Worker { jobs })
    }

    /// Runs a job on the thread and waits for its answer.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let gone = || Error::new(ErrorKind::Closed, operation).message("the store was closed");
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |desk| {
            // Nobody is there to hear it if the caller was cancelled; what was done stays done.
            _ = answer.send(desk.run(operation, work));
        });
        self.jobs.send(job).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

impl Desk {
    fn run<T>(
        &mut self,
        operation: &'static str,
        work: impl FnOnce(&mut Connection) -> Result<T>,
    ) -> Result<T> {
        let outcome =
            self.ready(operation).and_then(|connection| guarded(operation, || work(connection)));
        if let Err(error) = &outcome {
            // A connection that failed as a whole is not used again; the next job opens another.
            if !is_about_the_request(error.kind()) {
                self.connection = None;
            }
        }
        outcome.map_err(|error| error.context("store", self.file.name()))
    }

    /// The connection, to the file that is still at the path.
    fn ready(&mut self, operation: &'static str) -> Result<&mut Connection> {
        if self.file.check(operation)? != self.generation {
            self.connection = None;
        }
        // More than once only if the store is opened anew meanwhile.
        while self.connection.is_none() {
            self.generation = self.file.check(operation)?;
            let opened = connection::open_existing(self.file.path(), operation)?;
            // Once more: what was opened must be what was looked at.
            if self.file.check(operation)? == self.generation {
                self.connection = Some(opened);
            }
        }
        Ok(self.connection.as_mut().expect("invariant: the connection was opened above"))
    }
}

/// A panic in a job must not take the thread, and every later caller, with it.
fn guarded<T>(operation: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::new(ErrorKind::Internal, operation).message(panic_text(&*panic)))
    })
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a text");
    format!("panicked: {said}")
}

/// Whether an error leaves the connection as good as it was.
fn is_about_the_request(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Unavailable | ErrorKind::Corrupt | ErrorKind::ReadOnly | ErrorKind::Internal
    )
}
