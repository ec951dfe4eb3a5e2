//! Findings of an examination: how they are made, and those that every store tells from its overview: who
//! carries events, what keeps them, and since when.
//!
//! Invariant: each names what to do, as a command where there is one, and each that is not good has a code.

use std::time::Duration;

use super::{DestinationView, Finding, Level, Overview};
use crate::{Code, DestinationState, Error, Timestamp};

/// One that is as it should be.
pub fn good(subject: &str, message: impl Into<String>) -> Finding {
    let (subject, message) = (subject.to_owned(), message.into());
    Finding { level: Level::Good, subject, message, advice: None, code: None }
}

/// One that a person should know of.
pub fn coded(
    subject: &str,
    message: impl Into<String>,
    advice: impl Into<String>,
    code: Code,
) -> Finding {
    let (advice, code) = (Some(advice.into()), Some(code));
    Finding { level: Level::Warning, advice, code, ..good(subject, message) }
}

/// One that keeps events from flowing, or loses them. A broker that is not of this project has no code of its
/// own: it says [`Code::BrokerUnfit`].
pub fn critical(
    subject: &str,
    message: impl Into<String>,
    advice: impl Into<String>,
    code: Code,
) -> Finding {
    Finding { level: Level::Critical, ..coded(subject, message, advice, code) }
}

/// An examination that failed, with what to do about its error.
pub fn unexamined(subject: &str, error: &Error) -> Finding {
    let code = error.operator_code().unwrap_or(Code::Unexamined);
    coded(subject, format!("could not be examined: {error}"), code.advice(), code)
}

/// Names for a sentence, a few of them.
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

/// What the flow of events looks like, `now` by the caller's clock. `option` is how the command line names the
/// store: `--store …`.
pub fn flow(overview: &Overview, now: Timestamp, option: &str) -> Vec<Finding> {
    let patient = &Patient { overview, now, option };
    vec![
        clock(patient),
        relay(patient),
        definitions(patient),
        destinations(patient),
        partitions(patient),
        dead_letters(patient),
        endpoints(patient),
        requests(patient),
        takeovers(patient),
    ]
}

/// What the examinations look at.
struct Patient<'a> {
    overview: &'a Overview,
    now: Timestamp,
    option: &'a str,
}

/// Clocks apart by more than this make times hard to compare.
const SKEW_WARNING: Duration = Duration::from_secs(5);

/// Clocks apart by more than this make scheduled events early or late for everybody to see.
const SKEW_CRITICAL: Duration = Duration::from_secs(60);

/// An owner that died so often in a row at one place is killed by something there.
const TAKEOVERS_MAX: u32 = 2;

/// A request that nobody carries out for as long is one that nobody will.
const REQUESTS_MAX: u64 = 100;

fn clock(patient: &Patient<'_>) -> Finding {
    let (ours, theirs) = (patient.now, patient.overview.now);
    let skew = ours.since(theirs).max(theirs.since(ours));
    let message = format!("the clocks of the store and of this program are {skew:.1?} apart");
    let advice = "set both machines' clocks by NTP: scheduled events are due by the store's";
    match skew {
        skew if skew > SKEW_CRITICAL => critical("clock", message, advice, Code::ClocksApart),
        skew if skew > SKEW_WARNING => coded("clock", message, advice, Code::ClocksApart),
        _ => good("clock", message),
    }
}

/// Whether something of a destination could flow and does not need a person first.
fn has_backlog(view: &DestinationView) -> bool {
    view.state == DestinationState::Active
        && (view.pending > 0 || view.waiting.retrying + view.waiting.held > 0)
}

fn relay(patient: &Patient<'_>) -> Finding {
    let overview = patient.overview;
    if let Some(relay) = overview.relays.first() {
        let message = match overview.relays.len() {
            1 => format!("{} is alive", relay.owner),
            many => format!("{many} relays are alive"),
        };
        return good("relay", message);
    }
    let behind: Vec<String> = overview
        .destinations
        .iter()
        .filter(|view| has_backlog(view))
        .map(|view| format!("{} ({} pending)", view.id, view.pending))
        .collect();
    let never_run = overview.destinations.is_empty() && overview.enqueued > 0;
    if behind.is_empty() && !never_run {
        return good("relay", "no relay is alive, and nothing waits for one");
    }
    let what = match never_run {
        true => format!("{} events were never read", overview.enqueued),
        false => format!("events wait at {}", listed(&behind)),
    };
    if overview.copy {
        return critical(
            "relay",
            format!("no relay publishes from a copy, and {what}"),
            "one that runs here is refused; start it anew when this is adopted",
            Code::StoreMoved,
        );
    }
    critical(
        "relay",
        format!("no relay is alive, and {what}"),
        start_relay(patient),
        Code::RelayAbsent,
    )
}

/// How a relay is started: by an address alone only where the store has no destination yet, since any other would not start.
fn start_relay(patient: &Patient<'_>) -> String {
    match patient.overview.destinations.is_empty() {
        true => format!("postrider relay {} --to URL, or --config FILE", patient.option),
        false => {
            "start it as it was before: systemctl start postrider, or postrider relay --config FILE"
                .to_owned()
        }
    }
}

fn definitions(patient: &Patient<'_>) -> Finding {
    let outdated: Vec<String> = patient
        .overview
        .relays
        .iter()
        .filter(|relay| !relay.current)
        .map(|relay| relay.owner.to_string())
        .collect();
    if outdated.is_empty() {
        return good("definitions", "every relay has the store's definitions");
    }
    coded(
        "definitions",
        format!("{} has other definitions of destinations than the store", listed(&outdated)),
        Code::DefinitionOutdated.advice(),
        Code::DefinitionOutdated,
    )
}

fn destinations(patient: &Patient<'_>) -> Finding {
    let paused: Vec<&DestinationView> = patient
        .overview
        .destinations
        .iter()
        .filter(|view| view.state == DestinationState::Paused && view.pending > 0)
        .collect();
    let Some(first) = paused.first() else {
        return good("pauses", "no destination is paused with events behind it");
    };
    let names: Vec<String> =
        paused.iter().map(|view| format!("{} ({} pending)", view.id, view.pending)).collect();
    coded(
        "pauses",
        format!("paused: {}", listed(&names)),
        format!("postrider destinations resume {} {}", first.id, patient.option),
        Code::FlowPaused,
    )
}

fn partitions(patient: &Patient<'_>) -> Finding {
    let overview = patient.overview;
    let behind = overview.destinations.iter().any(|view| view.pending > 0);
    let paused = overview.partitions.iter().find(|partition| partition.paused);
    match paused.filter(|_| behind) {
        None => good("paused partitions", "no partition is paused with events in it"),
        Some(partition) => coded(
            "paused partitions",
            format!("partition {} is paused, and events wait in it", partition.partition),
            format!("postrider partitions resume {} {}", partition.partition, patient.option),
            Code::FlowPaused,
        ),
    }
}

fn dead_letters(patient: &Patient<'_>) -> Finding {
    let dead: Vec<String> = patient
        .overview
        .destinations
        .iter()
        .filter(|view| view.waiting.dead > 0)
        .map(|view| match view.waiting.parked {
            0 => format!("{} at {}", view.waiting.dead, view.id),
            parked => format!("{} at {} ({parked} parked)", view.waiting.dead, view.id),
        })
        .collect();
    if dead.is_empty() {
        return good("dead letters", "there are none");
    }
    coded(
        "dead letters",
        listed(&dead),
        format!("postrider dead ls {}; then redrive or discard them", patient.option),
        Code::DeadLetters,
    )
}

fn endpoints(patient: &Patient<'_>) -> Finding {
    let views = patient.overview.destinations.iter();
    let disabled: Vec<(String, &String)> = views
        .flat_map(|view| view.disabled.iter().map(|topic| (view.id.to_string(), topic)))
        .collect();
    let Some((destination, topic)) = disabled.first() else {
        return good("disabled endpoints", "every endpoint is in service");
    };
    let names: Vec<String> =
        disabled.iter().map(|(destination, topic)| format!("{topic} of {destination}")).collect();
    coded(
        "disabled endpoints",
        format!("out of service: {}", listed(&names)),
        format!(
            "when it takes events again: postrider destinations enable {destination} '{topic}' {}",
            patient.option
        ),
        Code::EndpointDisabled,
    )
}

fn requests(patient: &Patient<'_>) -> Finding {
    let (open, relays) = (patient.overview.requests, patient.overview.relays.len());
    if open == 0 || relays > 0 && open <= REQUESTS_MAX {
        return good("requests", format!("{open} requests are open"));
    }
    coded(
        "requests",
        format!("{open} requests are open, with {relays} relays to carry them out"),
        start_relay(patient),
        Code::NoRelay,
    )
}

fn takeovers(patient: &Patient<'_>) -> Finding {
    let worst = patient.overview.partitions.iter().map(|p| p.takeovers).max().unwrap_or_default();
    if worst < TAKEOVERS_MAX {
        return good("deaths", "relays do not die at their work");
    }
    coded(
        "deaths",
        format!("{worst} relays in a row died with nothing settled between"),
        "look at the end of their logs, and at the memory they may use",
        Code::RelaysDie,
    )
}

#[cfg(test)]
mod tests;
