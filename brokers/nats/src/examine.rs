//! What in the present settings of the server could lose, double, or hold up events.
//!
//! Invariant: every finding that is not good has a code and says what to set to what; nothing is changed.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Error, ErrorKind, Result, Route};
use tokio::time::{Instant, timeout_at};

use crate::connection::{Connection, Up};
use crate::domain;
use crate::monitor::{self, Forcing};
use crate::takers::examine_partitions;

/// Streams that are looked at. More are not listed by one answer of the server, and nobody reads more.
const STREAMS_MAX: usize = 1_024;

/// How long all questions together may take, in deadlines of one.
const DEADLINES: u32 = 4;

/// From here on a limit is said to be near: there is still time to act.
const NEARLY_FULL: f64 = 0.8;

/// What a message may weigh by the program's definitions: a server's own 1 MiB without its frame. What is larger is refused
/// where it is enqueued.
const MESSAGE_BYTES: usize = 1_048_000;

/// Looks at the streams that take what the routes send.
///
/// # Errors
/// The server could not be asked.
pub(crate) async fn examine(connection: &Connection, routes: &[Route]) -> Result<Vec<Finding>> {
    let settings = connection.settings();
    let until = Instant::now() + settings.deadline;
    let up = connection.up(until).await?;
    if settings.allow_lossy {
        let message =
            "`allow_lossy` is set: core NATS keeps nothing, and says nothing of who heard";
        let advice = "leave `allow_lossy` out, and let a stream take the subjects";
        return Ok(vec![findings::coded(
            "acknowledgements",
            message,
            advice,
            Code::Unacknowledged,
        )]);
    }
    let until = Instant::now() + settings.deadline * DEADLINES;
    // Whoever does not tell keeps nobody from telling the rest.
    let (forcing, untold) =
        monitor::ask(&settings.monitors()?, Instant::now() + settings.deadline).await;
    match timeout_at(until, ask(&up, routes, &forcing)).await {
        Ok(found) => {
            let mut found = found.map_err(|error| settings.within(error))?;
            found.extend(untold);
            Ok(found)
        }
        Err(_) => {
            Err(Error::new(ErrorKind::Timeout, "examine").message("NATS did not answer in time"))
        }
    }
}

async fn ask(up: &Up, routes: &[Route], forcing: &[Forcing]) -> Result<Vec<Finding>> {
    let (mut found, mut streams) = (Vec::new(), BTreeSet::new());
    let account = answer(up, "INFO", &serde_json::Value::Null).await?;
    let elsewhere = domain::of_account(up, &account);
    let elsewhere = elsewhere.as_deref().map(domain::advice).unwrap_or_default();
    let sending: Vec<&Route> = routes.iter().filter(|route| !route.drop).collect();
    let (spread, plain): (Vec<&Route>, Vec<&Route>) =
        sending.iter().partition(|route| route.topic.partitions().is_some());
    let topics: BTreeSet<String> = spread.iter().map(|route| route.topic.to_string()).collect();
    for topic in topics {
        let of_topic = |route: &&&Route| route.topic.to_string() == topic;
        let Some(route) = spread.iter().find(of_topic) else { continue };
        streams.extend(examine_partitions(up, &route.topic, &elsewhere, &mut found).await?);
    }
    let subjects: BTreeSet<String> =
        plain.iter().map(|route| filter(route.topic.prefix())).collect();
    for subject in subjects {
        let names = taking(up, &subject).await?;
        if names.is_empty() {
            found.push(findings::critical(
                "subjects",
                format!("no stream takes the subject {subject}: its events wait"),
                format!(
                    "nats stream add NAME --subjects '{subject}', or correct the route's topic{elsewhere}"
                ),
                Code::Unroutable,
            ));
        }
        streams.extend(names);
    }
    let horizon = sending.iter().map(|route| route.retry.span()).max().unwrap_or_default();
    let server = up.client.server_info();
    found.extend(of_server(server.max_payload));
    let unforced =
        monitor::unforced(forcing).unwrap_or_else(|| unforced(&server.version).to_owned());
    let (mut replicas, mut copies) = (0, usize::MAX);
    for name in streams.iter().take(STREAMS_MAX) {
        let stream = up.jetstream.get_stream(name).await;
        let stream = stream.map_err(|error| silent(up, &format!("STREAM.INFO.{name}"), &error))?;
        let info = stream.cached_info();
        replicas = replicas.max(info.config.num_replicas);
        copies = copies.min(info.config.num_replicas);
        found.extend(of_stream(info, horizon, &unforced));
        found.extend(of_writing(up, name).await?);
    }
    found.extend(of_version(&server.version, replicas));
    found.extend(monitor::judge(forcing, if replicas == 0 { 0 } else { copies }));
    found.extend(of_account(&account));
    Ok(found)
}

/// The subjects that a template may render: what it begins with, and whatever the fields make of the rest.
pub(crate) fn filter((prefix, open): (String, bool)) -> String {
    match (open, prefix.rsplit_once('.')) {
        (false, _) => prefix,
        (true, Some((words, _))) => format!("{words}.>"),
        (true, None) => ">".to_owned(),
    }
}

/// The names of the streams that take some of these subjects.
pub(crate) async fn taking(up: &Up, subject: &str) -> Result<Vec<String>> {
    let question = serde_json::json!({ "subject": subject });
    let answer = answer(up, "STREAM.NAMES", &question).await?;
    let names = answer["streams"].as_array().into_iter().flatten();
    Ok(names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

/// An answer as it comes: servers differ in what they leave out.
pub(crate) async fn answer(
    up: &Up,
    what: &str,
    question: &serde_json::Value,
) -> Result<serde_json::Value> {
    let answer = up.jetstream.request(what.to_owned(), question).await;
    let answer: serde_json::Value = answer.map_err(|error| silent(up, what, &error))?;
    match answer["error"]["description"].as_str() {
        Some(said) => Err(silent(up, what, &said)),
        None => Ok(answer),
    }
}

/// A question that a user may not publish is not answered at all, and one whose answer they may not hear neither.
fn silent(up: &Up, what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, "examine").message(format!(
        "the server does not say how its streams are set: {error}; it has to have JetStream, and to let this user \
         publish to `{}.{what}` and subscribe to `_INBOX.>`",
        up.api
    ))
}

/// What a stream's settings mean for events that are tried for so long.
fn of_stream(info: &Info, horizon: Duration, unforced: &str) -> Vec<Finding> {
    let config = &info.config;
    let subject = format!("stream {}", config.name);
    let mut found = Vec::new();
    of_copies(config, &subject, unforced, &mut found);
    of_keeping(info, &subject, horizon, &mut found);
    if config.no_ack {
        found.push(findings::critical(
            &subject,
            "it acknowledges nothing, so no event ever counts as published",
            "set no_ack to false",
            Code::Unacknowledged,
        ));
    }
    if config.duplicate_window < horizon {
        found.push(findings::coded(
            &subject,
            format!(
                "it remembers ids for {:?}, and an event may be sent again for {horizon:?}",
                config.duplicate_window
            ),
            format!("nats stream edit {} --dupe-window {}s", config.name, seconds(horizon)),
            Code::DuplicatesKept,
        ));
    }
    let used = [
        ("bytes", share(info.state.bytes, config.max_bytes)),
        ("messages", share(info.state.messages, config.max_messages)),
    ];
    for (what, share) in used {
        if config.discard == DiscardPolicy::New && share >= NEARLY_FULL {
            let message = format!("{:.0} % of its limit of {what} is used", share * 100.0);
            let advice = "raise its limit, or let consumers catch up and purge";
            found.push(findings::coded(&subject, message, advice, Code::NearlyFull));
        }
    }
    let taken = usize::try_from(config.max_message_size).ok().filter(|taken| *taken > 0);
    if let Some(taken) = taken.filter(|taken| *taken < MESSAGE_BYTES) {
        let advice = format!(
            "nats stream edit {} --max-msg-size=-1, or enqueue nothing larger",
            config.name
        );
        found.push(small(&subject, taken, &advice));
    }
    if found.is_empty() {
        let message = format!(
            "on disk, {} replicas, and it refuses what it cannot keep",
            config.num_replicas
        );
        found.push(findings::good(&subject, message));
    }
    found
}

/// Whether a stream answers before it has written, which servers since 2.12 can be told. The client does not read that setting.
async fn of_writing(up: &Up, stream: &str) -> Result<Option<Finding>> {
    let info = answer(up, &format!("STREAM.INFO.{stream}"), &serde_json::Value::Null).await?;
    Ok((info["config"]["persist_mode"] == "async").then(|| {
        findings::critical(
            &format!("stream {stream}"),
            "it acknowledges before it has written: a crash of its server loses what was acknowledged",
            "make it anew without persist_mode async: that cannot be changed",
            Code::CopiesFew,
        )
    }))
}

/// What the server takes, whatever its streams would.
fn of_server(max_payload: usize) -> Option<Finding> {
    let advice = "set max_payload of every server to 1048576, or enqueue nothing larger";
    (max_payload < MESSAGE_BYTES).then(|| small("server", max_payload, advice))
}

/// What is known of a server's version, where a stream has so many replicas.
fn of_version(version: &str, replicas: usize) -> Option<Finding> {
    (replicas > 1 && is_before_2_10(version)).then(|| {
        let message = format!(
            "it is NATS {version}: beside leaders that stood still, clusters of this age lost messages that they had \
             acknowledged"
        );
        let advice = "bring all servers of the cluster up to date, one by one";
        findings::coded("server", message, advice, Code::ServerOutdated)
    })
}

fn is_before_2_10(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) < (2, 10),
        _ => false,
    }
}

fn small(subject: &str, taken: usize, advice: &str) -> Finding {
    let message = format!(
        "it takes messages of {taken} bytes, and an event's may have {MESSAGE_BYTES}: a larger one becomes a dead \
         letter"
    );
    findings::coded(subject, message, advice, Code::LimitLow)
}

/// How many copies there are, and on what.
fn of_copies(config: &Config, subject: &str, unforced: &str, found: &mut Vec<Finding>) {
    if config.storage == StorageType::Memory {
        found.push(findings::critical(
            subject,
            "it is kept in memory: a restart of its servers loses what was acknowledged",
            "make it anew with --storage file: the kind of storage cannot be changed",
            Code::CopiesFew,
        ));
    }
    if config.num_replicas < 2 {
        let message = format!(
            "it has one replica: a lost disk loses what was acknowledged, and a power cut what was not \
             forced to it yet, {unforced}"
        );
        let advice = format!("nats stream edit {} --replicas 3", config.name);
        found.push(findings::coded(subject, message, advice, Code::CopiesFew));
    }
}

/// For how long a server of this version leaves its files unforced. What it was told, it does not tell us.
fn unforced(version: &str) -> &'static str {
    if is_before_2_10(version) {
        "a minute, which servers before 2.10 cannot change"
    } else {
        "two minutes unless the server's sync_interval says otherwise, which `monitoring` would tell"
    }
}

/// Under which circumstances it lets go of what nobody read.
fn of_keeping(info: &Info, subject: &str, horizon: Duration, found: &mut Vec<Finding>) {
    let config = &info.config;
    let limited =
        config.max_bytes > 0 || config.max_messages > 0 || config.max_messages_per_subject > 0;
    if config.discard == DiscardPolicy::Old && limited {
        found.push(findings::coded(
            subject,
            "when it is full it drops the oldest messages, read or not",
            format!(
                "nats stream edit {} --discard new: then events wait in the outbox",
                config.name
            ),
            Code::KeptTooShort,
        ));
    }
    if !config.max_age.is_zero() && config.max_age < horizon {
        found.push(findings::critical(
            subject,
            format!(
                "it drops messages after {:?}, and an event may be tried for {horizon:?}",
                config.max_age
            ),
            format!("nats stream edit {} --max-age 7d, or longer", config.name),
            Code::KeptTooShort,
        ));
    }
    if config.retention == RetentionPolicy::Interest && info.state.consumer_count == 0 {
        found.push(findings::critical(
            subject,
            "it keeps only what a consumer waits for, and there is none: what comes is dropped",
            "make the consumers first, or set its retention to limits",
            Code::KeptTooShort,
        ));
    }
}

/// What the account may still store.
fn of_account(account: &serde_json::Value) -> Vec<Finding> {
    let used = [("storage", "max_storage"), ("memory", "max_memory")].map(|(what, limit)| {
        let used = account[what].as_u64().unwrap_or_default();
        (what, share(used, account["limits"][limit].as_i64().unwrap_or(-1)))
    });
    let near = used.into_iter().filter(|(_, share)| *share >= NEARLY_FULL);
    near.map(|(what, share)| {
        let message = format!("{:.0} % of the account's {what} is used", share * 100.0);
        findings::coded(
            "account",
            message,
            "raise the account's limit, or purge streams",
            Code::NearlyFull,
        )
    })
    .collect()
}

/// How much of a limit is used; nothing, if there is no limit.
#[expect(clippy::cast_precision_loss, reason = "a share in percent")]
fn share(used: u64, limit: i64) -> f64 {
    if limit <= 0 { 0.0 } else { used as f64 / limit as f64 }
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R125: and what is known of them.
    #[test]
    fn old_servers_are_known_by_their_version() {
        for old in ["2.9.10", "2.8.4", "2.9"] {
            assert!(unforced(old).contains("cannot change"), "{old}");
            let finding = of_version(old, 3).unwrap();
            assert_eq!(finding.code, Some(Code::ServerOutdated));
            assert_eq!(of_version(old, 1), None, "nobody is elected");
        }
        for new in ["2.10.0", "2.15.2", "3.0.0", "", "dev"] {
            assert!(unforced(new).contains("sync_interval"), "{new}");
            assert_eq!(of_version(new, 3), None, "{new}");
        }
    }
}
