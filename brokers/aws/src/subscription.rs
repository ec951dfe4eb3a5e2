//! The consumer's side: messages of a queue, whoever put them there.
//!
//! Invariant: a delivery is settled only by a confirmed answer of the queue, and what nobody settles comes again
//! (INV-1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use postrider_core::inbox::{DELIVERIES_MAX, usual_deliveries};
use postrider_core::subscription::{Origin, SubscriptionCapabilities};
use postrider_core::{BoxFuture, Delivery, Error, ErrorKind, Fault, Marks, Result, Subscription};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::answer::{Call, judge};
use crate::attributes::{Attributes, queue_of_arn};
use crate::burial::Burial;
use crate::connection::Connection;
use crate::deleting::{Deleting, is_stale};
use crate::envelope;
use crate::fifo::is_fifo;
use crate::polling::{Came, Polling, Question, seconds};
use crate::queues::{Queues, unusable};
use crate::receipts::{Open, Receipts, fenced};
use crate::settings::{AwsSettings, wrong};
use crate::sqs::SYSTEM;

/// How long a message can be hidden at all, counted from when it was given out.
const HIDDEN_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// What is consumed, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscriptionSettings {
    /// The queue, by its name or its address. All who consume it share the work: a queue is one group.
    pub queue: String,
    /// How long a delivery is ours without being extended, 1 s to 12 h, in whole seconds, rounded up. It takes the
    /// place of the queue's own. Default 30 s, as a queue has it.
    pub visibility: Duration,
    /// The queue that takes what was refused for good, with the reason as an attribute, by its name or its address.
    /// Default: that of the queue's redrive policy.
    pub dead_letters: Option<String>,
}

impl SubscriptionSettings {
    /// The defaults, for a queue.
    pub fn new(queue: &str) -> SubscriptionSettings {
        SubscriptionSettings {
            queue: queue.to_owned(),
            visibility: Duration::from_secs(30),
            dead_letters: None,
        }
    }

    fn check(&self) -> Result<()> {
        let queues = [Some(&self.queue), self.dead_letters.as_ref()];
        for queue in queues.into_iter().flatten() {
            if let Some(why) = unusable(queue) {
                return Err(wrong(format!("`{}` is no queue: {why}", queue.escape_debug())));
            }
        }
        if self.visibility.is_zero() || self.visibility > HIDDEN_MAX {
            return Err(wrong("`visibility` is more than nothing and at most 12 h"));
        }
        if self.dead_letters.as_ref() == Some(&self.queue) {
            return Err(wrong("`dead_letters` is another queue than the one that is consumed"));
        }
        Ok(())
    }
}

/// A subscription to a queue of SQS. What SNS and EventBridge wrapped is unwrapped.
///
/// **Order.** A queue of the kind FIFO gives out no next message of a group before the one before it is deleted or
/// comes again, to whoever asks, and one message of a group is taken at a time here: a key's order holds across
/// instances and crashes. A standard queue has no order; within one process the consumer engine keeps it.
/// **Counting.** The queue counts every time it gives a message out. What was merely somebody else's turn is taken
/// off here, in this process, but not in the queue's own redrive policy.
/// **Cancellation.** Dropping `receive` leaves its question open for the next one.
pub struct SqsSubscription {
    connection: Connection,
    settings: SubscriptionSettings,
    name: Arc<str>,
    question: Question,
    polling: Mutex<Polling>,
    receipts: Receipts,
    deleting: Deleting,
    burial: Burial,
}

impl SqsSubscription {
    /// Finds the queue, and the one for dead letters.
    ///
    /// # Errors
    /// `Unroutable` if one of them is not there, `Config` if there is none for dead letters, and what keeps the
    /// service from answering in time.
    pub async fn open(
        aws: AwsSettings,
        mut settings: SubscriptionSettings,
    ) -> Result<SqsSubscription> {
        settings.check()?;
        settings.visibility =
            Duration::from_secs(seconds(settings.visibility).unsigned_abs().into());
        let connection = Connection::new(aws)?;
        let until = Instant::now() + connection.settings().deadline;
        let client = Client::new(connection.config(until).await?);
        let found = find(&connection, &client, &settings);
        let (queue, dead) = timeout_at(until, found).await.map_err(|_| late())??;
        let deadline = connection.settings().deadline;
        let question = Question {
            client: client.clone(),
            queue: Arc::clone(&queue),
            visibility: settings.visibility,
            deadline,
            one_by_one: is_fifo(&queue),
        };
        let name: Arc<str> = Arc::from(settings.queue.as_str());
        Ok(SqsSubscription {
            connection,
            name: Arc::clone(&name),
            question,
            polling: Mutex::default(),
            receipts: Receipts::default(),
            deleting: Deleting::new(client.clone(), queue, deadline),
            burial: Burial { client, dead, from: name, deadline },
            settings,
        })
    }

    async fn receive_some(&self, max: usize) -> Result<Vec<Delivery>> {
        let mut polling = self.polling.lock().await;
        let came = polling.next(&self.question, max).await?;
        Ok(came.into_iter().map(|came| self.deliver(came)).collect())
    }

    pub(crate) fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    pub(crate) fn deliver(&self, (at, message): Came) -> Delivery {
        let (event, topic) = match message.body() {
            None | Some("") => (Err(envelope::empty()), None),
            Some(body) => {
                let found = envelope::unwrap(&self.name, body.to_owned(), texts(&message));
                (found.event, found.topic)
            }
        };
        let until = at + self.settings.visibility;
        let begun_before = receives(&message) > usual_deliveries(DELIVERIES_MAX);
        let (receipt, count) = self.receipts.open(message, at, until);
        let (event, marks) = match event {
            Ok((event, marks)) => (Ok(event), marks),
            Err(fault) => (Err(fault), Marks::default()),
        };
        let topic = topic.unwrap_or_else(|| Arc::clone(&self.name));
        let mut delivery = Delivery::new(event, topic, receipt);
        delivery.marks = marks;
        (delivery.count, delivery.begun_before) = (count, begun_before);
        delivery.origin = Some(Origin::new(SYSTEM));
        delivery
    }

    /// Hides a delivery for a time from now, or for as long as the service hides it at all. Returns for how long.
    async fn hide(&self, open: &Open, time: Duration) -> Result<Duration> {
        let call = Call {
            action: "sqs:ChangeMessageVisibility",
            what: "the queue",
            name: &self.question.queue,
        };
        let hidden = granted(open.at.elapsed(), time);
        let asked = self
            .question
            .client
            .change_message_visibility()
            .queue_url(&*self.question.queue)
            .receipt_handle(open.handle())
            .visibility_timeout(seconds(hidden));
        let until = Instant::now() + self.question.deadline;
        let answer = timeout_at(until, asked.send()).await.map_err(|_| late())?;
        answer.map(|_| hidden).map_err(|error| {
            use aws_sdk_sqs::error::ProvideErrorMetadata as _;
            let (code, said) = (error.code().unwrap_or_default(), error.message());
            match is_stale(code, said.unwrap_or_default()) {
                true => fenced(),
                false => judge(call, &error).error("settle delivery"),
            }
        })
    }
}

/// The addresses of the queue and of its dead letters.
async fn find(
    connection: &Connection,
    client: &Client,
    settings: &SubscriptionSettings,
) -> Result<(Arc<str>, Arc<str>)> {
    let queues = Queues::default();
    let account = connection.settings().account.as_deref();
    let address = |queue: Arc<str>, account: Option<String>| {
        let queues = &queues;
        async move {
            let found = queues.find(client, account.as_deref(), &queue).await;
            found.map_err(|trouble| trouble.error("open queue"))
        }
    };
    let own = account.map(str::to_owned);
    let queue = address(Arc::from(settings.queue.as_str()), own.clone()).await?;
    let attributes = Attributes::ask(client, &queue).await?;
    let dead = match &settings.dead_letters {
        Some(dead) => address(Arc::from(dead.as_str()), own).await?,
        None => {
            let target = attributes.dead_letters();
            let (account, name) = target.as_deref().and_then(queue_of_arn).ok_or_else(|| {
                wrong(
                    "there is no place for dead letters: set `dead_letters`, or give the queue a redrive policy",
                )
                .context("queue", &settings.queue)
            })?;
            address(name.into(), Some(account.to_owned())).await?
        }
    };
    Ok((queue, dead))
}

/// How often the queue gave a message out, to whomever and for whatever reason, as it says itself.
fn receives(message: &Message) -> u32 {
    let attributes = message.attributes();
    let said =
        attributes.and_then(|it| it.get(&MessageSystemAttributeName::ApproximateReceiveCount));
    said.and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// The attributes of a message that are texts.
fn texts(message: &Message) -> BTreeMap<String, String> {
    let all = message.message_attributes().into_iter().flatten();
    all.filter_map(|(name, value)| Some((name.clone(), value.string_value()?.to_owned()))).collect()
}

/// For how long a message that was given out so long ago can be hidden, of what is wished.
fn granted(out: Duration, wished: Duration) -> Duration {
    let left = HIDDEN_MAX.saturating_sub(out);
    match wished < left {
        true => wished,
        // The service refuses more, and counts in whole seconds.
        false => Duration::from_secs(left.as_secs()),
    }
}

fn at_its_end() -> Error {
    Error::new(ErrorKind::Fenced, "extend delivery").message(
        "a queue hides a message for 12 h and no longer; it comes again, and nothing of it was settled",
    )
}

fn late() -> Error {
    Error::new(ErrorKind::Timeout, "consume")
        .message("SQS did not answer in time; what is not settled comes again")
}

impl Subscription for SqsSubscription {
    fn capabilities(&self) -> SubscriptionCapabilities {
        let mut can = SubscriptionCapabilities::least(self.settings.visibility);
        can.counts_deliveries = true;
        can.key_order = self.question.one_by_one;
        can
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(self.receive_some(max))
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let open = self.receipts.find(delivery.receipt)?;
            self.deleting.delete(open.handle()).await?;
            self.receipts.close(delivery.receipt);
            self.receipts.forget(delivery.receipt.message);
            Ok(())
        })
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let open = self.receipts.find(delivery.receipt)?;
            self.hide(&open, delay).await?;
            self.receipts.close(delivery.receipt);
            if !counted {
                self.receipts.discount(delivery.receipt.message);
            }
            Ok(())
        })
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let open = self.receipts.find(delivery.receipt)?;
            self.burial.bury(&open.message, fault).await?;
            self.deleting.delete(open.handle()).await?;
            self.receipts.close(delivery.receipt);
            self.receipts.forget(delivery.receipt.message);
            Ok(())
        })
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let open = self.receipts.find(delivery.receipt)?;
            // From before the question: the queue counts from when it hears it.
            let asked = Instant::now();
            if granted(open.at.elapsed(), by).is_zero() {
                // To hide it for no time would give it to the next one at once.
                return Err(at_its_end());
            }
            let hidden = self.hide(&open, by).await?;
            self.receipts.extend(delivery.receipt, asked + hidden);
            Ok(())
        })
    }
}

impl std::fmt::Debug for SqsSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqsSubscription")
            .field("aws", self.connection.settings())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R082: near twelve hours a message is hidden for less than was wished, and no more is believed.
    #[test]
    fn no_more_is_believed_than_the_queue_hides() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
        assert_eq!(granted(hour, minute), minute);
        assert_eq!(granted(12 * hour - minute, hour), minute);
        assert_eq!(granted(12 * hour - Duration::from_millis(1_900), hour), Duration::from_secs(1));
        assert!(granted(12 * hour - Duration::from_millis(900), hour).is_zero());
        assert!(granted(13 * hour, hour).is_zero());
    }
}
