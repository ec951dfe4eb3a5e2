//! What the tests of queues share: a queue, a worker behind it, and the service that invokes it and reads its answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use postrider_aws::{AwsSettings, Credentials, SqsBroker, SqsSubscription, SubscriptionSettings};
use postrider_core::inbox::Receiver;
use postrider_core::{
    Broker as _, Event, HandlerName, InboxStore, NewEvent, Outgoing, RetryPolicy,
};
use postrider_inbox::{Context, Leased, Outcome};
use postrider_lambda::{Received, Worker, WorkerOptions};
use postrider_testkit::memory::{MemoryClock, MemoryStore};
use serde_json::{Value, json};
use uuid::Uuid;

/// Long enough for whatever is to be done.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// How long the queues of these tests hide a message.
pub(crate) const VISIBILITY: Duration = Duration::from_secs(2);

/// A queue with dead letters, a worker behind it, and what its handler did.
pub(crate) struct Fresh {
    pub(crate) client: Client,
    pub(crate) queue: String,
    pub(crate) dead: String,
    broker: SqsBroker,
    name: String,
    aws: AwsSettings,
    pub(crate) options: WorkerOptions,
    pub(crate) worker: Worker,
    pub(crate) inbox: MemoryStore,
    acted: Arc<Mutex<Vec<(String, String)>>>,
    /// What fails, by the events' types, and how often.
    failing: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Fresh {
    pub(crate) async fn new(fifo: bool, lease: Duration) -> Option<Fresh> {
        Fresh::hiding(fifo, lease, VISIBILITY).await
    }

    /// A queue that hides a message for so long.
    pub(crate) async fn hiding(fifo: bool, lease: Duration, visibility: Duration) -> Option<Fresh> {
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
        let subscription = subscribe(aws.clone(), &name, visibility).await;
        let inbox = MemoryStore::new(1, MemoryClock::running());
        let (acted, failing) = (Arc::default(), Arc::default());
        let leased = Leased::builder(
            handler(),
            Arc::new(inbox.clone()) as Arc<dyn InboxStore>,
            acts(Arc::clone(&acted), Arc::clone(&failing)),
        );
        let receiver = Arc::new(leased.lease(lease).build().unwrap());
        let mut options = WorkerOptions::default();
        (options.lease, options.visibility) = (lease, visibility);
        (options.function_time, options.reserve) = (VISIBILITY, Duration::from_millis(200));
        let delay = Duration::from_millis(900);
        options.retry =
            RetryPolicy { attempts_max: 4, delay_min: delay, delay_max: delay, factor: 1.0 };
        let worker = Worker::new(subscription, receiver, options).unwrap();
        let broker = SqsBroker::new(aws.clone()).unwrap();
        let dead = made.pop().unwrap();
        let queue = made.pop().unwrap();
        Some(Fresh {
            client,
            queue,
            dead,
            broker,
            name,
            aws,
            options,
            worker,
            inbox,
            acted,
            failing,
        })
    }

    pub(crate) fn fail(&self, event_type: &str, times: usize) {
        self.failing.lock().unwrap().insert(event_type.to_owned(), times);
    }

    pub(crate) async fn send(&self, key: &str, event_type: &str) -> Arc<Event> {
        let event = NewEvent::new("order", key, event_type).source("/shop");
        let event = Arc::new(event.event().clone());
        self.send_again(&event).await;
        event
    }

    pub(crate) async fn send_again(&self, event: &Arc<Event>) {
        let outgoing = Outgoing::new(Arc::clone(event), &*self.name);
        let outcomes = self.broker.publish(&[outgoing]).await.unwrap();
        assert_eq!(outcomes, [postrider_core::Outcome::Acked]);
    }

    /// Another worker on the queue, through a network of the test's if it names a port.
    pub(crate) async fn other(&self, receiver: Arc<dyn Receiver>, port: Option<u16>) -> Worker {
        let mut aws = self.aws.clone();
        if let Some(port) = port {
            aws.endpoint = Some(format!("http://127.0.0.1:{port}"));
            // Far beyond the function's time.
            aws.deadline = Duration::from_secs(30);
        }
        let subscription = subscribe(aws, &self.name, self.options.visibility).await;
        Worker::new(subscription, receiver, self.options).unwrap()
    }

    /// Another subscription to the queue.
    pub(crate) async fn subscribe(&self) -> Arc<SqsSubscription> {
        subscribe(self.aws.clone(), &self.name, self.options.visibility).await
    }

    /// The port of the emulator.
    pub(crate) fn port(&self) -> u16 {
        let url = self.aws.endpoint.as_deref().unwrap().trim_end_matches('/');
        url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// What the service does: it takes what there is, invokes, and deletes what was not named as failed.
    pub(crate) async fn invoke(&self, remaining: Duration) -> Received {
        self.invoke_on(&self.worker, remaining).await
    }

    /// The same with another worker.
    pub(crate) async fn invoke_on(&self, worker: &Worker, remaining: Duration) -> Received {
        let messages = take(&self.client, &self.queue).await;
        let received = worker.receive(&self.batch(&messages), remaining).await.unwrap();
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

    /// Messages as the service invokes a function with them.
    pub(crate) fn batch(&self, messages: &[Message]) -> Vec<u8> {
        let records: Vec<Value> = messages.iter().map(|message| self.record(message)).collect();
        json!({ "Records": records }).to_string().into_bytes()
    }

    pub(crate) fn record(&self, message: &Message) -> Value {
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
    pub(crate) async fn drain(&self) -> Received {
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

    pub(crate) fn acted(&self) -> Vec<(String, String)> {
        self.acted.lock().unwrap().clone()
    }

    pub(crate) async fn remove(self) {
        for url in [&self.queue, &self.dead] {
            _ = Box::pin(self.client.delete_queue().queue_url(url).send()).await;
        }
    }
}

pub(crate) fn handler() -> HandlerName {
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

/// The queue and its dead letters, as a worker has them.
async fn subscribe(aws: AwsSettings, name: &str, visibility: Duration) -> Arc<SqsSubscription> {
    let mut settings = SubscriptionSettings::new(name);
    let (prefix, ending) = name.split_at(name.find('.').unwrap_or(name.len()));
    settings.dead_letters = Some(format!("{prefix}-dead{ending}"));
    settings.visibility = visibility;
    Arc::new(SqsSubscription::open(aws, settings).await.unwrap())
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

pub(crate) async fn take(client: &Client, queue: &str) -> Vec<Message> {
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
