//! Where a process's tasks leave what its main loop is to hear.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A queue with one reader. Clones are ways in.
#[derive(Debug)]
pub struct Mailbox<T>(Arc<Mutex<(VecDeque<T>, Option<Waker>)>>);

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Mailbox<T> {
        Mailbox(Arc::clone(&self.0))
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox(Arc::new(Mutex::new((VecDeque::new(), None))))
    }
}

impl<T> Mailbox<T> {
    fn state(&self) -> MutexGuard<'_, (VecDeque<T>, Option<Waker>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves something.
    pub fn put(&self, item: T) {
        let mut state = self.state();
        state.0.push_back(item);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The oldest, if there is one.
    pub fn take(&self) -> Option<T> {
        self.state().0.pop_front()
    }

    /// The oldest, or the reader is woken when there is one.
    pub fn poll(&self, context: &Context<'_>) -> Poll<T> {
        let mut state = self.state();
        match state.0.pop_front() {
            Some(item) => Poll::Ready(item),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
