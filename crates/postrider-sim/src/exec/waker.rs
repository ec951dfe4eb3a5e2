//! How a future says that it can move again: its task goes to the ready ones, once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Wake;

use super::kernel::{Kernel, TaskNo};

/// A task's bell.
#[derive(Debug)]
pub(super) struct Bell {
    kernel: Weak<Kernel>,
    task: TaskNo,
    rung: AtomicBool,
}

impl Bell {
    pub(super) fn new(kernel: Weak<Kernel>, task: TaskNo) -> Bell {
        Bell { kernel, task, rung: AtomicBool::new(false) }
    }

    /// From now on it can be rung again.
    pub(super) fn hear(&self) {
        self.rung.store(false, Ordering::Relaxed);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        if self.rung.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(kernel) = self.kernel.upgrade() {
            kernel.ready(self.task);
        }
    }
}
