//! Deleting what is done: acknowledgements that come while a call is under way share the next one.
//!
//! Invariant: who waits for a deletion hears of it only after the queue has confirmed it by name.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use postrider_core::{Error, ErrorKind, Result};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::answer::{Call, judge, judge_words};
use crate::call::ENTRIES_MAX;
use crate::receipts::fenced;

/// Calls under way at once. With more, each would carry less.
const CALLS_MAX: usize = 4;

/// See the module.
pub(crate) struct Deleting {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    queue: Arc<str>,
    deadline: Duration,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    entries: Vec<Entry>,
    calls: usize,
}

/// A message to delete, and who waits for it. Bounded by the deliveries that are unsettled.
struct Entry {
    handle: String,
    tell: oneshot::Sender<Result<()>>,
}

impl Deleting {
    pub(crate) fn new(client: Client, queue: Arc<str>, deadline: Duration) -> Deleting {
        let waiting = Mutex::default();
        Deleting { inner: Arc::new(Inner { client, queue, deadline, waiting }) }
    }

    /// Deletes a message, and returns when the queue says so.
    ///
    /// # Errors
    /// `Fenced` if it is not ours any more, and what keeps the queue from answering.
    pub(crate) async fn delete(&self, handle: &str) -> Result<()> {
        let (tell, told) = oneshot::channel();
        let begin = {
            let mut waiting = self.inner.lock();
            waiting.entries.push(Entry { handle: handle.to_owned(), tell });
            let begin = waiting.calls < CALLS_MAX;
            waiting.calls += usize::from(begin);
            begin
        };
        if begin {
            // A task of its own: whoever drops this call must not leave the others without an answer.
            tokio::spawn(work(Arc::clone(&self.inner)));
        }
        told.await.unwrap_or_else(|_| Err(lost("the program is about to end")))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the next call carries; nothing, and one call less, if nobody waits.
    fn next(&self) -> Option<Vec<Entry>> {
        let mut waiting = self.lock();
        if waiting.entries.is_empty() {
            waiting.calls -= 1;
            return None;
        }
        let count = waiting.entries.len().min(ENTRIES_MAX);
        Some(waiting.entries.drain(..count).collect())
    }
}

async fn work(inner: Arc<Inner>) {
    while let Some(entries) = inner.next() {
        let results = call(&inner, &entries).await;
        for (at, entry) in entries.into_iter().enumerate() {
            let result = match &results {
                Ok(results) => results[at].as_ref().map_err(Error::repeated).copied(),
                Err(error) => Err(error.repeated()),
            };
            // Who dropped its call does not listen.
            _ = entry.tell.send(result);
        }
    }
}

/// One call, and what became of each of its entries.
async fn call(inner: &Inner, entries: &[Entry]) -> Result<Vec<Result<()>>> {
    let call = Call { action: "sqs:DeleteMessage", what: "the queue", name: &inner.queue };
    let mut request = inner.client.delete_message_batch().queue_url(&*inner.queue);
    for (at, entry) in entries.iter().enumerate() {
        let built = DeleteMessageBatchRequestEntry::builder()
            .id(at.to_string())
            .receipt_handle(&entry.handle)
            .build();
        request = request.entries(built.map_err(|error| lost(&error.to_string()))?);
    }
    let answer = timeout(inner.deadline, request.send()).await;
    let answer = answer.map_err(|_| lost("no answer came in time"))?;
    let answer = answer.map_err(|error| judge(call, &error).error("acknowledge"))?;
    let of = |at: usize| {
        let id = at.to_string();
        if answer.successful().iter().any(|one| one.id() == id) {
            return Ok(());
        }
        let Some(failed) = answer.failed().iter().find(|one| one.id() == id) else {
            return Err(lost("the answer does not name the message"));
        };
        let said = failed.message().unwrap_or_default();
        if is_stale(failed.code(), said) {
            return Err(fenced());
        }
        let outcome = judge_words(call, failed.code(), said, failed.sender_fault());
        Err(crate::answer::Trouble::Said(outcome).error("acknowledge"))
    };
    Ok((0..entries.len()).map(of).collect())
}

/// Whether a queue says that a handle is not good any more.
pub(crate) fn is_stale(code: &str, said: &str) -> bool {
    let (code, said) = (code.to_ascii_lowercase(), said.to_ascii_lowercase());
    code.contains("receipthandleisinvalid")
        || code.contains("messagenotinflight")
        || said.contains("receipt handle has expired")
        || said.contains("not available for visibility timeout change")
}

fn lost(said: &str) -> Error {
    Error::new(ErrorKind::Unavailable, "acknowledge")
        .message(format!("SQS: {said}; what is not settled comes again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_is_not_good_any_more_is_known() {
        for (code, said) in [
            ("com.amazonaws.sqs#ReceiptHandleIsInvalid", "The input receipt handle is invalid."),
            ("MessageNotInflight", ""),
            ("InvalidParameterValue", "Reason: The receipt handle has expired."),
        ] {
            assert!(is_stale(code, said), "{code}");
        }
        assert!(!is_stale("InvalidParameterValue", "Reason: a timeout beyond 12 hours"));
    }
}
