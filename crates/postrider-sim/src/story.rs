//! The story of a run: who did what to which event, when, and why; in lines that a person reads.

use std::sync::{Arc, Mutex, PoisonError};

use crate::exec::Kernel;

/// Lines in the order in which things happened; none are made unless somebody wants them.
#[derive(Debug)]
pub struct Story {
    kernel: Arc<Kernel>,
    wanted: bool,
    lines: Mutex<Vec<String>>,
}

impl Story {
    /// A story of a world, told only if it is wanted.
    pub fn new(kernel: Arc<Kernel>, wanted: bool) -> Story {
        Story { kernel, wanted, lines: Mutex::default() }
    }

    /// Whether anybody listens.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Somebody did something.
    pub fn tell(&self, who: &str, what: impl FnOnce() -> String) {
        if !self.wanted {
            return;
        }
        let micros = self.kernel.now().0 / 1_000;
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let line = format!("{seconds:>5}.{micros:06}  {who:<14} {}", what());
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// What was told.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
