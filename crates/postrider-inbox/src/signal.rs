//! A signal that is given once and stays given: how a handler is told to stop.
//!
//! Invariant: whoever asks after it was given sees it, however late.

use tokio::sync::watch;

/// The side that gives the signal.
#[derive(Clone, Debug)]
pub struct Signal(watch::Sender<bool>);

/// The side that waits for it.
#[derive(Clone, Debug)]
pub struct Listener(watch::Receiver<bool>);

impl Signal {
    /// A signal that was not given yet.
    pub fn new() -> Signal {
        Signal(watch::Sender::new(false))
    }

    /// Gives it. Giving it twice changes nothing.
    pub fn give(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was given.
    pub fn is_given(&self) -> bool {
        *self.0.borrow()
    }

    /// Somebody who waits for it.
    pub fn listener(&self) -> Listener {
        Listener(self.0.subscribe())
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
        *self.0.borrow()
    }

    /// Returns when it was given; never, if the other side went away without giving it.
    pub async fn given(&mut self) {
        if self.0.wait_for(|given| *given).await.is_err() {
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
