//! LocalStack, with queues and topics of a test's own that go with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials as Key;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use postrider_aws::{AwsSettings, Credentials};
use postrider_core::EventId;
use postrider_testkit::services;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

/// What LocalStack calls the account of everybody.
pub(crate) const ACCOUNT: &str = "000000000000";
pub(crate) const REGION: &str = "us-east-1";

/// See the module.
pub(crate) struct Cloud {
    address: String,
    /// What the names of this test begin with.
    prefix: String,
    made: Mutex<Vec<Made>>,
    /// Made once: to read the machine's certificates takes time.
    config: OnceCell<SdkConfig>,
}

enum Made {
    Queue(String),
    Topic(String),
    /// With its one rule.
    Bus(String),
}

impl Cloud {
    /// LocalStack; `None`, with the reason printed, where there is none.
    pub(crate) async fn find() -> Option<Cloud> {
        match Cloud::unavailable() {
            None => Some(Cloud::new()),
            Some(reason) => {
                println!("skipped: services of AWS: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                std::future::ready(None).await
            }
        }
    }

    pub(crate) fn unavailable() -> Option<String> {
        services::url("aws").err()
    }

    pub(crate) fn new() -> Cloud {
        let prefix = format!("t-{}", &EventId::mint().to_string().replace('-', "")[4..]);
        let address = services::url("aws").unwrap();
        Cloud { address, prefix, made: Mutex::default(), config: OnceCell::new() }
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    pub(crate) fn settings(&self) -> AwsSettings {
        settings(&self.address)
    }

    pub(crate) async fn config(&self) -> SdkConfig {
        self.config.get_or_init(|| config(&self.address)).await.clone()
    }

    /// A client of the test's own, that reads what is really there.
    pub(crate) async fn sqs(&self) -> Client {
        Client::new(&self.config().await)
    }

    /// Makes a queue, FIFO if its name says so.
    pub(crate) async fn queue(&self, name: &str) -> String {
        self.queue_of(name, &[]).await
    }

    pub(crate) async fn queue_of(
        &self,
        name: &str,
        attributes: &[(QueueAttributeName, String)],
    ) -> String {
        let mut attributes: HashMap<_, _> = attributes.iter().cloned().collect();
        if name.ends_with(".fifo") {
            attributes.insert(QueueAttributeName::FifoQueue, "true".to_owned());
        }
        let made = self.sqs().await.create_queue().queue_name(self.name(name));
        let made = made.set_attributes(Some(attributes)).send().await.unwrap();
        let address = made.queue_url().unwrap().to_owned();
        self.made.lock().unwrap().push(Made::Queue(address.clone()));
        address
    }

    /// Makes a topic of SNS that hands on to these queues, and gives its ARN.
    pub(crate) async fn topic(&self, name: &str, queues: &[String], raw: bool) -> String {
        let client = aws_sdk_sns::Client::new(&self.config().await);
        let mut made = client.create_topic().name(self.name(name));
        if name.ends_with(".fifo") {
            made = made.attributes("FifoTopic", "true");
        }
        let arn = made.send().await.unwrap().topic_arn().unwrap().to_owned();
        self.made.lock().unwrap().push(Made::Topic(arn.clone()));
        for queue in queues {
            let subscribed = client.subscribe().topic_arn(&arn).protocol("sqs");
            let subscribed = subscribed.endpoint(arn_of(queue));
            let subscribed = subscribed.attributes("RawMessageDelivery", raw.to_string());
            subscribed.send().await.unwrap();
        }
        arn
    }

    /// Makes a bus that hands all on to these queues, and gives its name.
    pub(crate) async fn bus(&self, name: &str, queues: &[String]) -> String {
        use aws_sdk_eventbridge::types::Target;
        let client = aws_sdk_eventbridge::Client::new(&self.config().await);
        let bus = self.name(name);
        client.create_event_bus().name(&bus).send().await.unwrap();
        self.made.lock().unwrap().push(Made::Bus(bus.clone()));
        if !queues.is_empty() {
            let pattern = serde_json::json!({ "account": [ACCOUNT] }).to_string();
            let rule = client.put_rule().event_bus_name(&bus).name("all").event_pattern(pattern);
            rule.send().await.unwrap();
            let target = |(at, queue): (usize, &String)| {
                Target::builder().id(at.to_string()).arn(arn_of(queue)).build().unwrap()
            };
            let targets = queues.iter().enumerate().map(target).collect();
            let put = client.put_targets().event_bus_name(&bus).rule("all");
            put.set_targets(Some(targets)).send().await.unwrap();
        }
        bus
    }

    /// Gives the one target of a bus a queue for dead letters.
    pub(crate) async fn keep_dead_letters(&self, bus: &str, queue: &str, dead: &str) {
        use aws_sdk_eventbridge::types::{DeadLetterConfig, Target};
        let client = aws_sdk_eventbridge::Client::new(&self.config().await);
        let dead = DeadLetterConfig::builder().arn(dead).build();
        let target = Target::builder().id("0").arn(arn_of(queue)).dead_letter_config(dead).build();
        let put = client.put_targets().event_bus_name(self.name(bus)).rule("all");
        put.targets(target.unwrap()).send().await.unwrap();
    }

    /// What makes one of this test's queues that of another's dead letters, after so many times.
    pub(crate) fn redrive_policy(&self, dead: &str, times: u32) -> String {
        let arn = format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{}", self.name(dead));
        serde_json::json!({"deadLetterTargetArn": arn, "maxReceiveCount": times}).to_string()
    }

    /// The address of a queue.
    pub(crate) async fn address_of(&self, queue: &str) -> String {
        let asked = self.sqs().await.get_queue_url().queue_name(queue).send().await;
        asked.unwrap().queue_url().unwrap().to_owned()
    }

    /// What a queue holds, hidden or not, in its order; taken without a trace.
    pub(crate) async fn held(&self, queue: &str) -> Vec<Held> {
        let path =
            format!("/_aws/sqs/messages?QueueUrl={queue}&ShowInvisible=true&ShowDelayed=true");
        let answer = get(&self.address, &path).await;
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        let found = &answer["ReceiveMessageResponse"]["ReceiveMessageResult"];
        let found = if found.is_null() { &serde_json::Value::Null } else { &found["Message"] };
        let mut held: Vec<Held> = several(found).map(Held::read).collect();
        held.sort_by_key(|held| held.place);
        held
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let made = std::mem::take(&mut *self.made.lock().unwrap());
        let address = self.address.clone();
        let tidy = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                // Of its own: the test's client is driven by the runtime that waits here.
                let config = config(&address).await;
                for made in made {
                    match made {
                        Made::Queue(url) => {
                            _ = Client::new(&config).delete_queue().queue_url(url).send().await;
                        }
                        Made::Topic(arn) => {
                            let client = aws_sdk_sns::Client::new(&config);
                            _ = client.delete_topic().topic_arn(arn).send().await;
                        }
                        Made::Bus(bus) => forget_bus(&config, &bus).await,
                    }
                }
            });
        };
        _ = std::thread::spawn(tidy).join();
    }
}

/// The ARN of a queue of this account.
pub(crate) fn arn_of(queue: &str) -> String {
    let name = queue.rsplit('/').next().unwrap();
    format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")
}

async fn forget_bus(config: &SdkConfig, bus: &str) {
    let client = aws_sdk_eventbridge::Client::new(config);
    let targets = client.list_targets_by_rule().event_bus_name(bus).rule("all").send().await;
    if let Ok(targets) = targets {
        let ids = targets.targets().iter().map(|target| target.id().to_owned()).collect();
        let removed = client.remove_targets().event_bus_name(bus).rule("all");
        _ = removed.set_ids(Some(ids)).send().await;
        _ = client.delete_rule().event_bus_name(bus).name("all").send().await;
    }
    _ = client.delete_event_bus().name(bus).send().await;
}

/// A message as it lies in a queue.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) body: String,
    pub(crate) attributes: HashMap<String, String>,
    pub(crate) system: HashMap<String, String>,
    place: u128,
}

impl Held {
    fn read(message: &serde_json::Value) -> Held {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let system: HashMap<_, _> = several(&message["Attribute"])
            .map(|it| (text(&it["Name"]), text(&it["Value"])))
            .collect();
        let attributes = several(&message["MessageAttribute"])
            .map(|it| (text(&it["Name"]), text(&it["Value"]["StringValue"])));
        let order = ["SequenceNumber", "SentTimestamp"].iter().find_map(|name| system.get(*name));
        let place = order.and_then(|order| order.parse().ok()).unwrap_or_default();
        Held { body: text(&message["Body"]), attributes: attributes.collect(), system, place }
    }
}

/// One or many, as XML has it.
fn several(value: &serde_json::Value) -> impl Iterator<Item = &serde_json::Value> {
    let many = value.as_array().map_or(&[][..], Vec::as_slice);
    let one = value.is_object().then_some(value);
    one.into_iter().chain(many)
}

pub(crate) fn settings(address: &str) -> AwsSettings {
    let mut settings = AwsSettings::new(REGION);
    settings.endpoint = Some(address.to_owned());
    settings.credentials =
        Credentials::Key { id: "test".into(), secret: "test".into(), session: None };
    settings.account = Some(ACCOUNT.to_owned());
    settings
}

async fn config(address: &str) -> SdkConfig {
    let client = aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(client)
        .retry_config(RetryConfig::standard())
        .region(Region::new(REGION))
        .credentials_provider(Key::new("test", "test", None, None, "test"))
        .endpoint_url(address)
        .load()
        .await
}

/// A page of LocalStack's own.
async fn get(address: &str, path: &str) -> String {
    let host = address.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Everything in a queue, as events.
pub(crate) fn events(held: &[Held]) -> Vec<Arc<postrider_core::Event>> {
    let read = |held: &Held| {
        let body = postrider_core::cloudevents::parse(held.body.as_bytes());
        Arc::new(body.unwrap().0)
    };
    held.iter().map(read).collect()
}
