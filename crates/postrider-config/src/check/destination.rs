//! What goes with which kind of destination, and destinations that do the same twice.

use postrider_core::DestinationId;

use crate::choice::Kind;
use crate::config::Config;
use crate::destination::{DestinationConfig, RouteConfig};
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(destination: &DestinationConfig, at: &Path, reading: &mut Reading) {
    if !reading.is_sound(&[at.key("kind")]) {
        return;
    }
    let kind = destination.kind.word();
    let sections = [
        ("webhook", Kind::Webhook),
        ("endpoints", Kind::Webhook),
        ("kafka", Kind::Kafka),
        ("nats", Kind::Nats),
    ];
    for (name, owner) in sections {
        if destination.kind != owner && reading.is_given(&at.key(name)) {
            let owner = owner.word();
            let message = format!("`{name}` belongs to the kind {owner}, and this is {kind}");
            let advice = format!("leave {name} out, or write kind = \"{owner}\"");
            reading.contradict(&[at.key(name), at.key("kind")], Complaint::new(message, advice));
        }
    }
    examine_url(destination, at, reading);
}

fn examine_url(destination: &DestinationConfig, at: &Path, reading: &mut Reading) {
    let kind = destination.kind.word();
    let paths = [at.key("url"), at.key("kind")];
    match (destination.kind, &destination.url) {
        (Kind::Webhook, Some(_)) => {
            let message = "a webhook destination has its addresses in `endpoints`";
            let heading = at.key("endpoints").heading();
            let advice = format!("write [{heading}.ENDPOINT] with the url below it");
            reading.contradict(&paths, Complaint::new(message, advice));
        }
        (Kind::Stdout, Some(_)) => {
            let message = "standard output has no address";
            reading.contradict(&paths, Complaint::new(message, "leave url out"));
        }
        (Kind::Kafka | Kind::Nats | Kind::Local | Kind::File, None) => {
            let message = format!("a destination of the kind {kind} needs `url`");
            let advice = format!("write url = \"{}\"", example(destination.kind));
            reading.contradict(&[at.key("kind")], Complaint::new(message, advice));
        }
        (Kind::Local | Kind::File, Some(url)) => {
            if let Some(scheme) = url.scheme().filter(|scheme| scheme != kind) {
                let message = format!("an address of the kind {kind} begins with {kind}://");
                let advice = match scheme.as_str() {
                    "local" | "file" => format!("write kind = \"{scheme}\", or another address"),
                    _ => format!("write url = \"{kind}://PATH\""),
                };
                reading.contradict(&paths, Complaint::new(message, advice));
            }
        }
        (Kind::Kafka | Kind::Nats, Some(url)) => {
            let (known, message) = match destination.kind {
                Kind::Kafka => {
                    (&["kafka"][..], "an address of the kind kafka begins with kafka://")
                }
                _ => (
                    &["nats", "tls"][..],
                    "an address of the kind nats begins with nats:// or tls://",
                ),
            };
            if url.scheme().is_some_and(|scheme| !known.contains(&&*scheme)) {
                let advice = "correct the scheme; the rest was not looked at";
                reading.contradict(&paths, Complaint::new(message, advice));
            }
        }
        (Kind::Webhook | Kind::Stdout, None) => {}
    }
}

fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Kafka => "kafka://127.0.0.1:9092",
        Kind::Nats => "nats://127.0.0.1:4222",
        Kind::File => "file:///var/lib/postrider/events.jsonl",
        _ => "local:///var/lib/postrider/queue.db",
    }
}

/// Two destinations that bring the same events to the same topic of the same address.
pub(super) fn examine_pairs(config: &Config, reading: &mut Reading) {
    let all: Vec<(&DestinationId, &DestinationConfig)> = config.destinations.iter().collect();
    for (index, (id, destination)) in all.iter().enumerate() {
        let Some(address) = address(destination) else { continue };
        for (other_id, other) in &all[index + 1..] {
            if self::address(other) == Some(address) && share_a_topic(destination, other) {
                let at = Path::of("destinations");
                let paths = [at.key(other_id.as_str()), at.key(id.as_str())];
                let message = format!(
                    "`{other_id}` sends the same events to the same address and topic as `{id}`: \
                     each would arrive twice, with the same id"
                );
                let advice = "remove one of the two, or give it another url, topic, or match";
                reading.contradict(&paths, Complaint::new(message, advice));
            }
        }
    }
}

/// The address of a destination that has one, and writes it out.
fn address(destination: &DestinationConfig) -> Option<&str> {
    match destination.kind {
        Kind::Webhook => None,
        Kind::Stdout => Some("stdout"),
        Kind::Kafka | Kind::Nats | Kind::Local | Kind::File => destination.url.as_ref()?.literal(),
    }
}

fn share_a_topic(one: &DestinationConfig, other: &DestinationConfig) -> bool {
    match (one.routes.as_slice(), other.routes.as_slice()) {
        ([], []) => true,
        ([], routes) | (routes, []) => {
            routes.iter().any(|route| topic(route) == Some("{event_type}".into()))
        }
        (routes, others) => routes.iter().any(|route| {
            others.iter().any(|other| {
                topic(route).is_some()
                    && topic(route) == topic(other)
                    && (route.matches.covers(&other.matches)
                        || other.matches.covers(&route.matches))
            })
        }),
    }
}

fn topic(route: &RouteConfig) -> Option<String> {
    route.topic.as_ref().filter(|_| !route.drop).map(ToString::to_string)
}
