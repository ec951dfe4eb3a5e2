//! One relay process for the tests: the engine that everybody uses, from tables of DynamoDB to a queue of SQS.
//!
//! `aws-relay DYNAMODB_URL PREFIX AWS_URL KEY QUEUE LEASE_MS [polling]`: a polling one does not read the table's
//! stream.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use postrider_aws::{AwsSettings, Credentials, SqsBroker};
use postrider_core::{Destination, DestinationId, Error, ErrorKind, Result, Route};
use postrider_dynamodb::{Connection, DynamoStore, Names, Options, Settings};
use postrider_relay::Relay;

/// How often the index is read from its front: both paths are at work within a round.
const BACKSTOP: Duration = Duration::from_secs(2);

async fn run(args: &[String]) -> Result<ExitCode> {
    let wrong = |message: &'static str| Error::new(ErrorKind::Config, "start").message(message);
    let [dynamodb, prefix, aws, key, queue, lease, others @ ..] = args else {
        return Err(wrong("aws-relay DYNAMODB_URL PREFIX AWS_URL KEY QUEUE LEASE_MS [polling]"));
    };
    let lease = Duration::from_millis(lease.parse().map_err(|_| wrong("a lease is a number"))?);
    let settings = postrider_relay::Settings::with_lease(lease);
    let connection = Connection::new(Settings::at(dynamodb, Names::with_prefix(prefix)))?;
    let mut options = Options::default();
    options.backstop = BACKSTOP;
    options.stream = others.is_empty();
    let mut sqs = AwsSettings::new("us-east-1");
    sqs.endpoint = Some(aws.clone());
    sqs.credentials =
        Credentials::Key { id: key.clone(), secret: key.as_str().into(), session: None };
    sqs.deadline = settings.publish_deadline / 2;
    sqs.fifo = true;
    let route = Route::all(queue.parse()?);
    let definition = Destination::new(DestinationId::new("queue")?, "sqs", vec![route]);
    let relay = Relay::builder(Arc::new(DynamoStore::with(connection, options)))
        .destination(definition, Arc::new(SqsBroker::new(sqs)?))
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
