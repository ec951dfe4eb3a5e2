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

/// Messages whose tries are remembered. Past them counting begins anew.
const TRIED_MAX: usize = 10_000;

/// See the module.
#[derive(Default)]
pub(crate) struct Receipts {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    open: HashMap<u64, Open>,
    /// How often a message was tried here. The queue counts every delivery of every process, those as well that
    /// were somebody else's turn, or given back because an endpoint was away; by that count sound messages would be
    /// given up.
    tries: HashMap<u64, u32>,
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
    /// A delivery came. Returns its receipt, and how often the message was tried here, this time included.
    pub(crate) fn open(&self, message: Message, at: Instant, until: Instant) -> (Receipt, u32) {
        let mut inner = self.lock();
        let now = Instant::now();
        // What expired is forgotten: its receipt is refused either way.
        inner.open.retain(|_, open| open.until > now);
        inner.tokens += 1;
        let receipt = Receipt { message: number(&message), token: inner.tokens };
        let open = Open { token: receipt.token, at, until, message: Arc::new(message) };
        inner.open.insert(receipt.message, open);
        if inner.tries.len() >= TRIED_MAX && !inner.tries.contains_key(&receipt.message) {
            inner.tries.clear();
        }
        let tries = inner.tries.entry(receipt.message).or_default();
        *tries = tries.saturating_add(1);
        (receipt, *tries)
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
        if let Some(tries) = self.lock().tries.get_mut(&message) {
            *tries = tries.saturating_sub(1);
        }
    }

    /// The message is gone for good.
    pub(crate) fn forget(&self, message: u64) {
        self.lock().tries.remove(&message);
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
