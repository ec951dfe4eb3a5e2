//! What the account has: a bus, a queue with dead letters, and two rules that both put every event into it, so
//! that each comes twice.

use aws_config::{BehaviorVersion, Region};
use aws_sdk_dynamodb::Client as Tables;
use aws_sdk_eventbridge::Client as Buses;
use aws_sdk_eventbridge::types::Target;
use aws_sdk_sqs::Client as Queues;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use postrider::aws::Credentials;
use postrider::dynamodb::Connection;

use crate::Failure;
use crate::orders::Orders;

pub(crate) const REGION: &str = "us-east-1";

/// The rules that match every event.
const RULES: [&str; 2] = ["one", "two"];

/// How often a message is received before SQS itself puts it away.
const RECEIVES_MAX: u32 = 20;

/// See the module.
pub(crate) struct Cloud {
    name: String,
    buses: Buses,
    queues: Queues,
    made: Vec<String>,
    connection: Connection,
}

/// What an emulator takes for a key.
pub(crate) fn credentials() -> Credentials {
    Credentials::Key { id: "example".to_owned(), secret: "example".into(), session: None }
}

impl Cloud {
    pub(crate) async fn make(
        aws: &str,
        name: &str,
        connection: Connection,
    ) -> Result<Cloud, Failure> {
        let tls = Provider::Rustls(CryptoMode::Ring);
        let http = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
        let key =
            aws_sdk_sqs::config::Credentials::new("example", "example", None, None, "example");
        let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .region(Region::new(REGION))
            .endpoint_url(aws)
            .http_client(http)
            .credentials_provider(key)
            .load()
            .await;
        let (buses, queues) = (Buses::new(&config), Queues::new(&config));
        buses.create_event_bus().name(name).send().await?;
        let mut cloud =
            Cloud { name: name.to_owned(), buses, queues, made: Vec::new(), connection };
        let dead = cloud.queue(&format!("{name}-dead"), None).await?;
        let queue = cloud.queue(name, Some(&dead)).await?;
        for rule in RULES {
            let rule = format!("{name}-{rule}");
            let pattern = r#"{"detail-type":["order.placed"]}"#;
            let rules = &cloud.buses;
            rules.put_rule().name(&rule).event_bus_name(name).event_pattern(pattern).send().await?;
            let target = Target::builder().id("queue").arn(&queue).build()?;
            rules.put_targets().rule(&rule).event_bus_name(name).targets(target).send().await?;
        }
        Ok(cloud)
    }

    /// Makes a queue, and says its ARN.
    async fn queue(&mut self, name: &str, dead: Option<&str>) -> Result<String, Failure> {
        let mut create = self.queues.create_queue().queue_name(name);
        if let Some(dead) = dead {
            let policy = serde_json::json!({
                "deadLetterTargetArn": dead,
                "maxReceiveCount": RECEIVES_MAX,
            });
            create = create.attributes(QueueAttributeName::RedrivePolicy, policy.to_string());
        }
        let url = create.send().await?.queue_url.ok_or("a queue without an address")?;
        self.made.push(url.clone());
        let asked = self.queues.get_queue_attributes().queue_url(url);
        let told = asked.attribute_names(QueueAttributeName::QueueArn).send().await?;
        let arn = told.attributes().and_then(|all| all.get(&QueueAttributeName::QueueArn));
        Ok(arn.ok_or("a queue without an ARN")?.clone())
    }

    /// Removes everything, the tables as well.
    pub(crate) async fn remove(self, orders: &Orders) -> Result<(), Failure> {
        for rule in RULES {
            let rule = format!("{}-{rule}", self.name);
            let bus = &self.name;
            self.buses.remove_targets().rule(&rule).event_bus_name(bus).ids("queue").send().await?;
            self.buses.delete_rule().name(&rule).event_bus_name(bus).send().await?;
        }
        self.buses.delete_event_bus().name(&self.name).send().await?;
        for url in &self.made {
            self.queues.delete_queue().queue_url(url).send().await?;
        }
        let tables: &Tables = self.connection.tables().await;
        let names = self.connection.names();
        for table in [&orders.table, &names.outbox, &names.store, &names.inbox] {
            tables.delete_table().table_name(table).send().await?;
        }
        Ok(())
    }
}
