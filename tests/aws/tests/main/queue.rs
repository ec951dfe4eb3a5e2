//! A queue of the test's own, in an account of its own, and the bus before it if there is one.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region};
use aws_sdk_eventbridge::types::{PutEventsRequestEntry, Target};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use postrider_aws::{AwsSettings, SqsBroker};
use postrider_core::cloudevents;
use postrider_core::{Event, EventId, Marks};

/// How often a message may be received before SQS itself puts it away: faults count, so never here.
const RECEIVES_MAX: u32 = 1_000;
/// The bus's name.
const BUS: &str = "orders";

/// What events come by. The account is the test's own, so names are the same in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    /// To a FIFO queue.
    Queue,
    /// To a bus of EventBridge, a rule of which puts all into a standard queue.
    Bus,
}

impl Road {
    /// As relays are told.
    pub(crate) fn address(self) -> String {
        match self {
            Road::Queue => format!("sqs://{}", self.queue()),
            Road::Bus => format!("events://{BUS}"),
        }
    }

    /// The queue's name.
    pub(crate) fn queue(self) -> &'static str {
        match self {
            Road::Queue => "orders.fifo",
            Road::Bus => "orders",
        }
    }

    fn dead(self) -> &'static str {
        match self {
            Road::Queue => "dead.fifo",
            Road::Bus => "dead",
        }
    }
}

pub(crate) struct Queue {
    pub(crate) road: Road,
    client: Client,
    events: aws_sdk_eventbridge::Client,
    server: String,
    url: String,
    /// Twelve digits, which are the account.
    pub(crate) key: String,
    copies: u32,
}

impl Queue {
    /// Makes it, and one for dead letters.
    pub(crate) async fn make(server: &str, road: Road) -> Queue {
        let id = EventId::mint().to_string();
        let digits: String = id.chars().filter(char::is_ascii_digit).collect();
        let key: String = format!("{digits:0<12}").chars().rev().take(12).collect();
        let tls = Provider::Rustls(CryptoMode::Ring);
        let http = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
        let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .endpoint_url(server)
            .http_client(http)
            .credentials_provider(Credentials::new(&key, &key, None, None, "test"))
            .load()
            .await;
        let (client, events) = (Client::new(&config), aws_sdk_eventbridge::Client::new(&config));
        let create = |name: &str| {
            let create = client.create_queue().queue_name(name);
            match road {
                Road::Queue => create.attributes(QueueAttributeName::FifoQueue, "true"),
                Road::Bus => create,
            }
        };
        create(road.dead()).send().await.unwrap();
        let policy = format!(
            "{{\"deadLetterTargetArn\":\"{}\",\"maxReceiveCount\":{RECEIVES_MAX}}}",
            arn(&key, road.dead())
        );
        let made = create(road.queue()).attributes(QueueAttributeName::RedrivePolicy, policy);
        let url = made.send().await.unwrap().queue_url.unwrap();
        let server = server.to_owned();
        let queue = Queue { road, client, events, server, url, key, copies: 0 };
        if road == Road::Bus {
            queue.lay_the_bus().await;
        }
        queue
    }

    async fn lay_the_bus(&self) {
        self.events.create_event_bus().name(BUS).send().await.unwrap();
        let rule = self.events.put_rule().event_bus_name(BUS).name("all");
        let pattern = format!("{{\"account\":[\"{}\"]}}", self.key);
        rule.event_pattern(pattern).send().await.unwrap();
        let target = Target::builder().id("queue").arn(arn(&self.key, self.road.queue()));
        let put = self.events.put_targets().event_bus_name(BUS).rule("all");
        put.targets(target.build().unwrap()).send().await.unwrap();
    }

    /// Brings copies, as a relay does that does not know what became of them, and too late for the queue to absorb
    /// them.
    pub(crate) async fn copy(&mut self, events: &[Event]) {
        for event in events {
            self.copies += 1;
            let body = cloudevents::to_json(event, Marks::default()).unwrap();
            let body = String::from_utf8(body).unwrap();
            match self.road {
                Road::Queue => {
                    let send = self.client.send_message().queue_url(&self.url).message_body(body);
                    send.message_group_id(format!("account-{}", event.aggregate_id))
                        .message_deduplication_id(format!("copy-{}", self.copies))
                        .send()
                        .await
                        .unwrap();
                }
                Road::Bus => {
                    let entry = PutEventsRequestEntry::builder().event_bus_name(BUS).detail(body);
                    let entry = entry.source(&*event.source).detail_type(&*event.event_type);
                    let put = self.events.put_events().entries(entry.build()).send().await.unwrap();
                    assert_eq!(put.failed_entry_count(), 0);
                }
            }
        }
    }

    /// How many are in it, hidden ones included. What a bus was told is there within a moment.
    pub(crate) async fn left(&self) -> u32 {
        if self.road == Road::Bus {
            // waits: a bus tells nobody what it still has to hand on
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let (there, hidden) = (
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        );
        let ask = self.client.get_queue_attributes().queue_url(&self.url);
        let told = ask
            .attribute_names(there.clone())
            .attribute_names(hidden.clone())
            .send()
            .await
            .unwrap();
        let all = told.attributes().unwrap();
        [there, hidden].iter().map(|name| all[name].parse::<u32>().unwrap()).sum()
    }

    /// From now on it refuses what is larger.
    pub(crate) async fn take_at_most(&self, bytes: usize) {
        let set = self.client.set_queue_attributes().queue_url(&self.url);
        let set = set.attributes(QueueAttributeName::MaximumMessageSize, bytes.to_string());
        set.send().await.unwrap();
    }

    /// What relays put into it by, in this process.
    pub(crate) fn broker(&self) -> SqsBroker {
        let mut aws = AwsSettings::new("us-east-1");
        aws.endpoint = Some(self.server.clone());
        let secret = self.key.as_str().into();
        aws.credentials =
            postrider_aws::Credentials::Key { id: self.key.clone(), secret, session: None };
        aws.fifo = self.road == Road::Queue;
        SqsBroker::new(aws).unwrap()
    }

    /// Takes everything out of it, in its order.
    pub(crate) async fn take(&mut self) -> Vec<Event> {
        let mut taken = Vec::new();
        while self.left().await > 0 {
            let receive = self.client.receive_message().queue_url(&self.url);
            let came = receive.max_number_of_messages(10).wait_time_seconds(1).send();
            for message in came.await.unwrap().messages() {
                let body = message.body().unwrap_or_default();
                taken.push(cloudevents::parse(body.as_bytes()).unwrap().0);
                let delete = self.client.delete_message().queue_url(&self.url);
                let delete = delete.receipt_handle(message.receipt_handle().unwrap());
                delete.send().await.unwrap();
            }
        }
        taken
    }

    pub(crate) async fn remove(&self) {
        if self.road == Road::Bus {
            let remove = self.events.remove_targets().event_bus_name(BUS).rule("all");
            remove.ids("queue").send().await.unwrap();
            self.events.delete_rule().event_bus_name(BUS).name("all").send().await.unwrap();
            self.events.delete_event_bus().name(BUS).send().await.unwrap();
        }
        let dead = self.client.get_queue_url().queue_name(self.road.dead()).send().await.unwrap();
        for url in [Some(self.url.clone()), dead.queue_url].into_iter().flatten() {
            self.client.delete_queue().queue_url(url).send().await.unwrap();
        }
    }
}

/// The name of a queue of an account everywhere.
fn arn(account: &str, queue: &str) -> String {
    format!("arn:aws:sqs:us-east-1:{account}:{queue}")
}
