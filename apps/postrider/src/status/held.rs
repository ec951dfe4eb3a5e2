//! What holds events up: a reading of the store in, causes with advice out.
//!
//! Invariant (INV-8): where a backlog does not move, something stands here that names who holds it.

mod relays;

use std::path::Path;
use std::time::Duration;

use postrider_core::operate::{DestinationView, Overview};
use postrider_core::{Destination, DestinationId, DestinationState, Hindrance, Timestamp};
use postrider_relay::SAVES_APART_MAX;

use crate::age::short;
use crate::shape::{Blocker, Verdict};
pub(crate) use crate::status::held::relays::start_relay;
use crate::status::held::relays::{hindrances, relays, told_by};
use crate::terminal::count;

/// A cursor that was saved so lately moves. A relay saves at least as often while events flow, also where saves are dear.
const SAVED_LATELY: Duration = SAVES_APART_MAX.saturating_add(Duration::from_secs(5));

/// A pending event that nothing was settled before for so long is told of, however old it may be.
const STANDS_AFTER: Duration = Duration::from_secs(60);

/// What counts as unhealthy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A pending event may be so old while nothing moves.
    pub(crate) age_max: Duration,
    /// Whatever is listed counts.
    pub(crate) strict: bool,
}

/// How many dead letters hold their key: what the overview does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeadKeys {
    /// Keys, as far as they were counted.
    pub(crate) keys: u64,
    /// Whether there are more.
    pub(crate) at_least: bool,
}

/// A destination, as two readings show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) view: &'a DestinationView,
    /// Whether the oldest of what is pending was settled between two readings, or lately; `None` where there was only
    /// one.
    pub(crate) moved: Option<bool>,
    pub(crate) dead_keys: DeadKeys,
}

/// Whether a destination moves. What passes elsewhere says nothing of what stands: only the oldest does.
pub(crate) fn moved(
    now: Timestamp,
    view: &DestinationView,
    before: Option<&DestinationView>,
) -> Option<bool> {
    if view.saved_at.is_some_and(|at| now.since(at) <= SAVED_LATELY) {
        return Some(true);
    }
    before.map(|before| match view.pending_since {
        Some(oldest) => before.pending_since != Some(oldest),
        None => before.settled.count != view.settled.count,
    })
}

/// Everything that holds something up, most urgent first.
pub(crate) fn held_up_by(
    overview: &Overview,
    destinations: &[Seen<'_>],
    limits: Limits,
    config: Option<&Path>,
) -> Vec<Blocker> {
    let mut found = Vec::new();
    relays(overview, config, &mut found);
    numbers(overview, &mut found);
    partitions(overview, &mut found);
    for seen in destinations {
        paused(seen, &mut found);
        endpoints(overview, seen, limits, &mut found);
        dead_letters(seen, limits, &mut found);
    }
    requests(overview, &mut found);
    // Last, since there may be many, and those above say what to do.
    hindrances(overview, &mut found);
    // Whatever stops a destination stops `unrouted` as well: it is named only where it is alone.
    let (built_in, own): (Vec<_>, Vec<_>) =
        destinations.iter().partition(|seen| seen.view.id.as_str() == Destination::UNROUTED);
    for seen in own {
        unexplained(overview, seen, limits, &mut found);
    }
    if found.iter().all(|blocker| blocker.kind != "unknown") {
        for seen in built_in {
            unexplained(overview, seen, limits, &mut found);
        }
    }
    found.sort_by_key(|blocker| !blocker.critical);
    found
}

/// What the exit code says.
pub(crate) fn verdict(blockers: &[Blocker], strict: bool) -> Verdict {
    let counts = |blocker: &Blocker| strict || blocker.critical;
    if blockers.iter().any(counts) { Verdict::Unhealthy } else { Verdict::Healthy }
}

/// A store that has more events than numbers were given was restored in part, or its sequence was set back. What gets those
/// numbers anew is not pending by the cursors.
fn numbers(overview: &Overview, found: &mut Vec<Blocker>) {
    if overview.kept > overview.enqueued {
        found.push(Blocker {
            kind: "numbers",
            critical: true,
            message: format!(
                "{} numbers were given, and the outbox has {} already: they were set back, and no relay reads what \
                 is new [PR-1006]",
                count(overview.enqueued),
                count(overview.kept)
            ),
            advice: "stop the relays, then: postrider repair sequence".to_owned(),
        });
    }
}

fn partitions(overview: &Overview, found: &mut Vec<Blocker>) {
    for view in &overview.partitions {
        let number = view.partition;
        if view.paused {
            found.push(Blocker {
                kind: "partition_paused",
                critical: true,
                message: format!("partition {number} is paused"),
                advice: format!("postrider partitions resume {number}"),
            });
        }
        let Some(owner) = &view.owner else { continue };
        let alive = overview.relays.iter().any(|relay| relay.owner == *owner);
        if !alive {
            let host = view.host.as_deref().unwrap_or("an unknown host");
            let left = short(view.expires_in.unwrap_or_default());
            found.push(Blocker {
                kind: "lease",
                critical: overview.relays.is_empty(),
                message: format!(
                    "partition {number} is leased to {owner} on {host}, which is silent"
                ),
                advice: format!("its lease ends in {left}; then another relay takes over"),
            });
        }
    }
}

fn paused(seen: &Seen<'_>, found: &mut Vec<Blocker>) {
    let view = seen.view;
    if view.state == DestinationState::Paused {
        let waiting = view.pending + view.waiting.total() - view.waiting.dead;
        found.push(Blocker {
            kind: "destination_paused",
            critical: waiting > 0,
            message: format!(
                "{} is paused; {} events wait for it{}",
                view.id,
                count(waiting),
                and_uncounted(view)
            ),
            advice: format!("postrider destinations resume {}", view.id),
        });
    }
}

/// What waits and stands in no count: a range stands for it. To count it would read the outbox.
pub(crate) fn uncounted(ranges: u64) -> Option<String> {
    match ranges {
        0 => None,
        1 => Some("what 1 range stands for".to_owned()),
        several => Some(format!("what {} ranges stand for", count(several))),
    }
}

/// The same behind a count of one destination's.
fn and_uncounted(view: &DestinationView) -> String {
    uncounted(view.ranges).map_or_else(String::new, |rest| format!(", and {rest}"))
}

fn endpoints(overview: &Overview, seen: &Seen<'_>, limits: Limits, found: &mut Vec<Blocker>) {
    disabled(seen, found);
    retried(overview, seen, limits, found);
}

fn disabled(seen: &Seen<'_>, found: &mut Vec<Blocker>) {
    let view = seen.view;
    for endpoint in view.disabled.iter().take(3) {
        let more = match view.disabled.len() {
            0..=3 => String::new(),
            all => format!(" and {} more endpoints", all - 3),
        };
        found.push(Blocker {
            kind: "endpoint_disabled",
            critical: view.waiting.disabled > 0,
            message: format!(
                "endpoint {endpoint}{more} of {} is disabled; {} events wait",
                view.id,
                count(view.waiting.disabled)
            ),
            advice: format!("postrider destinations enable {} {endpoint}", view.id),
        });
        if !more.is_empty() {
            break;
        }
    }
}

fn retried(overview: &Overview, seen: &Seen<'_>, limits: Limits, found: &mut Vec<Blocker>) {
    let view = seen.view;
    let stuck = view.waiting.retrying + view.waiting.held;
    if stuck == 0 {
        return;
    }
    let top = view.errors.iter().find(|group| {
        !matches!(&*group.reason, "behind" | "gave_up" | "rejected" | "no_route" | "disabled")
    });
    let answer = top.map_or_else(String::new, |group| match &*group.detail {
        "" => format!(": {}", group.reason),
        detail => format!(": {detail}"),
    });
    let list = format!("postrider dead ls --status retrying,held --destination {}", view.id);
    let advice = view.retry_next.map_or_else(
        || list.clone(),
        |next| format!("tried again in {}; {list}", short(next.since(overview.now))),
    );
    // Events that wait for their endpoint wait as long as that takes: somebody is to hear of it.
    let down = view.errors.iter().any(|group| group.reason == "endpoint_down");
    let old = view.waiting_since.is_some_and(|at| overview.now.since(at) > limits.age_max);
    let noun = if stuck == 1 { "event is" } else { "events are" };
    found.push(Blocker {
        kind: "endpoint_down",
        critical: (seen.moved == Some(false) && view.waiting.held > 0)
            || (seen.moved != Some(true) && down && old),
        message: format!("{} {noun} retried at {}{answer}", count(stuck), view.id),
        advice,
    });
}

fn dead_letters(seen: &Seen<'_>, limits: Limits, found: &mut Vec<Blocker>) {
    let view = seen.view;
    if view.waiting.dead == 0 {
        return;
    }
    let keys = match seen.dead_keys {
        DeadKeys { keys: 0, .. } => String::new(),
        DeadKeys { keys, at_least } => {
            let least = if at_least { "at least " } else { "" };
            let noun = if keys == 1 { "key" } else { "keys" };
            let verb = if view.waiting.dead == 1 { "holds" } else { "hold" };
            let parked = match view.waiting.parked {
                1 => "1 event waits".to_owned(),
                parked => format!("{} events wait", count(parked)),
            };
            let rest = and_uncounted(view);
            format!(" {verb} {least}{} {noun}; {parked} behind{rest}", count(keys))
        }
    };
    let noun = if view.waiting.dead == 1 { "dead letter" } else { "dead letters" };
    found.push(Blocker {
        kind: "dead_letters",
        critical: limits.strict,
        message: format!("{} {noun} at {}{keys}", count(view.waiting.dead), view.id),
        advice: match view.id.as_str() {
            Destination::UNROUTED => {
                format!("postrider dead ls --destination {}; postrider explain PR-1202", view.id)
            }
            id => format!("postrider dead ls --destination {id}"),
        },
    });
}

fn requests(overview: &Overview, found: &mut Vec<Blocker>) {
    if overview.requests > 0 {
        let noun = if overview.requests == 1 { "request" } else { "requests" };
        found.push(Blocker {
            kind: "requests",
            critical: false,
            message: format!(
                "{} {noun} of operators not carried out yet",
                count(overview.requests)
            ),
            advice: "the owner of the partition does that; postrider audit says who asked"
                .to_owned(),
        });
    }
}

/// A backlog that does not move where nothing above says why: told soon, and critical once it is too old.
fn unexplained(overview: &Overview, seen: &Seen<'_>, limits: Limits, found: &mut Vec<Blocker>) {
    let view = seen.view;
    let Some(oldest) = view.pending_since else { return };
    let age = overview.now.since(oldest);
    if age <= limits.age_max.min(STANDS_AFTER) || seen.moved == Some(true) || view.pending == 0 {
        return;
    }
    let explained = found.iter().any(|blocker| {
        blocker.critical
            && matches!(
                blocker.kind,
                "copy" | "no_relay" | "lease" | "definitions" | "partition_paused"
            )
    }) || view.state == DestinationState::Paused;
    if explained {
        return;
    }
    let unrouted = if view.id.as_str() == Destination::UNROUTED {
        " It is served by a relay that serves every destination."
    } else {
        ""
    };
    found.push(Blocker {
        kind: "unknown",
        critical: age > limits.age_max,
        message: format!(
            "{}: the oldest of {} pending events is {} old, and nothing before it was settled",
            view.id,
            count(view.pending),
            short(age)
        ),
        advice: match told_by(overview).find(|(_, it)| concerns(it, &view.id)) {
            Some((_, hindrance)) => format!("its relay says: {}", hindrance.words),
            None => {
                format!("its relay names the cause: on standard error, and at /readyz.{unrouted}")
            }
        },
    });
}

/// The store's troubles are everybody's.
fn concerns(hindrance: &Hindrance, destination: &DestinationId) -> bool {
    hindrance.destination.as_ref().is_none_or(|of| of == destination)
}

#[cfg(test)]
mod tests;
