//! Handles: what one process has of a store. Its way to the server, what it can read, and what it
//! remembers of its readings.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use postrider_core::Result;

use super::reading::Local;
use super::server::Needs;
use super::state::State;
use super::{Line, MemoryStore};

impl Clone for MemoryStore {
    fn clone(&self) -> MemoryStore {
        let seen = *self.shared.commits.borrow();
        MemoryStore {
            number: self.shared.handles.fetch_add(1, Ordering::Relaxed),
            shared: Arc::clone(&self.shared),
            woken: AtomicU64::new(seen),
            line: self.line.clone(),
            format_max: self.format_max,
            local: Mutex::new(Local::default()),
        }
    }
}

impl MemoryStore {
    /// A handle whose statements go through a line: a process's connection. A statement waits for the
    /// line, acts on the server at once and as a whole, and waits for the line again.
    #[must_use]
    pub fn on(&self, line: Arc<dyn Line>) -> MemoryStore {
        MemoryStore { line: Some(line), ..self.clone() }
    }

    /// A handle of a program that knows rows up to this format: what is newer it reads as malformed.
    #[must_use]
    pub fn knows_format(&self, format: u16) -> MemoryStore {
        MemoryStore { format_max: format, ..self.clone() }
    }

    /// One statement: on the way, on the server, on the way back. Nothing is locked while it waits.
    pub(super) async fn statement<T>(
        &self,
        name: &'static str,
        needs: Needs,
        act: impl FnOnce(&mut State) -> Result<T> + Send,
    ) -> Result<T> {
        let Some(line) = &self.line else {
            let mut state = self.state();
            state.admits(name, needs)?;
            return state.written(needs, act);
        };
        line.there(name, needs.access()).await?;
        let answer = {
            let mut state = self.state();
            let admitted = state.admits(name, needs).and_then(|()| state.is_free(name, needs));
            admitted.and_then(|()| state.written(needs, act))
        };
        line.back(name).await?;
        answer
    }
}

impl State {
    /// What a statement writes is durable, and all that ended before it.
    fn written<T>(&mut self, needs: Needs, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let done = act(self)?;
        if needs != Needs::Nothing {
            self.xids.flush();
        }
        Ok(done)
    }

    /// Where there is one writer at a time, everybody else's write waits for it, and gives up.
    fn is_free(&self, statement: &'static str, needs: Needs) -> Result<()> {
        if needs == Needs::Nothing { Ok(()) } else { self.take_turn(statement) }
    }
}
