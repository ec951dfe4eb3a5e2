//! What an inbox store gives its suite: handles, a clock, and where it has transactions, a probe
//! that acts inside one.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::Accepted;
use postrider_core::{BoxFuture, Event, HandlerName, InboxStore, Result};

/// An inbox store under test, for [`inbox_suite!`](crate::inbox_suite).
pub trait InboxHarness: Send + Sync + Sized + 'static {
    /// Why this machine cannot run the cases, such as a server that is not there; then each of them prints it
    /// as its skip. Asked before [`start`](Self::start).
    fn unavailable() -> Option<String> {
        None
    }

    /// A fresh inbox with its tables and no row, that no other case sees.
    fn start() -> impl Future<Output = Self> + Send;

    /// Another handle on the inbox, as another process would have it.
    fn inbox(&self) -> Arc<dyn InboxStore>;

    /// Lets time pass on the store's clock. A virtual clock advances; a real one is waited for.
    fn pass(&self, span: Duration) -> BoxFuture<'_, ()> {
        // waits: a real clock has to pass
        Box::pin(tokio::time::sleep(span))
    }

    /// A span that the store's clock tells apart from its neighbours even on a busy machine. Short
    /// claims of the cases last a few of them. Default 300 ms.
    fn unit(&self) -> Duration {
        Duration::from_millis(300)
    }

    /// Whether a purge takes claims as well that ended so long ago, by their leases or because they were let go, and
    /// that nobody took again. Default no: they stay with their steps.
    fn purges_claims(&self) -> bool {
        false
    }

    /// The way to act inside a transaction; `None` if this store has only claims.
    fn transactional(&self) -> Option<Arc<dyn TransactionalProbe>> {
        None
    }
}

/// How a probe's transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It commits.
    Commit,
    /// The handler fails, and the transaction is rolled back.
    Fail,
    /// The handler vanishes: the transaction is dropped without a word, as by a panic.
    Abandon,
}

/// A transactional inbox as a handler uses it: accept, and if it is the first time, write one effect
/// row in the same transaction.
pub trait TransactionalProbe: Send + Sync {
    /// Accepts the event for the handler in a new transaction, writes one effect row if that says
    /// [`Accepted::FirstTime`], ends the transaction as told, and returns what accept said (also
    /// when the transaction was then rolled back).
    ///
    /// # Errors
    /// What accept or the commit says: `Conflict` for a known id with another payload.
    fn accept<'a>(
        &'a self,
        event: &'a Event,
        handler: &'a HandlerName,
        then: Then,
    ) -> BoxFuture<'a, Result<Accepted>>;

    /// How many effect rows are committed.
    fn effects(&self) -> BoxFuture<'_, u64>;
}
