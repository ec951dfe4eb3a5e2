//! What a test's account has: the tables, a bus, two rules that put every event into one queue, so that each comes
//! twice, and the queue's dead letters. And the recorded invocations, told of what is in them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_eventbridge::Client as Buses;
use aws_sdk_eventbridge::types::Target;
use aws_sdk_sqs::Client as Queues;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use example_aws_lambda::Place;
use postrider::NewEvent;
use postrider::aws::{AwsSettings, Credentials};
use postrider::dynamodb::{Connection, Names, Outbox, Settings, Setup};
use postrider_testkit::services;
use serde_json::{Value, json};

use crate::service::Function;

/// Longer than any invocation here needs.
pub(crate) const LONG: Duration = Duration::from_secs(40);
/// How long the queue hides a message: of the least that goes with a function.
const VISIBILITY: Duration = Duration::from_secs(60);
/// All environments are on this machine.
const SKEW: Duration = Duration::from_secs(1);
const RULES: [&str; 2] = ["one", "two"];
const REGION: &str = "us-east-1";

pub(crate) type Item = HashMap<String, AttributeValue>;

/// See the module.
pub(crate) struct Cloud {
    name: String,
    servers: [String; 2],
    connection: Connection,
    outbox: Outbox,
    buses: Buses,
    queues: Queues,
    queue: String,
    dead: String,
}

impl Cloud {
    /// Everything, made; nothing, with the reason printed, where there is no server.
    pub(crate) async fn make() -> Option<Cloud> {
        let servers = [services::url("ddb"), services::url("aws")];
        let [Ok(ddb), Ok(aws)] = servers else {
            let reason = servers.into_iter().find_map(Result::err).unwrap();
            println!("skipped: functions of Lambda: {reason}");
            return None;
        };
        let name = format!("fn-{}", &uuid::Uuid::now_v7().simple().to_string()[8..]);
        let mut tables = Settings::at(&ddb, Names::with_prefix(&format!("{name}-")));
        // Many tests share one emulator, on a machine that may be busy.
        tables.call_time_max = Duration::from_secs(30);
        let connection = Connection::new(tables).unwrap();
        postrider::dynamodb::init(&connection, &Setup::default()).await.unwrap();
        let outbox = Outbox::open(&connection).await.unwrap();
        let config = config(&aws).await;
        let (buses, queues) = (Buses::new(&config), Queues::new(&config));
        let dead = queue(&queues, &format!("{name}-dead"), None).await;
        let queue = queue(&queues, &name, Some(&dead.1)).await;
        Box::pin(buses.create_event_bus().name(&name).send()).await.unwrap();
        for rule in RULES {
            let rule = format!("{name}-{rule}");
            let put = buses.put_rule().name(&rule).event_bus_name(&name);
            let put = put.event_pattern(r#"{"detail-type":["order.placed"]}"#);
            Box::pin(put.send()).await.unwrap();
            let target = Target::builder().id("queue").arn(&queue.1).build().unwrap();
            let put = buses.put_targets().rule(&rule).event_bus_name(&name).targets(target);
            Box::pin(put.send()).await.unwrap();
        }
        let servers = [ddb, aws];
        let (queue, dead) = (queue.0, dead.0);
        Some(Cloud { name, servers, connection, outbox, buses, queues, queue, dead })
    }

    /// The environment of a function, as `deploy/aws` sets it, and where the emulators are.
    pub(crate) fn environment(&self) -> BTreeMap<&'static str, String> {
        let [ddb, aws] = &self.servers;
        BTreeMap::from([
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", ddb.clone()),
            ("AWS_ENDPOINT_URL_EVENTBRIDGE", aws.clone()),
            ("AWS_ENDPOINT_URL_SQS", aws.clone()),
            ("POSTRIDER_PREFIX", format!("{}-", self.name)),
            ("POSTRIDER_BUS", self.name.clone()),
            ("POSTRIDER_QUEUE", self.name.clone()),
            ("POSTRIDER_VISIBILITY_SECONDS", VISIBILITY.as_secs().to_string()),
            ("POSTRIDER_CLOCK_SKEW_SECONDS", SKEW.as_secs().to_string()),
        ])
    }

    pub(crate) async fn publish(&self) -> Function {
        Function::start(env!("CARGO_BIN_EXE_publish"), &self.environment()).await
    }

    pub(crate) async fn sweep(&self) -> Function {
        Function::start(env!("CARGO_BIN_EXE_sweep"), &self.environment()).await
    }

    pub(crate) async fn charge(&self) -> Function {
        Function::start(env!("CARGO_BIN_EXE_charge"), &self.environment()).await
    }

    /// The same place without a process, for a worker whose effect is the test's.
    pub(crate) fn place(&self) -> Place {
        let [ddb, aws] = &self.servers;
        let mut settings = AwsSettings::new(REGION);
        settings.endpoint = Some(aws.clone());
        settings.credentials =
            Credentials::Key { id: "test".to_owned(), secret: "test".into(), session: None };
        Place {
            tables: Settings::at(ddb, self.connection.names().clone()),
            aws: settings,
            bus: self.name.clone(),
            queue: self.name.clone(),
            visibility: VISIBILITY,
            skew: SKEW,
        }
    }

    /// Writes the event of an order, and says what the stream would have of it.
    pub(crate) async fn order(&self, number: &str) -> Value {
        let event = NewEvent::new("order", number, "order.placed").source("/shop");
        let event = event.json(&json!({"amount": 990}));
        self.outbox.write(&[], &[event.unwrap()]).await.unwrap();
        let items = self.items().await;
        let item = items.iter().find(|item| item["aggregate_id"].as_s().unwrap() == number);
        record(item.unwrap())
    }

    /// Every event item.
    async fn items(&self) -> Vec<Item> {
        let client = self.connection.tables().await;
        let scan = client.scan().table_name(&self.connection.names().outbox).consistent_read(true);
        let mut items = Box::pin(scan.send()).await.unwrap().items.unwrap();
        items.retain(|item| item["sk"].as_s().unwrap().starts_with("OUTBOX#"));
        items
    }

    /// How many events are not marked as published.
    pub(crate) async fn pending(&self) -> usize {
        self.items().await.iter().filter(|item| item.contains_key("pr_shard")).count()
    }

    /// The queue's messages, as soon as there are so many.
    pub(crate) async fn messages(&self, count: usize) -> Vec<Message> {
        let mut messages = Vec::new();
        for _ in 0..30 {
            messages.extend(self.take(&self.queue).await);
            if messages.len() >= count {
                break;
            }
        }
        assert_eq!(messages.len(), count);
        messages
    }

    /// Whether the dead letters are none.
    pub(crate) async fn nothing_is_dead(&self) -> bool {
        self.take(&self.dead).await.is_empty()
    }

    async fn take(&self, queue: &str) -> Vec<Message> {
        let ask = self
            .queues
            .receive_message()
            .queue_url(queue)
            .max_number_of_messages(10)
            .wait_time_seconds(1)
            .message_attribute_names("All")
            .message_system_attribute_names(MessageSystemAttributeName::All);
        Box::pin(ask.send()).await.unwrap().messages.unwrap_or_default()
    }

    pub(crate) async fn remove(self) {
        for rule in RULES {
            let rule = format!("{}-{rule}", self.name);
            let remove = self.buses.remove_targets().rule(&rule).event_bus_name(&self.name);
            _ = Box::pin(remove.ids("queue").send()).await;
            let delete = self.buses.delete_rule().name(&rule).event_bus_name(&self.name);
            _ = Box::pin(delete.send()).await;
        }
        _ = Box::pin(self.buses.delete_event_bus().name(&self.name).send()).await;
        for url in [&self.queue, &self.dead] {
            _ = Box::pin(self.queues.delete_queue().queue_url(url).send()).await;
        }
        let client = self.connection.tables().await;
        let names = self.connection.names();
        for table in [&names.outbox, &names.store, &names.inbox] {
            _ = Box::pin(client.delete_table().table_name(table).send()).await;
        }
    }
}

async fn config(url: &str) -> aws_config::SdkConfig {
    let tls = Provider::Rustls(CryptoMode::Ring);
    let http = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
    let key = aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "test");
    aws_config::defaults(BehaviorVersion::v2026_01_12())
        .region(Region::new(REGION))
        .endpoint_url(url)
        .http_client(http)
        .credentials_provider(key)
        .load()
        .await
}

/// Makes a queue, and says its address and its ARN.
async fn queue(client: &Queues, name: &str, dead: Option<&str>) -> (String, String) {
    let mut create = client.create_queue().queue_name(name);
    if let Some(dead) = dead {
        let policy = json!({"deadLetterTargetArn": dead, "maxReceiveCount": 500}).to_string();
        create = create.attributes(QueueAttributeName::RedrivePolicy, policy);
    }
    let seconds = VISIBILITY.as_secs().to_string();
    create = create.attributes(QueueAttributeName::VisibilityTimeout, seconds);
    let url = Box::pin(create.send()).await.unwrap().queue_url.unwrap();
    let ask = client.get_queue_attributes().queue_url(&url);
    let ask = ask.attribute_names(QueueAttributeName::QueueArn);
    let attributes = Box::pin(ask.send()).await.unwrap().attributes.unwrap();
    (url, attributes[&QueueAttributeName::QueueArn].clone())
}

/// The recorded record of an event, told of this one.
fn record(item: &Item) -> Value {
    let invocation: Value = serde_json::from_str(include_str!("../events/stream.json")).unwrap();
    let mut record = invocation["Records"][0].clone();
    for name in ["pk", "sk"] {
        record["dynamodb"]["Keys"][name] = json!({"S": item[name].as_s().unwrap()});
    }
    let image = item.iter().filter_map(|(name, value)| match value {
        AttributeValue::S(text) => Some((name.clone(), json!({"S": text}))),
        AttributeValue::N(number) => Some((name.clone(), json!({"N": number}))),
        _ => None,
    });
    record["dynamodb"]["NewImage"] = image.collect::<serde_json::Map<_, _>>().into();
    record
}

/// The recorded invocation of the stream with these records in it, one after the other, and behind them the record that
/// is no event's.
pub(crate) fn stream(records: &[Value]) -> Value {
    let mut invocation: Value =
        serde_json::from_str(include_str!("../events/stream.json")).unwrap();
    let other = invocation["Records"][1].clone();
    let mut all: Vec<Value> = records.to_vec();
    all.push(other);
    for (index, record) in all.iter_mut().enumerate() {
        record["dynamodb"]["SequenceNumber"] = json!(sequence(index));
    }
    invocation["Records"] = json!(all);
    invocation
}

/// The number of a record in its shard.
pub(crate) fn sequence(index: usize) -> String {
    (4_421_584_500_000_000_017_450_439_091_u128 + index as u128).to_string()
}

/// The recorded invocation of the queue with these messages in it.
pub(crate) fn queued(messages: &[Message]) -> Value {
    let mut invocation: Value = serde_json::from_str(include_str!("../events/queue.json")).unwrap();
    let recorded = invocation["Records"][0].clone();
    let told = |message: &Message| {
        let mut record = recorded.clone();
        record["messageId"] = json!(message.message_id().unwrap());
        record["receiptHandle"] = json!(message.receipt_handle().unwrap());
        record["body"] = json!(message.body().unwrap());
        record["md5OfBody"] = json!(message.md5_of_body().unwrap());
        for (name, value) in message.attributes().unwrap() {
            record["attributes"][name.as_str()] = json!(value);
        }
        record
    };
    invocation["Records"] = messages.iter().map(told).collect();
    invocation
}

/// The names of what an answer says comes again.
pub(crate) fn failures(answer: &Value) -> Vec<&str> {
    let failures = answer["batchItemFailures"].as_array().unwrap();
    failures.iter().map(|failure| failure["itemIdentifier"].as_str().unwrap()).collect()
}
