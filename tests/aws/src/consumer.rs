//! One consumer process for the tests: from a queue of SQS to an effect in DynamoDB.
//!
//! `aws-consumer DYNAMODB_URL PREFIX AWS_URL KEY QUEUE [careless]`: an effect is an event's id at the end of its
//! account's list, written in one transaction with the inbox's marker. A careless one has no inbox, and writes one
//! for each delivery: what the checker has to find.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError as Failed;
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use postrider_aws::{AwsSettings, Credentials, SqsSubscription, SubscriptionSettings};
use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{BoxFuture, Delivery, Error, ErrorKind, Event, HandlerName, Result};
use postrider_dynamodb::{Connection, Inbox, InboxOptions, Names, Settings};
use postrider_inbox::Consumer;

/// How long a delivery is hidden without a sign of life.
const VISIBILITY: Duration = Duration::from_secs(4);
/// How soon a transaction is tried again that met another one.
const AGAIN: Duration = Duration::from_millis(50);

/// Writes effects.
struct Ledger {
    handler: HandlerName,
    connection: Connection,
    inbox: Inbox,
    table: String,
    careless: bool,
}

impl Ledger {
    fn effect(&self, event: &Event) -> Result<TransactWriteItem> {
        let one = AttributeValue::L(vec![AttributeValue::S(event.id.to_string())]);
        let update = Update::builder()
            .table_name(&self.table)
            .key("pk", AttributeValue::S(event.aggregate_id.to_string()))
            .update_expression("SET applied = list_append(if_not_exists(applied, :none), :one)")
            .expression_attribute_values(":none", AttributeValue::L(Vec::new()))
            .expression_attribute_values(":one", one)
            .build()
            .map_err(|error| Error::new(ErrorKind::Internal, "act").source(error))?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    async fn act(&self, event: &Event) -> Result<Verdict> {
        let marker = self.inbox.marker(event, &self.handler)?;
        let mut write = self.connection.tables().await.transact_write_items();
        if !self.careless {
            write = write.transact_items(marker.action()?);
        }
        let sent = write.transact_items(self.effect(event)?).send().await;
        let Err(error) = sent else { return Ok(Verdict::Done) };
        let failed = |error| Err(Error::new(ErrorKind::Unavailable, "act").source(error));
        match error.into_service_error() {
            Failed::TransactionCanceledException(told) => {
                if !self.careless && marker.refused(&told, 0)?.is_some() {
                    return Ok(Verdict::Duplicate);
                }
                Ok(Verdict::Busy { retry_in: AGAIN })
            }
            other => failed(other),
        }
    }
}

impl Receiver for Ledger {
    fn handler(&self) -> &HandlerName {
        &self.handler
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        _: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(self.act(event))
    }
}

async fn run(args: &[String]) -> Result<ExitCode> {
    let [dynamodb, prefix, aws, key, queue, others @ ..] = args else {
        return Err(Error::new(ErrorKind::Config, "start")
            .message("aws-consumer DYNAMODB_URL PREFIX AWS_URL KEY QUEUE [careless]"));
    };
    let connection = Connection::new(Settings::at(dynamodb, Names::with_prefix(prefix)))?;
    let ledger = Ledger {
        handler: HandlerName::new("ledger")?,
        inbox: Inbox::new(connection.clone(), InboxOptions::default())?,
        connection,
        table: format!("{prefix}accounts"),
        careless: !others.is_empty(),
    };
    let mut sqs = AwsSettings::new("us-east-1");
    sqs.endpoint = Some(aws.clone());
    sqs.credentials =
        Credentials::Key { id: key.clone(), secret: key.as_str().into(), session: None };
    let mut settings = SubscriptionSettings::new(queue);
    settings.visibility = VISIBILITY;
    let subscription = Arc::new(SqsSubscription::open(sqs, settings).await?);
    Consumer::builder(subscription).receiver(Arc::new(ledger)).start()?.stopped().await;
    Ok(ExitCode::FAILURE)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let told = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
    told.with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args).await.unwrap_or_else(|error| {
        _ = writeln!(std::io::stderr(), "{error}");
        ExitCode::from(2)
    })
}
