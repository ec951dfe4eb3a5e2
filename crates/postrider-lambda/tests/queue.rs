//! Messages of a queue, as the service invokes a function with them, and what it does with the answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use postrider_aws::{AwsSettings, Credentials, SqsBroker, SqsSubscription, SubscriptionSettings};
use postrider_core::{
    Broker as _, ClaimRequest, Event, HandlerName, InboxStore, NewEvent, Outgoing, RetryPolicy,
};
use postrider_inbox::{Context, Leased, Outcome};
use postrider_lambda::{Received, Worker, WorkerOptions};
use postrider_testkit::memory::{MemoryClock, MemoryStore};
use serde_json::{Value, json};
use uuid::Uuid;

/// Long enough for whatever is to be done.
const LONG: Duration = Duration::from_secs(20);
/// How long the queues of these tests hide a message.
const VISIBILITY: Duration = Duration::from_secs(2);

/// A queue with dead letters, a worker behind it, and what its handler did.
struct Fresh {
    client: Client,
    queue: String,
    dead: String,
    broker: SqsBroker,
    name: String,
    worker: Worker,
    inbox: MemoryStore,
    acted: Arc<Mutex<Vec<(String, String)>>>,
    /// What fails, by the events' types, and how often.
    failing: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Fresh {
    async fn new(fifo: bool, lease: Duration) -> Option<Fresh> {
        let url = postrider_testkit::services::url("aws");
        let url = url.map_err(|reason| println!("skipped: {reason}")).ok()?;
        let ending = if fifo { ".fifo" } else { "" };
        let prefix = format!("l-{}", &Uuid::now_v7().simple().to_string()[8..]);
        let client = client(&url).await;
        let mut made = Vec::new();
        for name in [format!("{prefix}{ending}"), format!("{prefix}-dead{ending}")] {
            let mut create = client.create_queue().queue_name(name);
            if fifo {
                create = create.attributes(QueueAttributeName::FifoQueue, "true");
            }
            made.push(Box::pin(create.send()).await.unwrap().queue_url.unwrap());
        }
        let mut aws = AwsSettings::new("us-east-1");
        aws.endpoint = Some(url);
        aws.credentials =
            Credentials::Key { id: "test".to_owned(), secret: "test".into(), session: None };
        let name = format!("{prefix}{ending}");
        let mut settings = SubscriptionSettings::new(&name);
        settings.dead_letters = Some(format!("{prefix}-dead{ending}"));
        settings.visibility = VISIBILITY;
        let subscription = SqsSubscription::open(aws.clone(), settings).await.unwrap();
        let inbox = MemoryStore::new(1, MemoryClock::running());
        let (acted, failing) = (Arc::default(), Arc::default());
        let leased = Leased::builder(
            handler(),
            Arc::new(inbox.clone()) as Arc<dyn InboxStore>,
            acts(Arc::clone(&acted), Arc::clone(&failing)),
        );
        let receiver = Arc::new(leased.lease(lease).build().unwrap());
        let mut options = WorkerOptions::default();
        (options.lease, options.visibility) = (lease, VISIBILITY);
        (options.function_time, options.reserve) = (VISIBILITY, Duration::from_millis(200));
        let delay = Duration::from_millis(900);
        options.retry =
            RetryPolicy { attempts_max: 4, delay_min: delay, delay_max: delay, factor: 1.0 };
        let worker = Worker::new(Arc::new(subscription), receiver, options).unwrap();
        let broker = SqsBroker::new(aws).unwrap();
        let dead = made.pop().unwrap();
        let queue = made.pop().unwrap();
        Some(Fresh { client, queue, dead, broker, name, worker, inbox, acted, failing })
    }

    fn fail(&self, event_type: &str, times: usize) {
        self.failing.lock().unwrap().insert(event_type.to_owned(), times);
    }

    async fn send(&self, key: &str, event_type: &str) -> Arc<Event> {
        let event = NewEvent::new("order", key, event_type).source("/shop");
        let event = Arc::new(event.event().clone());
        self.send_again(&event).await;
        event
    }

    async fn send_again(&self, event: &Arc<Event>) {
        let outgoing = Outgoing::new(Arc::clone(event), &*self.name);
        let outcomes = self.broker.publish(&[outgoing]).await.unwrap();
        assert_eq!(outcomes, [postrider_core::Outcome::Acked]);
    }

    /// What the service does: it takes what there is, invokes, and deletes what was not named as failed.
    async fn invoke(&self, remaining: Duration) -> Received {
        let messages = take(&self.client, &self.queue).await;
        let records: Vec<Value> = messages.iter().map(|message| self.record(message)).collect();
        let json = json!({ "Records": records }).to_string();
        let received = self.worker.receive(json.as_bytes(), remaining).await.unwrap();
        for message in &messages {
            let id = message.message_id().unwrap();
            if !received.failures.0.iter().any(|failed| failed == id) {
                let delete = self.client.delete_message().queue_url(&self.queue);
                let delete = delete.receipt_handle(message.receipt_handle().unwrap());
                _ = Box::pin(delete.send()).await;
            }
        }
        received
    }

    fn record(&self, message: &Message) -> Value {
        let attributes: serde_json::Map<_, _> = message
            .attributes()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str().to_owned(), json!(value)))
            .collect();
        let said: serde_json::Map<_, _> = message
            .message_attributes()
            .into_iter()
            .flatten()
            .map(|(name, value)| {
                let value = json!({"stringValue": value.string_value(), "dataType": value.data_type(),
                                   "stringListValues": [], "binaryListValues": []});
                (name.clone(), value)
            })
            .collect();
        json!({
            "messageId": message.message_id(), "receiptHandle": message.receipt_handle(),
            "body": message.body(), "attributes": attributes, "messageAttributes": said,
            "md5OfBody": message.md5_of_body(), "eventSource": "aws:sqs",
            "eventSourceARN": format!("arn:aws:sqs:us-east-1:000000000000:{}", self.name),
            "awsRegion": "us-east-1",
        })
    }

    /// Invokes until nothing fails and nothing is there, and says what came of it.
    async fn drain(&self) -> Received {
        let mut all = Received::default();
        let mut quiet = 0;
        while quiet < 4 {
            let one = self.invoke(LONG).await;
            let moved = one.done + one.duplicates + one.dead > 0 || !one.failures.0.is_empty();
            quiet = if moved { 0 } else { quiet + 1 };
            all.done += one.done;
            all.duplicates += one.duplicates;
            all.dead += one.dead;
            all.failures.0.extend(one.failures.0);
        }
        all
    }

    fn acted(&self) -> Vec<(String, String)> {
        self.acted.lock().unwrap().clone()
    }

    async fn remove(self) {
        for url in [&self.queue, &self.dead] {
            _ = Box::pin(self.client.delete_queue().queue_url(url).send()).await;
        }
    }
}

fn handler() -> HandlerName {
    HandlerName::new("charging").unwrap()
}

type Acted = Arc<Mutex<Vec<(String, String)>>>;

fn acts(
    acted: Acted,
    failing: Arc<Mutex<BTreeMap<String, usize>>>,
) -> impl Fn(Arc<Event>, Context) -> std::future::Ready<postrider_core::Result<Outcome>> + Send + Sync
{
    move |event, _| {
        let mut failing = failing.lock().unwrap();
        if let Some(left) = failing.get_mut(&*event.event_type).filter(|left| **left > 0) {
            *left -= 1;
            return std::future::ready(Ok(Outcome::retry("not yet")));
        }
        let what = (event.aggregate_id.to_string(), event.event_type.to_string());
        acted.lock().unwrap().push(what);
        std::future::ready(Ok(Outcome::done()))
    }
}

async fn client(url: &str) -> Client {
    let tls = Provider::Rustls(CryptoMode::Ring);
    let http = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
    let key = aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "test");
    let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .endpoint_url(url)
        .http_client(http)
        .credentials_provider(key)
        .load()
        .await;
    Client::new(&config)
}

async fn take(client: &Client, queue: &str) -> Vec<Message> {
    let ask = client
        .receive_message()
        .queue_url(queue)
        .max_number_of_messages(10)
        .visibility_timeout(2)
        .wait_time_seconds(1)
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::All);
    Box::pin(ask.send()).await.unwrap().messages.unwrap_or_default()
}

fn pair(key: &str, event_type: &str) -> (String, String) {
    (key.to_owned(), event_type.to_owned())
}

/// R077, R096: each event is acted on once, however often it comes; what is no event is a dead letter; what fails is named,
/// comes again, and is done then.
#[tokio::test]
async fn each_message_is_acted_on_once_and_what_fails_comes_again() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    let first = fresh.send("1", "placed").await;
    fresh.send_again(&first).await;
    fresh.fail("late", 1);
    fresh.send("2", "late").await;
    let junk = fresh.client.send_message().queue_url(&fresh.queue).message_body("no event");
    Box::pin(junk.send()).await.unwrap();
    let all = fresh.drain().await;
    assert_eq!((all.done, all.duplicates, all.dead), (2, 1, 1), "{all:?}");
    assert_eq!(all.failures.0.len(), 1, "the late one, once");
    let mut acted = fresh.acted();
    acted.sort();
    assert_eq!(acted, [pair("1", "placed"), pair("2", "late")]);
    let dead = take(&fresh.client, &fresh.dead).await;
    assert_eq!(dead[0].body(), Some("no event"));
    assert!(dead[0].message_attributes().unwrap().contains_key("postrider-dead-reason"));
    fresh.remove().await;
}

/// After a failure the rest of its group is named as well, and not begun; other groups are done.
#[tokio::test]
async fn after_a_failure_the_rest_of_its_group_waits() {
    let Some(fresh) = Fresh::new(true, VISIBILITY).await else { return };
    fresh.fail("a", 1);
    for event_type in ["a", "b", "c"] {
        fresh.send("1", event_type).await;
    }
    fresh.send("2", "x").await;
    let first = fresh.invoke(LONG).await;
    assert_eq!((first.done, first.failures.0.len()), (1, 3), "{first:?}");
    assert_eq!(fresh.acted(), [pair("2", "x")], "nothing of the group but the first was begun");
    let rest = fresh.drain().await;
    assert_eq!(rest.done, 3, "{rest:?}");
    assert_eq!(fresh.acted()[1..], [pair("1", "a"), pair("1", "b"), pair("1", "c")]);
    fresh.remove().await;
}

/// R082: a worker was killed with its claim. Whether the lease is longer than the visibility or shorter, the message comes
/// again until it is done, once.
#[tokio::test]
async fn lease_and_visibility_converge_whichever_is_longer() {
    for (lease, finds_it_taken) in [(Duration::from_secs(5), true), (Duration::from_secs(1), false)]
    {
        let Some(fresh) = Fresh::new(false, lease).await else { return };
        let event = fresh.send("1", "placed").await;
        // The queue gave the message to the worker that was killed.
        let killed = take(&fresh.client, &fresh.queue).await;
        let claim = ClaimRequest::new(&event, &handler(), lease).unwrap();
        fresh.inbox.claim(&claim).await.unwrap();
        assert_eq!(killed.len(), 1);
        let mut taken = 0;
        let done = loop {
            let one = fresh.invoke(LONG).await;
            taken += one.failures.0.len();
            if one.done > 0 {
                break one.done;
            }
        };
        assert_eq!((done, taken > 0), (1, finds_it_taken), "a lease of {lease:?}");
        assert_eq!(fresh.acted(), [pair("1", "placed")]);
        assert_eq!(take(&fresh.client, &fresh.dead).await.len(), 0, "and nothing was given up");
        fresh.remove().await;
    }
}

/// What fails for ever becomes a dead letter with its reason, after so many receives.
#[tokio::test]
async fn what_fails_for_ever_is_a_dead_letter() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    fresh.fail("poison", usize::MAX);
    fresh.send("1", "poison").await;
    let all = fresh.drain().await;
    assert_eq!((all.dead, all.failures.0.len()), (1, 3), "the fourth receive is the last");
    let dead = take(&fresh.client, &fresh.dead).await;
    let reason = &dead[0].message_attributes().unwrap()["postrider-dead-reason"];
    assert!(reason.string_value().unwrap().contains("not yet"));
    fresh.remove().await;
}

/// What there is no time for is not begun, and comes again at once.
#[tokio::test]
async fn what_there_is_no_time_for_is_not_begun() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    fresh.send("1", "placed").await;
    let late = fresh.invoke(Duration::ZERO).await;
    assert_eq!((late.done, late.failures.0.len(), fresh.acted().len()), (0, 1, 0));
    assert_eq!(fresh.invoke(LONG).await.done, 1);
    fresh.remove().await;
}
