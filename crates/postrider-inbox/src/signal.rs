//! A signal that is given once and stays given: how a handler is told to stop.
//!
//! Invariant: whoever asks after it was given sees it, however late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// The side that gives the signal.
#[derive(Clone, Debug)]
pub struct Signal {
    given: watch::Sender<bool>,
    /// Given because a handler works too long, and not because the engine stops.
    overtime: Arc<AtomicBool>,
}

/// The side that waits for it.
#[derive(Clone, Debug)]
pub struct Listener {
    given: watch::Receiver<bool>,
    overtime: Arc<AtomicBool>,
}

impl Signal {
    /// A signal that was not given yet.
    pub fn new() -> Signal {
        Signal { given: watch::Sender::new(false), overtime: Arc::default() }
    }

    /// Gives it. Giving it twice changes nothing.
    pub fn give(&self) {
        self.given.send_replace(true);
    }

    /// Gives it to a handler that works too long: that is a failed try, as being stopped with the engine is not.
    pub fn give_for_overtime(&self) {
        self.overtime.store(true, Ordering::Release);
        self.give();
    }

    /// Whether it was given.
    pub fn is_given(&self) -> bool {
        *self.given.borrow()
    }

    /// Somebody who waits for it.
    pub fn listener(&self) -> Listener {
        Listener { given: self.given.subscribe(), overtime: Arc::clone(&self.overtime) }
    }
}

impl Default for Signal {
    fn default() -> Signal {
        Signal::new()
    }
}

impl Listener {
    /// Whether it was given.
    pub fn is_given(&self) -> bool {
        *self.given.borrow()
    }

    /// Whether it was given because the engine stops.
    pub(crate) fn is_for_shutdown(&self) -> bool {
        self.is_given() && !self.overtime.load(Ordering::Acquire)
    }

    /// Returns when it was given; never, if the other side went away without giving it.
    pub async fn given(&mut self) {
        if self.given.wait_for(|given| *given).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

tokio::task_local! {
    /// The engine's signal to the handler in whose task this is read.
    static STOP: Listener;
}

/// Runs a handler with the engine's signal in reach, as a loop of one's own around a
/// [`Machine`](crate::Machine) must: [`Context::cancelled`](crate::Context::cancelled) then sees it.
/// It needs no runtime.
pub fn within<F: Future>(stop: Listener, handler: F) -> impl Future<Output = F::Output> {
    STOP.scope(stop, handler)
}

/// The engine's signal, if this task is a handler of a consumer.
pub(crate) fn current() -> Option<Listener> {
    STOP.try_with(Clone::clone).ok()
}
