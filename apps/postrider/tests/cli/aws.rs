//! Destinations on SQS, and a sidecar of a queue, with LocalStack: the requests of the test itself are by hand.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use postrider_testkit::services;
use serde_json::{Value, json};

use crate::broker::{assert_none_dead, configured, doctor_says};
use crate::{Shop, code, err};

/// LocalStack with an account of the test's own, which follows from the key: nobody else sees its queues.
pub(crate) struct Account {
    host: String,
    pub(crate) key: String,
}

impl Account {
    /// `None`, with the reason printed, where there is no server.
    #[allow(clippy::print_stdout, reason = "a skipped test says why")]
    pub(crate) fn open() -> Option<Account> {
        match services::url("aws") {
            Ok(url) => {
                let id = postrider_core::EventId::mint().to_string();
                let digits: String = id.chars().filter(char::is_ascii_digit).collect();
                let key = format!("{digits:0<12}").chars().rev().take(12).collect();
                let host = url.strip_prefix("http://").unwrap().to_owned();
                Some(Account { host, key })
            }
            Err(reason) => {
                println!("skipped: queues of SQS: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                None
            }
        }
    }

    pub(crate) fn ask(&self, action: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let request = format!(
            "POST / HTTP/1.0\r\nHost: {}\r\nX-Amz-Target: AmazonSQS.{action}\r\n\
             Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/sqs/aws4_request, \
             SignedHeaders=host, Signature=x\r\n\r\n{body}",
            self.host,
            body.len(),
            self.key
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        // An action that says nothing answers with nothing.
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_default()
    }

    pub(crate) fn queue(&self, name: &str) -> String {
        let made = self.ask("CreateQueue", &json!({ "QueueName": name }));
        made["QueueUrl"].as_str().unwrap().to_owned()
    }

    /// Lets one queue's dead letters go to another.
    pub(crate) fn serve(&self, queue: &str, dead: &str) {
        let policy = json!({"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": 100});
        let attributes = json!({"RedrivePolicy": policy.to_string()});
        self.ask("SetQueueAttributes", &json!({"QueueUrl": queue, "Attributes": attributes}));
    }

    /// The ARN of a queue.
    pub(crate) fn arn(&self, queue: &str) -> String {
        self.attribute(queue, "QueueArn")
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.host)
    }

    /// The public part of the key.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn count(&self, queue: &str) -> String {
        self.attribute(queue, "ApproximateNumberOfMessages")
    }

    /// Messages that somebody received, and that are not settled.
    pub(crate) fn hidden(&self, queue: &str) -> String {
        self.attribute(queue, "ApproximateNumberOfMessagesNotVisible")
    }

    fn attribute(&self, queue: &str, name: &str) -> String {
        let asked = json!({"QueueUrl": queue, "AttributeNames": [name]});
        let said = self.ask("GetQueueAttributes", &asked);
        said["Attributes"][name].as_str().unwrap().to_owned()
    }

    /// The keys of a table that say who we are, and where.
    pub(crate) fn login(&self) -> String {
        format!(
            "endpoint = \"http://{}\"\naccess_key = \"{}\"\nsecret_key = \"file:password\"\n",
            self.host, self.key
        )
    }
}

/// R107, R125: a queue that is not there is found, and as soon as it is, events go; the secret is shown nowhere.
#[test]
fn events_go_to_a_queue() {
    let Some(account) = Account::open() else { return };
    let shop = Shop::new();
    shop.configure(&configured("sqs", "sqs://us-east-1", &account.login()));
    std::fs::write(shop.path("password"), "hunter2").unwrap();
    doctor_says(&shop, "it is not there", "PR-1302");
    shop.place(1..4);
    let queue = account.queue("orders");
    doctor_says(&shop, "it has no redrive policy", "PR-1502");
    let ended = shop.run(&["relay", "--config", "postrider.toml", "--once"]);
    assert_eq!(code(&ended), 0, "{}", err(&ended));
    assert_eq!(account.count(&queue), "3");
    assert_none_dead(&shop);
    account.ask("DeleteQueue", &json!({ "QueueUrl": queue }));
}

/// R082: `doctor` looks at the queue of a sidecar, and compares its times.
#[test]
fn doctor_looks_at_the_queue_of_a_sidecar() {
    let Some(account) = Account::open() else { return };
    let shop = Shop::new();
    shop.configure(&format!(
        "store = \"sqlite://shop.db\"\n[consume.billing]\nfrom = \"sqs://us-east-1/orders\"\n\
         inbox = \"sqlite://billing.db\"\nendpoint = \"http://127.0.0.1:9/\"\n[consume.billing.sqs]\n{}",
        account.login()
    ));
    std::fs::write(shop.path("password"), "hunter2").unwrap();
    let said =
        || crate::out(&shop.run(&["doctor", "--config", "postrider.toml", "--output", "ndjson"]));
    assert!(said().contains("PR-1302"), "{}", said());
    let queue = account.queue("orders");
    let found = said();
    assert!(found.contains("there is no place for dead letters"), "{found}");
    assert!(found.contains("comes back after 66s"), "{found}");
    account.ask("DeleteQueue", &json!({ "QueueUrl": queue }));
}
