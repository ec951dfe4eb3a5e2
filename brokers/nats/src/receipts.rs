//! Deliveries that are not settled yet: where the server hears of each, and until when it is ours.
//!
//! Invariant: nothing is settled with a receipt whose visibility has ended, or after which the same message
//! came again: by then it may be somebody else's, and the server cannot tell.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use postrider_core::subscription::Receipt;
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

/// Messages whose deliveries are remembered that did not count. Past them a message may seem to have been
/// delivered more often than it was tried.
const UNCOUNTED_MAX: usize = 10_000;

/// See the module.
#[derive(Default)]
pub(crate) struct Receipts {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    open: HashMap<u64, Open>,
    /// Deliveries of a message that were merely somebody else's turn.
    uncounted: HashMap<u64, u32>,
}

struct Open {
    token: u64,
    until: Instant,
    reply: Subject,
    original: Arc<Original>,
}

/// A message as it came: what a dead letter is made of, also when its stream has let it go meanwhile.
pub(crate) struct Original {
    pub(crate) subject: Subject,
    pub(crate) headers: Option<HeaderMap>,
    pub(crate) body: Bytes,
    /// When the server took it, in nanoseconds since 1970.
    pub(crate) at: i128,
}

impl Receipts {
    /// A delivery came. Returns how often the message was delivered and tried, this time included.
    pub(crate) fn open(
        &self,
        receipt: Receipt,
        until: Instant,
        reply: Subject,
        original: Original,
        delivered: u32,
    ) -> u32 {
        let mut inner = self.lock();
        let now = Instant::now();
        // What expired is forgotten: its receipt is refused either way.
        inner.open.retain(|_, open| open.until > now);
        let open = Open { token: receipt.token, until, reply, original: Arc::new(original) };
        inner.open.insert(receipt.message, open);
        let uncounted = inner.uncounted.get(&receipt.message).copied().unwrap_or_default();
        delivered.saturating_sub(uncounted).max(1)
    }

    /// Where the server hears of it, while the delivery is ours.
    ///
    /// # Errors
    /// `Fenced` if it is not any more.
    pub(crate) fn find(&self, receipt: Receipt) -> Result<Subject> {
        self.open_of(receipt, |open| open.reply.clone())
    }

    /// The message, while the delivery is ours.
    ///
    /// # Errors
    /// `Fenced` if it is not any more.
    pub(crate) fn original(&self, receipt: Receipt) -> Result<Arc<Original>> {
        self.open_of(receipt, |open| Arc::clone(&open.original))
    }

    /// Whether a delivery of a message is ours.
    pub(crate) fn is_open(&self, message: u64) -> bool {
        self.lock().open.get(&message).is_some_and(|open| open.until > Instant::now())
    }

    fn open_of<T>(&self, receipt: Receipt, of: impl FnOnce(&Open) -> T) -> Result<T> {
        match self.lock().open.get(&receipt.message) {
            Some(open) if open.token == receipt.token && open.until > Instant::now() => Ok(of(open)),
            _ => Err(Error::new(ErrorKind::Fenced, "settle delivery").message(
                "its visibility ended, so it may be another consumer's now; it comes again, and nothing \
                 was settled",
            )),
        }
    }

    /// It stays ours until then.
    pub(crate) fn extend(&self, receipt: Receipt, until: Instant) {
        let mut inner = self.lock();
        let open = inner.open.get_mut(&receipt.message);
        if let Some(open) = open.filter(|open| open.token == receipt.token) {
            open.until = until;
        }
    }

    /// It was settled, or given back.
    pub(crate) fn close(&self, receipt: Receipt) {
        let mut inner = self.lock();
        if inner.open.get(&receipt.message).is_some_and(|open| open.token == receipt.token) {
            inner.open.remove(&receipt.message);
        }
    }

    /// This delivery was no try.
    pub(crate) fn discount(&self, message: u64) {
        let mut inner = self.lock();
        if inner.uncounted.len() >= UNCOUNTED_MAX {
            inner.uncounted.clear();
        }
        *inner.uncounted.entry(message).or_default() += 1;
    }

    /// The message is gone for good.
    pub(crate) fn forget(&self, message: u64) {
        self.lock().uncounted.remove(&message);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
