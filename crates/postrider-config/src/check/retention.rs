//! How long things are kept, against how long they are needed.

use std::time::Duration;

use postrider_core::DeadKeyPolicy;

use crate::config::Config;
use crate::duration::print;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

/// The longest time after which a broker may deliver a message again: what the cloud queues keep
/// messages and dead letters at most.
const REDELIVERY_HORIZON: Duration = Duration::from_secs(14 * 86_400);

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    if let Some(kept) = config.retention.outbox {
        examine_outbox(config, kept, reading);
    } else if config.retention.archive.is_some() {
        let paths = [at("archive"), at("outbox")];
        let message = "an archive is written before events are removed, and none ever is: \
                       without `outbox` they are kept for ever";
        let advice = "write outbox = \"7d\", or leave archive out";
        reading.contradict(&paths, Complaint::new(message, advice));
    }
    // A relay alone has no inbox; its default is nobody's mistake.
    if !config.consume.is_empty() || reading.is_given(&at("inbox")) {
        examine_inbox(config, reading);
    }
    if let Some(results) = config.retention.results {
        examine_results(results, config.retention.inbox, reading);
    }
}

fn at(name: &str) -> Path {
    Path::of("retention").key(name)
}

fn examine_outbox(config: &Config, kept: Duration, reading: &mut Reading) {
    let every = config.reconcile.every;
    if kept < every {
        let message = format!(
            "events are removed after {}, before a recount every {} has seen them",
            print(kept),
            print(every)
        );
        let advice = format!("write outbox = \"{}\" or more, or recount more often", print(every));
        let paths = [at("outbox"), Path::of("reconcile.every")];
        reading.contradict(&paths, Complaint::new(message, advice));
    }
    for (id, destination) in &config.destinations {
        for (index, route) in destination.routes.iter().enumerate() {
            // A route that halts tries for ever; its events stay, whatever the retention is.
            let ends = route.dead_key != DeadKeyPolicy::Halt && !route.drop;
            let span = route.retry.span_max();
            if !ends || kept >= span {
                continue;
            }
            let retry = Path::of("destinations").key(id.as_str());
            let retry = retry.key("routes").index(index).key("retry");
            let message = format!(
                "events are removed after {}, but may be retried for {} ({} attempts, up to {} \
                 apart)",
                print(kept),
                print(span),
                route.retry.attempts,
                print(route.retry.delay_max)
            );
            let advice =
                format!("write outbox = \"{}\" or more, or retry for a shorter time", print(span));
            let paths = [at("outbox"), retry.key("attempts"), retry.key("delay_max")];
            reading.contradict(&paths, Complaint::new(message, advice));
        }
    }
}

fn examine_inbox(config: &Config, reading: &mut Reading) {
    let kept = config.retention.inbox;
    if kept < REDELIVERY_HORIZON {
        let message = format!(
            "the inbox forgets after {}, but a broker may deliver again for {}: the second \
             delivery would have its effect again",
            print(kept),
            print(REDELIVERY_HORIZON)
        );
        let advice = format!("write inbox = \"{}\" or more", print(REDELIVERY_HORIZON));
        reading.contradict(&[at("inbox")], Complaint::new(message, advice));
    }
    if let Some(outbox) = config.retention.outbox.filter(|outbox| *outbox > kept) {
        let message = format!(
            "the inbox forgets after {}, but a replay may send again what is {} old",
            print(kept),
            print(outbox)
        );
        let advice =
            format!("write inbox = \"{}\" or more, or keep the outbox shorter", print(outbox));
        reading.contradict(&[at("inbox"), at("outbox")], Complaint::new(message, advice));
    }
}

fn examine_results(results: Duration, inbox: Duration, reading: &mut Reading) {
    if results <= inbox {
        return;
    }
    let message = format!(
        "results are kept for {}, but the inbox forgets after {}, and they go with its rows",
        print(results),
        print(inbox)
    );
    let advice = format!("write results = \"{}\" or less, or leave it out", print(inbox));
    reading.contradict(&[at("results"), at("inbox")], Complaint::new(message, advice));
}
