//! The one thread that owns the connection, and the jobs it is given.
//!
//! Jobs that wait together share one transaction, so that many small calls cost one sync to disk; a
//! job that fails undoes only itself. No job is answered before the commit that holds its work.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use postrider_core::{Error, ErrorKind, Fault, Result};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::database::{Access, Database, Scope};
use crate::trouble::{Step, Trouble, tell};

/// How many calls may wait for the thread. Callers beyond that wait to be allowed to wait.
const JOBS_MAX: usize = 256;
/// How many jobs share a transaction at most, so that the first does not wait long for the last.
const SHARED_MAX: usize = 64;

/// A handle on the thread. The thread ends when the last handle is gone and all jobs are done.
#[derive(Clone)]
pub(crate) struct Worker {
    jobs: mpsc::Sender<Box<dyn Job>>,
    notify: Arc<Notify>,
    path: Arc<PathBuf>,
}

impl Worker {
    /// Starts the thread.
    pub(crate) fn start(database: Database) -> Result<(Worker, JoinHandle<()>)> {
        let (sender, receiver) = mpsc::channel(JOBS_MAX);
        let notify = Arc::new(Notify::new());
        let worker = Worker {
            jobs: sender,
            notify: Arc::clone(&notify),
            path: Arc::new(database.path().to_owned()),
        };
        let thread = std::thread::Builder::new()
            .name("postrider-local".to_owned())
            .spawn(move || work(&database, receiver, &notify))
            .map_err(|e| Error::new(ErrorKind::Unavailable, "start local broker").source(e))?;
        Ok((worker, thread))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until something may have become deliverable through this process.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.notify.notified()
    }

    /// Does a step in the thread. Dropping the future before the step began undoes the request;
    /// after that, the step is done all the same.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        access: Access,
        step: impl FnOnce(&Scope<'_>) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        self.call_then(operation, access, step, |value| value).await
    }

    /// Does a step, and what belongs to its result only once that is committed.
    pub(crate) async fn call_then<T: Send + 'static, U: Send + 'static>(
        &self,
        operation: &'static str,
        access: Access,
        step: impl FnOnce(&Scope<'_>) -> Step<T> + Send + 'static,
        then: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        let gone = || Error::new(ErrorKind::Closed, operation).message("the broker has ended");
        let (answer, result) = oneshot::channel();
        let job =
            Ask { access, step: Some(step), result: None, then, answer, wanted_always: false };
        self.jobs.send(Box::new(job)).await.map_err(|_| gone())?;
        match result.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(fault)) => Err(tell(operation, &self.path, &fault)),
            Err(_) => Err(gone()),
        }
    }

    /// Asks for a step whose outcome nobody waits for, if there is room to ask.
    pub(crate) fn post(&self, step: impl FnOnce(&Scope<'_>) -> Step<()> + Send + 'static) {
        let (answer, _) = oneshot::channel();
        // No room: what the step would have done early, the visibility timeout does late.
        let _ = self.jobs.try_send(Box::new(Ask {
            access: Access::Write,
            step: Some(step),
            result: None,
            then: |()| (),
            answer,
            wanted_always: true,
        }));
    }
}

/// A call on its way through the thread.
trait Job: Send {
    fn access(&self) -> Access;
    /// Whether nobody waits for it any more.
    fn abandoned(&self) -> bool;
    /// Does the step and keeps its result; `Err` if it failed.
    fn run(&mut self, scope: &Scope<'_>) -> Step<()>;
    /// Tells the caller: the step's result, or why its transaction failed.
    fn answer(self: Box<Self>, committed: Result<(), &Fault>);
}

struct Ask<T, U, F, G> {
    access: Access,
    step: Option<F>,
    result: Option<Result<T, Fault>>,
    then: G,
    answer: oneshot::Sender<Result<U, Fault>>,
    wanted_always: bool,
}

impl<T, U, F, G> Job for Ask<T, U, F, G>
where
    T: Send,
    U: Send,
    F: FnOnce(&Scope<'_>) -> Step<T> + Send,
    G: FnOnce(T) -> U + Send,
{
    fn access(&self) -> Access {
        self.access
    }

    fn abandoned(&self) -> bool {
        self.answer.is_closed() && !self.wanted_always
    }

    fn run(&mut self, scope: &Scope<'_>) -> Step<()> {
        let step = self.step.take().expect("invariant: a job runs once");
        match step(scope) {
            Ok(value) => {
                self.result = Some(Ok(value));
                Ok(())
            }
            Err(trouble) => {
                self.result = Some(Err(trouble.fault()));
                Err(trouble)
            }
        }
    }

    fn answer(self: Box<Self>, committed: Result<(), &Fault>) {
        let result = match (committed, self.result) {
            (Err(fault), _) => Err(fault.clone()),
            (Ok(()), Some(result)) => result.map(self.then),
            (Ok(()), None) => Err(Fault::new(ErrorKind::Internal, "the step was not done")),
        };
        // A caller that went away does not want to know.
        let _ = self.answer.send(result);
    }
}

fn work(database: &Database, mut jobs: mpsc::Receiver<Box<dyn Job>>, notify: &Notify) {
    while let Some(first) = jobs.blocking_recv() {
        let mut shared = vec![first];
        while shared.len() < SHARED_MAX
            && let Ok(job) = jobs.try_recv()
        {
            shared.push(job);
        }
        shared.retain(|job| !job.abandoned());
        let Some(access) = shared.iter().map(|job| job.access()).max() else {
            continue;
        };
        let outcome = run_together(database, access, &mut shared);
        if let Ok(true) = outcome {
            notify.notify_waiters();
        }
        let committed = outcome.map(|_| ());
        for job in shared {
            job.answer(committed.as_ref().copied());
        }
    }
}

/// One transaction for all the jobs; whether consumers are to be woken.
fn run_together(
    database: &Database,
    access: Access,
    jobs: &mut [Box<dyn Job>],
) -> Result<bool, Fault> {
    let mut whole = || -> Step<bool> {
        database.begin(access)?;
        let scope = database.scope()?;
        let writes = access != Access::Read;
        for job in &mut *jobs {
            let done =
                if writes { database.savepoint(|| job.run(&scope)) } else { job.run(&scope) };
            // A failed job keeps its own error; the others go on, unless SQLite gave up on all.
            if let Err(trouble) = done
                && writes
                && !database.in_transaction()
            {
                return Err(trouble);
            }
        }
        if writes {
            database.commit()?;
        }
        Ok(scope.wake.get())
    };
    whole().map_err(|trouble: Trouble| {
        database.roll_back();
        trouble.fault()
    })
}
