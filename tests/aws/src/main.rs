//! One relay process for the tests: the engine that everybody uses, from tables of DynamoDB or a database of
//! PostgreSQL to a queue of SQS or a bus of EventBridge.
//!
//! `aws-relay OUTBOX PREFIX AWS_URL KEY TO LEASE_MS [polling]`: a polling one does not read the tables' stream. `TO`
//! is `sqs://QUEUE` or `events://BUS`.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use postrider_aws::{AwsSettings, Credentials, EventBridgeBroker, SqsBroker};
use postrider_core::{
    Broker, Destination, DestinationId, Error, ErrorKind, OutboxSource, Result, Route,
};
use postrider_dynamodb::{Connection, DynamoStore, Names, Settings};
use postrider_postgres::PostgresStore;
use postrider_relay::Relay;

/// How often the index is read from its front: both paths are at work within a round.
const BACKSTOP: Duration = Duration::from_secs(2);
/// A database that was killed is asked again soon.
const STATEMENT: Duration = Duration::from_secs(3);

fn wrong(message: &'static str) -> Error {
    Error::new(ErrorKind::Config, "start").message(message)
}

fn store(outbox: &str, prefix: &str, polling: bool) -> Result<Arc<dyn OutboxSource>> {
    if outbox.starts_with("postgres://") {
        let mut options = postrider_postgres::Options::default();
        options.statement_deadline = STATEMENT;
        return Ok(Arc::new(PostgresStore::with(outbox, options)?));
    }
    let connection = Connection::new(Settings::at(outbox, Names::with_prefix(prefix)))?;
    let mut options = postrider_dynamodb::Options::default();
    options.backstop = BACKSTOP;
    options.stream = !polling;
    Ok(Arc::new(DynamoStore::with(connection, options)))
}

/// The broker of an address, and the topic in it.
fn broker(to: &str, mut aws: AwsSettings) -> Result<(Arc<dyn Broker>, &str)> {
    match to.split_once("://") {
        Some(("sqs", queue)) => {
            aws.fifo = true;
            Ok((Arc::new(SqsBroker::new(aws)?), queue))
        }
        Some(("events", bus)) => Ok((Arc::new(EventBridgeBroker::new(aws)?), bus)),
        _ => Err(wrong("where to begins with sqs:// or events://")),
    }
}

async fn run(args: &[String]) -> Result<ExitCode> {
    let [outbox, prefix, url, key, to, lease, others @ ..] = args else {
        return Err(wrong("aws-relay OUTBOX PREFIX AWS_URL KEY TO LEASE_MS [polling]"));
    };
    let lease = Duration::from_millis(lease.parse().map_err(|_| wrong("a lease is a number"))?);
    let settings = postrider_relay::Settings::with_lease(lease);
    let mut aws = AwsSettings::new("us-east-1");
    aws.endpoint = Some(url.clone());
    aws.credentials =
        Credentials::Key { id: key.clone(), secret: key.as_str().into(), session: None };
    aws.deadline = settings.publish_deadline / 2;
    let (broker, topic) = broker(to, aws)?;
    let route = Route::all(topic.parse()?);
    let definition = Destination::new(DestinationId::new("queue")?, "aws", vec![route]);
    let relay = Relay::builder(store(outbox, prefix, !others.is_empty())?)
        .destination(definition, broker)
        .settings(settings);
    relay.start().await?.stopped().await;
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
