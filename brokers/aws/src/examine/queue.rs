//! Queues of SQS, as a destination and as a source.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Result, Route};
use tokio::time::Instant;

use super::{AWAY, LOOKED_AT, horizon, refused, shown, unknown, within, written};
use crate::attributes::{Attributes, queue_of_arn};
use crate::connection::Connection;
use crate::fifo::is_fifo;
use crate::queues::Queues;
use crate::settings::AwsSettings;
use crate::sqs::BYTES_MAX;
use crate::subscription::SubscriptionSettings;

/// The longest that a queue keeps a message.
const KEPT_MAX: Duration = Duration::from_secs(14 * 24 * 3_600);
/// Messages that may be out at once; past them a queue gives nothing out.
const OUT_MAX: u64 = 120_000;
/// From here on a limit is said to be near, in percent: there is still time to act.
const NEARLY: u64 = 80;

/// Looks at the queues that the routes write to.
///
/// # Errors
/// The service could not be asked.
pub(crate) async fn queues(connection: &Connection, routes: &[Route]) -> Result<Vec<Finding>> {
    let settings = connection.settings();
    let until = Instant::now() + settings.deadline;
    let client = Client::new(connection.config(until).await?);
    let asked = async {
        let mut found = Vec::new();
        for (name, open) in written(routes).into_iter().take(LOOKED_AT) {
            if open {
                found.push(unknown(&format!("queues {name}…"), "names"));
                continue;
            }
            let looked = look(&client, settings, &name).await;
            match looked {
                Ok(seen) => found.extend(of_destination(&seen, horizon(routes), settings)),
                Err(error) => found.push(refused(&subject(&name), error, &create(&name))?),
            }
        }
        Ok(found)
    };
    within(settings.deadline, asked).await
}

/// Looks at a queue that is consumed, where a message is tried so often before it is refused for good.
///
/// # Errors
/// The service could not be asked.
pub async fn queue(
    aws: AwsSettings,
    settings: &SubscriptionSettings,
    tries: u32,
) -> Result<Vec<Finding>> {
    let connection = Connection::new(aws)?;
    let until = Instant::now() + connection.settings().deadline;
    let client = Client::new(connection.config(until).await?);
    let asked = async {
        let aws = connection.settings();
        let mut found = Vec::new();
        match look(&client, aws, &settings.queue).await {
            Ok(seen) => found.extend(of_source(&seen, tries, settings.dead_letters.is_some())),
            Err(error) => {
                let make = create(&settings.queue);
                found.push(refused(&subject(&settings.queue), error, &make)?);
            }
        }
        if let Some(dead) = &settings.dead_letters
            && let Err(error) = look(&client, aws, dead).await
        {
            found.push(refused(&subject(dead), error, &create(dead))?);
        }
        Ok(found)
    };
    within(connection.settings().deadline, asked).await
}

/// A queue, and the one of its dead letters.
struct Seen {
    name: String,
    address: Arc<str>,
    own: Attributes,
    /// How long the queue of its dead letters keeps them, if it could be looked at.
    dead: Option<Option<Duration>>,
}

async fn look(client: &Client, aws: &AwsSettings, queue: &str) -> Result<Seen> {
    let queues = Queues::default();
    let own: Arc<str> = Arc::from(queue);
    let address = queues.find(client, aws.account.as_deref(), &own).await;
    let address = address.map_err(|trouble| trouble.error("examine"))?;
    let own = Attributes::ask(client, &address).await?;
    let mut dead = None;
    if let Some((account, name)) = own.dead_letters().as_deref().and_then(queue_of_arn) {
        let name: Arc<str> = Arc::from(name);
        dead = Some(match queues.find(client, Some(account), &name).await {
            Ok(address) => {
                Attributes::ask(client, &address).await.ok().and_then(|it| it.retention())
            }
            Err(_) => None,
        });
    }
    let name = queue.rsplit('/').next().unwrap_or(queue).to_owned();
    Ok(Seen { name, address, own, dead })
}

fn subject(queue: &str) -> String {
    format!("queue {}", queue.rsplit('/').next().unwrap_or(queue))
}

fn create(queue: &str) -> String {
    let fifo = if is_fifo(queue) { " --attributes FifoQueue=true" } else { "" };
    format!("aws sqs create-queue --queue-name {queue}{fifo}, or correct its name")
}

impl Seen {
    /// A command that sets an attribute.
    fn set(&self, attribute: &str) -> String {
        format!(
            "aws sqs set-queue-attributes --queue-url {} --attributes {attribute}",
            self.address
        )
    }
}

/// What a queue's settings mean for events that are written to it, and tried for so long.
fn of_destination(seen: &Seen, horizon: Duration, settings: &AwsSettings) -> Vec<Finding> {
    let subject = subject(&seen.name);
    let mut found = keeping(seen, &subject, horizon.max(AWAY));
    if seen.own.dead_letters().is_none() {
        found.push(findings::coded(
            &subject,
            "it has no redrive policy: what its consumers cannot handle is given out until it is too old, and then \
             dropped",
            seen.set("RedrivePolicy='{\"deadLetterTargetArn\":\"ARN\",\"maxReceiveCount\":\"10\"}'"),
            Code::KeptTooShort,
        ));
    }
    let takes = seen.own.message_bytes_max().unwrap_or(BYTES_MAX as u64);
    let wanted = settings.message_bytes_max.map_or(BYTES_MAX as u64, u64::from);
    if takes < wanted {
        found.push(findings::coded(
            &subject,
            format!("it takes messages of at most {takes} bytes, and one may have {wanted}"),
            seen.set(&format!("MaximumMessageSize={wanted}")),
            Code::LimitLow,
        ));
    }
    sound(seen, subject, found)
}

/// What a queue's settings mean for who consumes it, and tries a message so often.
fn of_source(seen: &Seen, tries: u32, has_letters: bool) -> Vec<Finding> {
    let subject = subject(&seen.name);
    let mut found = keeping(seen, &subject, AWAY);
    match seen.own.receives_max() {
        Some(times) if times <= u64::from(tries) => found.push(findings::coded(
            &subject,
            format!(
                "its redrive policy puts a message aside after {times} receives, also where it was merely another's \
                 turn, and the sidecar tries it {tries} times"
            ),
            seen.set(&format!(
                "RedrivePolicy='{{\"deadLetterTargetArn\":\"{}\",\"maxReceiveCount\":\"{}\"}}'",
                seen.own.dead_letters().unwrap_or_default(),
                (u64::from(tries) * 10).min(1_000)
            )),
            Code::KeptTooShort,
        )),
        None if !has_letters => found.push(findings::critical(
            &subject,
            "there is no place for dead letters: the sidecar does not start",
            "set dead_letters in its table sqs, or give the queue a redrive policy",
            Code::Config,
        )),
        _ => {}
    }
    sound(seen, subject, found)
}

/// How long it keeps messages, and how many of them are out.
fn keeping(seen: &Seen, subject: &str, wanted: Duration) -> Vec<Finding> {
    let mut found = Vec::new();
    let kept = seen.own.retention();
    if let Some(kept) = kept.filter(|kept| *kept < wanted) {
        found.push(findings::critical(
            subject,
            format!(
                "it drops messages after {}, and a consumer may be away, or an event tried, for {}",
                shown(kept),
                shown(wanted)
            ),
            seen.set("MessageRetentionPeriod=1209600"),
            Code::KeptTooShort,
        ));
    }
    match seen.dead {
        Some(None) => found.push(findings::coded(
            subject,
            "the queue of its dead letters is not there, or cannot be looked at",
            "create it, or correct deadLetterTargetArn in the redrive policy",
            Code::Unroutable,
        )),
        // A message keeps its age when it is put aside.
        Some(Some(dead)) if !is_fifo(&seen.name) && kept.is_some_and(|kept| dead <= kept) => {
            found.push(findings::coded(
                subject,
                format!(
                    "its dead letters are kept for {}, counted from when they were sent: some are dropped before \
                     anybody looks",
                    shown(dead)
                ),
                match dead < KEPT_MAX {
                    true => "set MessageRetentionPeriod of the queue of dead letters to more than that of the queue",
                    false => {
                        "it cannot be kept for longer: set MessageRetentionPeriod of the queue itself to less than the \
                         14 days of its dead letters, such as 604800"
                    }
                },
                Code::KeptTooShort,
            ));
        }
        _ => {}
    }
    let out = seen.own.out();
    if out * 100 >= OUT_MAX * NEARLY {
        found.push(findings::coded(
            subject,
            format!("{out} messages are out at once, and past {OUT_MAX} it gives nothing out"),
            "let consumers settle sooner, or take fewer at once",
            Code::NearlyFull,
        ));
    }
    found
}

fn sound(seen: &Seen, subject: String, mut found: Vec<Finding>) -> Vec<Finding> {
    if found.is_empty() {
        let kept = seen.own.retention().map_or_else(|| "long enough".to_owned(), shown);
        let kind = match is_fifo(&seen.name) {
            true => "a key's order holds, and copies are absorbed for five minutes",
            false => "it has no order, and absorbs no copies",
        };
        found.push(findings::good(&subject, format!("it keeps messages for {kept}; {kind}")));
    }
    found
}
