//! An archive in memory: it keeps what it was given, and fails as told.

use std::sync::{Arc, Mutex};

use postrider_core::{Archive, BoxFuture, Error, ErrorKind, Event, Result};

use super::lock;

/// An archive in memory. Clones are the same archive.
#[derive(Clone, Debug, Default)]
pub struct MemoryArchive {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    events: Vec<Arc<Event>>,
    fails: bool,
}

impl MemoryArchive {
    /// An empty archive.
    pub fn new() -> MemoryArchive {
        MemoryArchive::default()
    }

    /// Everything it was given, in order, copies included.
    pub fn events(&self) -> Vec<Arc<Event>> {
        lock(&self.shared).events.clone()
    }

    /// Refuses everything from now on, or takes it again.
    pub fn set_failing(&self, fails: bool) {
        lock(&self.shared).fails = fails;
    }
}

impl Archive for MemoryArchive {
    fn append<'a>(&'a self, events: &'a [Arc<Event>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut state = lock(&self.shared);
            if state.fails {
                return Err(Error::new(ErrorKind::Unavailable, "archive")
                    .message("the archive cannot be reached; nothing was deleted"));
            }
            state.events.extend(events.iter().cloned());
            Ok(())
        })
    }
}
