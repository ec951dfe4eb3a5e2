//! A task of a process that can be dropped by whoever holds its rope.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use postrider_core::BoxFuture;

use crate::exec::{Kernel, ProcessNo};

/// The way to a task. Dropping it leaves the task alone.
#[derive(Clone)]
pub(super) struct Rope(Arc<Mutex<Hung>>);

struct Hung {
    future: Option<BoxFuture<'static, ()>>,
    waker: Option<Waker>,
}

impl Rope {
    /// Starts a task of a process.
    pub(super) fn spawn(
        kernel: &Kernel,
        process: ProcessNo,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Rope {
        let hung = Hung { future: Some(Box::pin(future)), waker: None };
        let rope = Rope(Arc::new(Mutex::new(hung)));
        let held = rope.clone();
        kernel.spawn(
            process,
            poll_fn(move |context| {
                let mut hung = held.hung();
                let Some(future) = &mut hung.future else { return Poll::Ready(()) };
                if future.as_mut().poll(context).is_ready() {
                    hung.future = None;
                    return Poll::Ready(());
                }
                hung.waker.get_or_insert_with(|| context.waker().clone());
                Poll::Pending
            }),
        );
        rope
    }

    fn hung(&self) -> MutexGuard<'_, Hung> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what the task is about, wherever it stands. Not from within the task itself.
    pub(super) fn cut(&self) {
        let (future, waker) = {
            let mut hung = self.hung();
            (hung.future.take(), hung.waker.take())
        };
        drop(future);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl fmt::Debug for Rope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rope")
    }
}
