//! A producer whom nobody keeps back: what it waits for is the machine.
//!
//! Invariant: whatever kept it, between two of its commits or in one, counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::support::Fresh;

/// It commits rows of a table that is the test's own, one after another, until it is told to stop.
pub(crate) struct Undisturbed {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Duration>,
}

impl Undisturbed {
    pub(crate) async fn start(fresh: &Fresh) -> Undisturbed {
        let table =
            "create table {schema}.beside (id bigint generated always as identity primary key)";
        fresh.run(table).await;
        let client = fresh.connect().await;
        let insert = fresh.sql("begin; insert into {schema}.beside default values; commit");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let (mut longest, mut last) = (Duration::ZERO, Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                client.batch_execute(&insert).await.expect("nobody is in its way");
                longest = longest.max(last.elapsed());
                last = Instant::now();
                // waits: the others are to have the server
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            longest.max(last.elapsed())
        });
        Undisturbed { stop, task }
    }

    /// How long the machine let it wait at most. To be asked when the others have ended.
    pub(crate) async fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("it goes on")
    }
}
