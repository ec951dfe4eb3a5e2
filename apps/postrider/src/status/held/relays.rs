//! Of relays: whether one is missed, what keeps it out, and what it says itself.

use std::collections::HashSet;
use std::path::Path;

use postrider_core::operate::{Overview, RelayView};
use postrider_core::{Code, Destination, Hindrance};

use crate::shape::{Blocker, words};
use crate::terminal::count;

fn work(overview: &Overview) -> u64 {
    // Where there is no destination yet, the first one gets all of it.
    let unread = if overview.destinations.is_empty() { overview.kept } else { 0 };
    unread
        + overview.requests
        + overview
            .destinations
            .iter()
            .map(|view| view.pending + view.waiting.total() - view.waiting.dead)
            .sum::<u64>()
}

/// How a relay is started on this store.
///
/// `--to` is named only where no destination is: it would write one of its own into a store that a
/// configuration is for, and everything would go there.
pub(crate) fn start_relay(overview: &Overview, config: Option<&Path>) -> String {
    let known = overview.destinations.iter().any(|view| view.id.as_str() != Destination::UNROUTED);
    match config {
        Some(path) => format!(
            "start it: systemctl start postrider, or postrider relay --config {}",
            path.display()
        ),
        None if known => {
            "start it as it was before: systemctl start postrider, or postrider relay \
                          --config FILE"
                .to_owned()
        }
        None => "start one: postrider relay --config FILE, or --store URL --to URL".to_owned(),
    }
}

/// Whether a relay is missed, and where one serves something else.
pub(super) fn relays(overview: &Overview, config: Option<&Path>, found: &mut Vec<Blocker>) {
    if overview.copy {
        // A relay that runs here is refused, so none counts as alive: to start one more is of no use.
        found.push(copied(config));
    } else if overview.relays.is_empty() {
        found.push(Blocker {
            kind: "no_relay",
            // Without anything to do, none is missed.
            critical: work(overview) > 0,
            message: "no relay is alive".to_owned(),
            // One that the store refuses is not listed either.
            advice: format!(
                "{}; where one runs and is not listed, its log says why",
                start_relay(overview, config)
            ),
        });
    }
    if overview.destinations.is_empty() && overview.kept > 0 && !overview.relays.is_empty() {
        found.push(Blocker {
            kind: "no_destination",
            critical: true,
            message: format!(
                "no destination is defined, and nobody reads the {} events of the outbox",
                count(overview.kept)
            ),
            advice: "start the relay anew, or: postrider destinations apply --config FILE"
                .to_owned(),
        });
    }
    let outdated = overview.relays.iter().filter(|relay| !relay.current);
    for relay in outdated {
        found.push(Blocker {
            kind: "definitions",
            critical: overview.relays.iter().all(|relay| !relay.current),
            message: format!("{} has other definitions than the store", relay.owner),
            advice: "restart it with the current ones, or bring the store's to its configuration: postrider destinations \
                     apply --config FILE; they serve what they agree on"
                .to_owned(),
        });
    }
}

fn copied(config: Option<&Path>) -> Blocker {
    let config = config.map_or_else(String::new, |path| format!("--config {} ", path.display()));
    Blocker {
        kind: "copy",
        critical: true,
        message: format!(
            "this is not the one that published last, but a copy or a restored backup: no relay publishes from it [{}]",
            Code::StoreMoved
        ),
        advice: format!(
            "if it takes that one's place, and no relay publishes from there: postrider adopt {config}--reason '…'"
        ),
    }
}

/// What relays say of themselves. Whether it is critical shows in what stands because of it.
pub(super) fn hindrances(overview: &Overview, found: &mut Vec<Blocker>) {
    let mut told = HashSet::new();
    for (relay, hindrance) in told_by(overview) {
        let message = words(hindrance);
        if told.insert(message.clone()) {
            found.push(Blocker {
                kind: "relay_hindered",
                critical: false,
                message,
                advice: format!("so says {}; it goes on by itself when that is over", relay.owner),
            });
        }
    }
}

pub(super) fn told_by(overview: &Overview) -> impl Iterator<Item = (&RelayView, &Hindrance)> {
    overview.relays.iter().flat_map(|relay| relay.hindrances.iter().map(move |it| (relay, it)))
}
