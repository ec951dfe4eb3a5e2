//! Which queue is meant, and which inbox its consumers have: out of flags and a configuration's table.

use std::time::Duration;

use postrider_aws::{AwsSettings, DeadLetters};
use postrider_config::{Address, Environment, Needs, PostgresConfig};
use postrider_core::HandlerName;

use super::PlaceArgs;
use crate::config;
use crate::consume::{Source, choose};
use crate::failure::Failure;

/// A queue, its dead letters, and what its consumers remember.
pub(super) struct Queue {
    /// The name of the queue that is consumed.
    pub(super) name: String,
    pub(super) letters: DeadLetters,
    /// The address of the inbox, if one is named.
    pub(super) inbox: Option<String>,
    /// Where that address stands, if no flag gives it.
    pub(super) reference: Option<Address>,
    pub(super) postgres: PostgresConfig,
    /// How long the inbox remembers.
    pub(super) remembers: Duration,
    pub(super) handler: Option<HandlerName>,
}

/// Reads what is meant, and finds the queues. `inbox` is that of a flag.
///
/// # Errors
/// A configuration failure, and what the service says.
pub(super) async fn open(args: &PlaceArgs, inbox: Option<&str>) -> Result<Queue, Failure> {
    let environment = Environment::of_process();
    let loaded = config::load(args.config.as_deref(), &environment, Needs::NOTHING)?;
    let secrets = config::secrets(&loaded, &environment)?;
    let wished = args.handler.as_ref().map(HandlerName::as_str);
    let chosen = choose(wished, &loaded.config)?;
    let table = chosen.map(|(_, table)| table);
    let from = match &args.from {
        Some(text) => Some(crate::flag::address("--from", text, &environment)?),
        None => table.and_then(|table| secrets.address(&table.from)).map(str::to_owned),
    };
    let from = from.ok_or_else(|| {
        Failure::config("no queue is named").advice(
            "Nothing was moved. Add --from sqs://REGION/QUEUE, or --config FILE with a table [consume.NAME].",
        )
    })?;
    let (region, name) = match Source::parse(&from)? {
        Source::Sqs { region, queue } => (region, queue),
        other => {
            let advice = "Nothing was moved. This command knows queues of SQS; other brokers keep dead letters in \
                          topics or files of theirs.";
            return Err(Failure::config(format!("{other} is no queue of SQS")).advice(advice));
        }
    };
    let (aws, configured) = match table {
        Some(table) => {
            let mut aws = crate::aws::settings(&region, &table.sqs.login(), &secrets)?;
            aws.deadline = table.sqs.timeout;
            (aws, table.sqs.dead_letters.as_deref())
        }
        None => (AwsSettings::new(&region), None),
    };
    let dead = args.dead_letters.as_deref().or(configured);
    let letters = DeadLetters::of(aws, &name, dead).await?;
    let of_table = table.and_then(|table| secrets.address(&table.inbox));
    Ok(Queue {
        name,
        letters,
        inbox: inbox.or(of_table).map(str::to_owned),
        reference: inbox.is_none().then(|| Some(table?.inbox.clone())).flatten(),
        postgres: loaded.config.postgres.clone(),
        remembers: loaded.config.retention.inbox,
        handler: chosen.map(|(handler, _)| handler.clone()).or_else(|| args.handler.clone()),
    })
}
