//! A server that stands and says that it is there, while no stream behind it says anything: one that is cut off from its
//! cluster. The client stays with it, however well the others are.
//!
//! Invariant (INV-8): it is left where another one is known, and not more often than a congested cluster bears.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_nats::Client;
use postrider_core::{Error, ErrorKind, Outcome};
use tokio::time::{Instant, timeout_at};

use crate::connection::{Connection, PING_MIN};

/// As often as a server may let a question pass before it counts as gone: as with those whether it is there.
const QUESTIONS: u32 = 3;

/// Since when nothing was heard of a stream over a connection.
#[derive(Default)]
pub(crate) struct Silence {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    epoch: u64,
    since: Option<Instant>,
}

impl Silence {
    fn heard(&self) {
        self.lock().since = None;
    }

    fn unheard(&self, epoch: u64, since: Instant) {
        let mut inner = self.lock();
        if inner.epoch != epoch {
            *inner = Inner { epoch, since: None };
        }
        inner.since.get_or_insert(since);
    }

    fn began(&self, epoch: u64) -> Option<Instant> {
        let inner = self.lock();
        inner.since.filter(|_| inner.epoch == epoch)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Notes whether a stream said anything to a batch that was given to a connection then. That no stream takes a subject, the
    /// server may say by itself.
    pub(crate) fn note_answers(&self, epoch: u64, begun: Instant, outcomes: &[Outcome]) {
        let said = |it: &Outcome| matches!(it, Outcome::Acked | Outcome::Rejected(_));
        let silent =
            |it: &Outcome| matches!(it, Outcome::Retry { fault, .. } if is_silence(fault.kind));
        if outcomes.iter().any(said) {
            self.silence.heard();
        } else if outcomes.iter().any(silent) {
            self.silence.unheard(epoch, begun);
        }
    }

    /// Notes whether a consumer said anything to who receives.
    pub(crate) fn note_receipt<T>(&self, received: &Result<T, Error>) {
        match received {
            Ok(_) => self.silence.heard(),
            Err(error) if is_silence(error.kind()) => {
                if let Some(epoch) = self.standing() {
                    self.silence.unheard(epoch, Instant::now());
                }
            }
            Err(_) => {}
        }
    }

    /// Has a connection made anew over which nothing has been heard for long, where there is another server, and says which one
    /// that was.
    pub(crate) async fn leave_silent(&self, client: &Client, until: Instant) -> Option<u64> {
        let epoch = self.standing()?;
        let patience = self.settings().deadline.max(PING_MIN) * QUESTIONS;
        if self.silence.began(epoch)?.elapsed() < patience {
            return None;
        }
        // Whoever comes meanwhile leaves it alone, and where there is no other one it is not asked for each time.
        self.silence.heard();
        let pool = timeout_at(until, client.server_pool()).await.ok()?.ok()?;
        if pool.len() < 2 {
            return None;
        }
        let _ = timeout_at(until, client.force_reconnect()).await;
        Some(epoch)
    }
}

fn is_silence(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Timeout | ErrorKind::Unavailable)
}
