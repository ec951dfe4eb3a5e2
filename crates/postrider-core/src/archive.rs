//! Archives: where events go that are about to be deleted.

use std::sync::Arc;

use crate::{BoxFuture, Event, Result};

/// Keeps events that retention is about to delete. Object-safe.
///
/// **Durability.** When `append` returns, the events survive a crash of the machine: they are deleted
/// next.
/// **Duplicates.** After a crash between archive and delete, events come again. Their ids tell.
pub trait Archive: Send + Sync {
    /// Appends events, oldest first, all or an error.
    fn append<'a>(&'a self, events: &'a [Arc<Event>]) -> BoxFuture<'a, Result<()>>;
}
