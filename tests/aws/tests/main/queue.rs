//! A FIFO queue of the test's own, in an account of its own.

use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use postrider_core::cloudevents;
use postrider_core::{Event, EventId, Marks};

/// The queue's name; the account is the test's own.
pub(crate) const NAME: &str = "orders.fifo";

/// How often a message may be received before SQS itself puts it away: faults count, so never here.
const RECEIVES_MAX: u32 = 1_000;

pub(crate) struct Queue {
    client: Client,
    url: String,
    /// Twelve digits, which are the account.
    pub(crate) key: String,
    copies: u32,
}

impl Queue {
    /// Makes it, and one for dead letters.
    pub(crate) async fn make(server: &str) -> Queue {
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
        let client = Client::new(&config);
        let create = |name: &str| {
            client.create_queue().queue_name(name).attributes(QueueAttributeName::FifoQueue, "true")
        };
        create("dead.fifo").send().await.unwrap();
        let policy = format!(
            "{{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:{key}:dead.fifo\",\
             \"maxReceiveCount\":{RECEIVES_MAX}}}"
        );
        let made = create(NAME).attributes(QueueAttributeName::RedrivePolicy, policy);
        let url = made.send().await.unwrap().queue_url.unwrap();
        Queue { client, url, key, copies: 0 }
    }

    /// Puts copies into it, as a relay does that does not know what became of them, and too late for the queue to
    /// absorb them.
    pub(crate) async fn copy(&mut self, events: &[Event]) {
        for event in events {
            self.copies += 1;
            let body = cloudevents::to_json(event, Marks::default()).unwrap();
            let send = self.client.send_message().queue_url(&self.url);
            send.message_body(String::from_utf8(body).unwrap())
                .message_group_id(format!("account-{}", event.aggregate_id))
                .message_deduplication_id(format!("copy-{}", self.copies))
                .send()
                .await
                .unwrap();
        }
    }

    /// How many are in it, hidden ones included.
    pub(crate) async fn left(&self) -> u32 {
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

    pub(crate) async fn remove(&self) {
        let dead = self.client.get_queue_url().queue_name("dead.fifo").send().await.unwrap();
        for url in [Some(self.url.clone()), dead.queue_url].into_iter().flatten() {
            self.client.delete_queue().queue_url(url).send().await.unwrap();
        }
    }
}
