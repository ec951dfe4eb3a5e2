//! The question that waits for the next message of a consumer.
//!
//! Invariant: a message that came while nobody received is given back in time, uncounted, and is not kept from
//! others until its visibility ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::Message;
use futures_util::StreamExt;
use postrider_core::{Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::connection::Up;
use crate::granted::{answered, next_of};
use crate::receipts::Receipts;
use crate::unreadable::Unreadable;

/// How long one question to the server waits for a message. It is asked again at once.
pub(crate) const WAIT: Duration = Duration::from_secs(10);
/// How long after that the server may still say that there was none. Whoever is not told by then (the client waits
/// a second longer) asked a consumer that is not there: to such a question a server says nothing at all.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// What a question brought: a message and when it came, or nothing.
pub(crate) type Arrived = Result<Option<(Instant, Message)>>;

/// How long a question waits, and what came to it.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// For a message.
    pub(crate) wait: Duration,
    /// For somebody who takes the message.
    pub(crate) patience: Duration,
}

/// Who is told of a message that nobody takes, and of a connection that is lost.
#[derive(Clone)]
pub(crate) struct Books {
    pub(crate) receipts: Arc<Receipts>,
    pub(crate) unreadable: Arc<Unreadable>,
}

/// See the module. It outlives a `receive` that was dropped, so that what it brings meanwhile is not lost for a
/// whole visibility. Dropping it takes it back.
pub(crate) struct Question {
    client: Client,
    task: JoinHandle<()>,
    slot: Arc<Slot>,
}

struct Slot {
    arrived: Mutex<Option<Arrived>>,
    /// Shared with the other questions of a group: whoever waits, waits for any of them.
    told: Arc<Notify>,
}

impl Slot {
    fn take(&self) -> Option<Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, arrived: Arrived) {
        *self.arrived.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrived);
        self.told.notify_one();
    }
}

impl Question {
    /// Asks, for so long. What is not taken within `patience` after it came is given back. A connection that is lost takes the
    /// question with it, and that is an answer as well.
    pub(crate) fn ask(
        consumer: PullConsumer,
        up: Up,
        times: Times,
        books: Books,
        told: Arc<Notify>,
    ) -> Question {
        let slot = Arc::new(Slot { arrived: Mutex::default(), told });
        let client = up.client.clone();
        let task = tokio::spawn(wait(consumer, up, times, books, Arc::clone(&slot)));
        Question { client, task, slot }
    }

    /// The answer, if it is there. `told` is notified when it comes.
    pub(crate) fn take(&self) -> Option<Arrived> {
        self.slot.take()
    }

    /// Takes it back, and gives back what came to it, before whoever asked goes.
    pub(crate) async fn withdraw(self) {
        self.task.abort();
        if let Some(Ok(Some((_, message)))) = self.slot.take() {
            give_back(&self.client, &message).await;
        }
    }
}

/// If it is not heard, the message comes again when its visibility ends.
async fn give_back(client: &Client, message: &Message) {
    let _ = message.ack_with(AckKind::Nak(None)).await;
    // A connection that nobody holds any more ends at once.
    let _ = client.flush().await;
}

impl Drop for Question {
    fn drop(&mut self) {
        self.task.abort();
        // What came already is given back, so that nobody waits for the end of its visibility.
        let Some(Ok(Some((_, message)))) = self.slot.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let client = self.client.clone();
            runtime.spawn(async move { give_back(&client, &message).await });
        }
    }
}

async fn wait(consumer: PullConsumer, mut up: Up, times: Times, books: Books, slot: Arc<Slot>) {
    let (subject, since) = (next_of(&up, &consumer), Instant::now());
    let arrived = answered(&mut up, &subject, since, next(consumer, times.wait)).await;
    slot.put(match arrived {
        Ok(arrived) => arrived,
        Err(_) if up.is_gone() => {
            books.unreadable.lost(up.epoch());
            Ok(None)
        }
        Err(error) => Err(error),
    });
    // waits: whoever asked may have turned away
    tokio::time::sleep(times.patience).await;
    let message = match slot.take() {
        Some(Ok(Some((_, message)))) => message,
        // An answer without a message is for whoever comes next: without it they would wait for ever.
        Some(other) => return slot.put(other),
        None => return,
    };
    if let Ok(sequence) = message.info().map(|info| info.stream_sequence) {
        books.receipts.discount(sequence);
    }
    // If it is not heard, the message comes again when its visibility ends.
    let _ = message.ack_with(AckKind::Nak(None)).await;
    slot.put(Ok(None));
}

/// Waits for one message. They are asked for one by one: a question for more would still be open when the first
/// came, and what the server sent to it later, nobody would take.
async fn next(consumer: PullConsumer, wait: Duration) -> Arrived {
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Unavailable, "consume")
            .message(format!("NATS: {error}; what is not settled comes again"))
    };
    let asked = Instant::now();
    let batch = consumer.batch().max_messages(1).expires(wait).messages().await;
    let mut batch = batch.map_err(|error| failed(&error))?;
    match batch.next().await {
        None if asked.elapsed() > wait + SILENCE_MAX => Err(failed(&"nobody answers")),
        None => Ok(None),
        Some(Ok(message)) => Ok(Some((Instant::now(), message))),
        Some(Err(error)) => Err(failed(&error)),
    }
}
