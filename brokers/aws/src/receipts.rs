//! Deliveries that are not settled yet: the queue's handle of each, and until when it is ours.
//!
//! Invariant: nothing is settled with a receipt whose visibility has ended, or after which the same message came
//! again: by then it may be somebody else's, and a standard queue would settle it all the same.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_sdk_sqs::types::Message;
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
    /// Deliveries of a message that were no try: somebody else's turn, or never handed out.
    uncounted: HashMap<u64, u32>,
    tokens: u64,
}

/// A delivery that is ours.
#[derive(Clone)]
pub(crate) struct Open {
    token: u64,
    /// When the queue gave it out.
    pub(crate) at: Instant,
    until: Instant,
    /// The message, as it came.
    pub(crate) message: Arc<Message>,
}

impl Open {
    /// The queue's handle.
    pub(crate) fn handle(&self) -> &str {
        self.message.receipt_handle().unwrap_or_default()
    }
}

impl Receipts {
    /// A delivery came. Returns its receipt, and how often the message was delivered and tried, this time included.
    pub(crate) fn open(
        &self,
        message: Message,
        at: Instant,
        until: Instant,
        delivered: u32,
    ) -> (Receipt, u32) {
        let mut inner = self.lock();
        let now = Instant::now();
        // What expired is forgotten: its receipt is refused either way.
        inner.open.retain(|_, open| open.until > now);
        inner.tokens += 1;
        let receipt = Receipt { message: number(&message), token: inner.tokens };
        let open = Open { token: receipt.token, at, until, message: Arc::new(message) };
        inner.open.insert(receipt.message, open);
        let uncounted = inner.uncounted.get(&receipt.message).copied().unwrap_or_default();
        (receipt, delivered.saturating_sub(uncounted).max(1))
    }

    /// The delivery, while it is ours.
    ///
    /// # Errors
    /// `Fenced` if it is not any more.
    pub(crate) fn find(&self, receipt: Receipt) -> Result<Open> {
        match self.lock().open.get(&receipt.message) {
            Some(open) if open.token == receipt.token && open.until > Instant::now() => {
                Ok(open.clone())
            }
            _ => Err(fenced()),
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

pub(crate) fn fenced() -> Error {
    Error::new(ErrorKind::Fenced, "settle delivery").message(
        "its visibility ended, so it may be another consumer's now; it comes again, and nothing was settled",
    )
}

/// What a message is called here: a number that follows from its id.
pub(crate) fn number(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.message_id().unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}
