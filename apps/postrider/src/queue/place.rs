//! Which queue is meant, and which inbox its consumers have: out of flags and a configuration's table.
//!
//! Invariant: what a table says of its own queue (dead letters, inbox, handler) counts for no other queue.

use std::time::Duration;

use postrider_aws::{AwsSettings, DeadLetters};
use postrider_config::{Address, Environment, Loaded, Needs, Origin, PostgresConfig};
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
    /// Whether nobody said so.
    pub(super) assumed: bool,
    /// The queue of the configuration's table, if another one is meant.
    pub(super) passed: Option<String>,
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
    let of_table = table.and_then(|table| secrets.address(&table.from));
    let from = match &args.from {
        Some(text) => Some(crate::flag::address("--from", text, &environment)?),
        None => of_table.map(str::to_owned),
    };
    let from = from.ok_or_else(|| {
        Failure::config("no queue is named").advice(
            "Nothing was moved. Add --from sqs://REGION/QUEUE, or --config FILE with a table [consume.NAME].",
        )
    })?;
    let (region, name) = sqs(&from)?;
    let passed = of_table.filter(|own| !same(own, &region, &name)).map(called);
    // What the table says of its queue is of no other; who we are at the service is the same.
    let own = chosen.filter(|_| passed.is_none());
    let (handler, own) = own.unzip();
    let (aws, configured) = match table {
        Some(table) => {
            let mut aws = crate::aws::settings(&region, &table.sqs.login(), &secrets)?;
            aws.deadline = table.sqs.timeout;
            (aws, own.and_then(|table| table.sqs.dead_letters.as_deref()))
        }
        None => (AwsSettings::new(&region), None),
    };
    let dead = args.dead_letters.as_deref().or(configured);
    let letters = DeadLetters::of(aws, &name, dead).await?;
    let named = own.and_then(|table| secrets.address(&table.inbox));
    Ok(Queue {
        name,
        letters,
        inbox: inbox.or(named).map(str::to_owned),
        reference: own.filter(|_| inbox.is_none()).map(|table| table.inbox.clone()),
        postgres: loaded.config.postgres.clone(),
        remembers: loaded.config.retention.inbox,
        assumed: (args.config.is_none() || passed.is_some()) && is_unsaid(&loaded),
        handler: match chosen {
            Some(_) => handler.cloned(),
            None => args.handler.clone(),
        },
        passed,
    })
}

/// Region and name of a queue.
///
/// # Errors
/// A configuration failure: it is of another broker.
fn sqs(from: &str) -> Result<(String, String), Failure> {
    match Source::parse(from)? {
        Source::Sqs { region, queue } => Ok((region, queue)),
        other => {
            let advice = "Nothing was moved. This command knows queues of SQS; other brokers keep dead letters in \
                          topics or files of theirs.";
            Err(Failure::config(format!("{other} is no queue of SQS")).advice(advice))
        }
    }
}

/// Whether a table's address is that of this queue.
fn same(of_table: &str, region: &str, name: &str) -> bool {
    sqs(of_table).is_ok_and(|(own, queue)| own == region && queue == name)
}

/// A table's source, without what is secret in it.
fn called(from: &str) -> String {
    Source::parse(from).map_or_else(|_| "another source".to_owned(), |source| source.to_string())
}

/// Whether neither a file nor a variable says how long the inbox remembers.
fn is_unsaid(loaded: &Loaded) -> bool {
    loaded
        .values()
        .iter()
        .all(|value| value.key != "retention.inbox" || value.origin == Origin::Default)
}
