//! The flow: who carries events, what keeps them, and since when.

use std::time::Duration;

use postrider_core::operate::{DestinationView, Finding};
use postrider_core::{Code, DestinationState, Result};

use super::{Patient, critical, good, listed, warning};

/// Clocks apart by more than this make times hard to compare.
const SKEW_WARNING: Duration = Duration::from_secs(5);

/// Clocks apart by more than this make scheduled events early or late for everybody to see.
const SKEW_CRITICAL: Duration = Duration::from_secs(60);

/// An owner that died so often in a row at one place is killed by something there.
const TAKEOVERS_MAX: u32 = 2;

/// A request that nobody carries out for as long is one that nobody will.
const REQUESTS_MAX: u64 = 100;

pub(super) fn clock(patient: &Patient<'_>) -> Result<Finding> {
    let (ours, theirs) = (patient.now, patient.overview.now);
    let skew = ours.since(theirs).max(theirs.since(ours));
    let message = format!("the clocks of the store and of this program are {skew:.1?} apart");
    let advice = "set both machines' clocks by NTP: scheduled events are due by the store's";
    Ok(match skew {
        skew if skew > SKEW_CRITICAL => critical("clock", message, advice, None),
        skew if skew > SKEW_WARNING => warning("clock", message, Some(advice.to_owned())),
        _ => good("clock", message),
    })
}

/// Whether something of a destination could flow and does not need a person first.
fn has_backlog(view: &DestinationView) -> bool {
    view.state == DestinationState::Active
        && (view.pending > 0 || view.waiting.retrying + view.waiting.held > 0)
}

pub(super) fn relay(patient: &Patient<'_>) -> Result<Finding> {
    let overview = &patient.overview;
    if let Some(relay) = overview.relays.first() {
        let message = match overview.relays.len() {
            1 => format!("{} is alive", relay.owner),
            many => format!("{many} relays are alive"),
        };
        return Ok(good("relay", message));
    }
    let behind: Vec<String> = overview
        .destinations
        .iter()
        .filter(|view| has_backlog(view))
        .map(|view| format!("{} ({} pending)", view.id, view.pending))
        .collect();
    let never_run = overview.destinations.is_empty() && overview.enqueued > 0;
    if behind.is_empty() && !never_run {
        return Ok(good("relay", "no relay is alive, and nothing waits for one"));
    }
    let what = match never_run {
        true => format!("{} events were never read", overview.enqueued),
        false => format!("events wait at {}", listed(&behind)),
    };
    Ok(critical(
        "relay",
        format!("no relay is alive, and {what}"),
        format!("postrider relay {}", patient.option()),
        None,
    ))
}

pub(super) fn definitions(patient: &Patient<'_>) -> Result<Finding> {
    let outdated: Vec<String> = patient
        .overview
        .relays
        .iter()
        .filter(|relay| !relay.current)
        .map(|relay| relay.owner.to_string())
        .collect();
    if outdated.is_empty() {
        return Ok(good("definitions", "every relay has the store's definitions"));
    }
    let mut finding = warning(
        "definitions",
        format!("{} has other definitions of destinations than the store", listed(&outdated)),
        Some(Code::DefinitionOutdated.advice().to_owned()),
    );
    finding.code = Some(Code::DefinitionOutdated);
    Ok(finding)
}

pub(super) fn destinations(patient: &Patient<'_>) -> Result<Finding> {
    let paused: Vec<&DestinationView> = patient
        .overview
        .destinations
        .iter()
        .filter(|view| view.state == DestinationState::Paused && view.pending > 0)
        .collect();
    let Some(first) = paused.first() else {
        return Ok(good("pauses", "no destination is paused with events behind it"));
    };
    let names: Vec<String> =
        paused.iter().map(|view| format!("{} ({} pending)", view.id, view.pending)).collect();
    Ok(warning(
        "pauses",
        format!("paused: {}", listed(&names)),
        Some(format!("postrider destinations resume {} {}", first.id, patient.option())),
    ))
}

pub(super) fn partitions(patient: &Patient<'_>) -> Result<Finding> {
    let overview = &patient.overview;
    let behind = overview.destinations.iter().any(|view| view.pending > 0);
    let paused = overview.partitions.iter().find(|partition| partition.paused);
    match paused.filter(|_| behind) {
        None => Ok(good("paused partitions", "no partition is paused with events in it")),
        Some(partition) => Ok(warning(
            "paused partitions",
            format!("partition {} is paused, and events wait in it", partition.partition),
            Some(format!(
                "postrider partitions resume {} {}",
                partition.partition,
                patient.option()
            )),
        )),
    }
}

pub(super) fn dead_letters(patient: &Patient<'_>) -> Result<Finding> {
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
        return Ok(good("dead letters", "there are none"));
    }
    Ok(warning(
        "dead letters",
        listed(&dead),
        Some(format!("postrider dead ls {}; then redrive or discard them", patient.option())),
    ))
}

pub(super) fn endpoints(patient: &Patient<'_>) -> Result<Finding> {
    let views = patient.overview.destinations.iter();
    let disabled: Vec<(String, &String)> = views
        .flat_map(|view| view.disabled.iter().map(|topic| (view.id.to_string(), topic)))
        .collect();
    let Some((destination, topic)) = disabled.first() else {
        return Ok(good("disabled endpoints", "every endpoint is in service"));
    };
    let names: Vec<String> =
        disabled.iter().map(|(destination, topic)| format!("{topic} of {destination}")).collect();
    Ok(warning(
        "disabled endpoints",
        format!("out of service: {}", listed(&names)),
        Some(format!(
            "when it takes events again: postrider destinations enable {destination} '{topic}' {}",
            patient.option()
        )),
    ))
}

pub(super) fn requests(patient: &Patient<'_>) -> Result<Finding> {
    let (open, relays) = (patient.overview.requests, patient.overview.relays.len());
    if open == 0 || relays > 0 && open <= REQUESTS_MAX {
        return Ok(good("requests", format!("{open} requests are open")));
    }
    Ok(warning(
        "requests",
        format!("{open} requests are open, with {relays} relays to carry them out"),
        Some(format!("postrider relay {}", patient.option())),
    ))
}

pub(super) fn takeovers(patient: &Patient<'_>) -> Result<Finding> {
    let worst = patient.overview.partitions.iter().map(|p| p.takeovers).max().unwrap_or_default();
    if worst < TAKEOVERS_MAX {
        return Ok(good("deaths", "relays do not die at their work"));
    }
    Ok(warning(
        "deaths",
        format!("{worst} relays in a row died with nothing settled between"),
        Some("look at the end of their logs, and at the memory they may use".to_owned()),
    ))
}
