//! Telling: what a relay does and hears, in words; an event has one name wherever it is told of.
//!
//! What is asked again and again while nothing happens (pages, heartbeats) is not told: its answer is,
//! when it brings something.

use postrider_core::waiting::{SettlementPart, WaitingChange};
use postrider_relay::{Command, Notice, Subject};

use crate::app::short;

/// What a relay has the shell do, where that is worth a line.
pub(crate) fn command(command: &Command) -> Option<String> {
    Some(match command {
        Command::Publish { destination, batch, .. } => {
            let events: Vec<String> = batch.iter().map(|out| short(out.event.id)).collect();
            let topic = batch.first().map(|out| out.topic.to_string()).unwrap_or_default();
            format!("sends {} to {destination} {topic}", events.join(" "))
        }
        Command::Load(lease, destination) => {
            format!("loads {destination} of {}, token {}", lease.partition, lease.token)
        }
        Command::Release(leases) => {
            let leases = leases.iter().map(|lease| format!("{}/{}", lease.partition, lease.token));
            format!("lets go of {}", leases.collect::<Vec<_>>().join(" "))
        }
        Command::Define => "reads the destinations".to_owned(),
        Command::Head(lease) => format!("asks for the end of {}", lease.partition),
        _ => return None,
    })
}

fn event(subject: &Subject) -> String {
    let (id, destination) = (short(subject.row.id), &subject.destination);
    match &subject.topic {
        Some(topic) => format!("{id} at {destination} {topic}"),
        None => format!("{id} at {destination}"),
    }
}

/// What a relay says of itself.
pub(crate) fn notice(notice: &Notice) -> String {
    match notice {
        Notice::Delivered { subject, attempt, .. } => {
            format!("hears that {} is taken, attempt {attempt}", event(subject))
        }
        Notice::AttemptFailed { subject, attempt, detail, delay } => match delay {
            Some(delay) => {
                format!(
                    "counts attempt {attempt} of {}: {detail}; again in {delay:?}",
                    event(subject)
                )
            }
            None => format!("counts attempt {attempt} of {}: {detail}; no other", event(subject)),
        },
        Notice::DeadLetter { subject, reason, attempts, holds_key, .. } => {
            let key = if *holds_key { "and holds its key" } else { "and lets its key flow" };
            format!("gives {} up after {attempts}, {reason}, {key}", event(subject))
        }
        Notice::Parked { subject } => format!("lets {} wait behind its key", event(subject)),
        Notice::RangeOpened { subject, waiting } => {
            format!("lets a range stand for {} and what follows it: {waiting} wait", event(subject))
        }
        Notice::EndpointFailed { destination, topic, failures, detail, pause, .. } => {
            format!("blames {destination} {topic} ({failures} in a row): {detail}; waits {pause:?}")
        }
        Notice::EndpointRecovered { destination, topic, away, .. } => {
            format!("finds {destination} {topic} well after {away:?}")
        }
        Notice::LeaseTaken { partition, token, takeovers } => {
            format!("has {partition}, token {token}, after {takeovers} owners who died")
        }
        Notice::LeaseReleased { partition, token } => {
            format!("gives {partition} back, token {token}")
        }
        Notice::LeaseLost { partition, token, why } => {
            format!("has lost {partition}, token {token}: {}", why.as_str())
        }
        Notice::Fenced { partition, token, detail } => {
            format!("is refused in {partition}, token {token}: {detail}")
        }
        Notice::Settled { partition, rows, waiting } => {
            format!("knows it saved in {partition}: {rows} passed, {waiting} waiting")
        }
        Notice::StoreTrouble { operation, detail, .. } => {
            format!("cannot {operation}: {detail}")
        }
        Notice::StoreRecovered { operation } => format!("can {operation} again"),
        other => format!("{other:?}"),
    }
}

/// What a settlement is to write for a destination.
pub(crate) fn part(part: &SettlementPart, partition: impl std::fmt::Display) -> String {
    let mut told = format!("settles {} in {partition}:", part.destination);
    if let Some((from, to)) = &part.cursor {
        let passed: Vec<String> =
            part.passed.iter().map(|(row, how)| format!("{} {how:?}", short(row.id))).collect();
        told.push_str(&format!(" cursor {from:?} to {to:?} past {};", passed.join(", ")));
    }
    for new in &part.waiting {
        told.push_str(&format!(" {} enters waiting, {:?};", short(new.row.id), new.placement));
    }
    for changed in &part.changes {
        let id = short(changed.row().id);
        let what = match changed {
            WaitingChange::Delivered(_) => "is delivered".to_owned(),
            WaitingChange::Erased(_) => "was erased".to_owned(),
            WaitingChange::Retry { delay, attempted, .. } => {
                format!("comes again in {delay:?} after {}", attempted.attempts)
            }
            WaitingChange::Dead { attempted, holds_key, .. } => {
                format!("is dead, {}, holds its key: {holds_key}", attempted.reason)
            }
            WaitingChange::Disabled { endpoint, .. } => format!("waits for {endpoint}"),
            WaitingChange::Postpone { delay, .. } => format!("is put off by {delay:?}"),
        };
        told.push_str(&format!(" {id} {what};"));
    }
    told
}
