//! What goes with which kind of destination, and destinations that do the same twice.

use postrider_core::DestinationId;

use crate::broker::{self, Names, UrlShape};
use crate::config::Config;
use crate::destination::{DestinationConfig, RouteConfig};
use crate::path::Path;
use crate::reading::{Complaint, Reading};

use super::servers;

pub(super) fn examine(destination: &DestinationConfig, at: &Path, reading: &mut Reading) {
    if !reading.is_sound(&[at.key("kind")]) {
        return;
    }
    let kind = destination.kind.word();
    for owner in broker::ALL.iter().filter(|owner| owner.kind != destination.kind) {
        for (name, _) in owner.tables {
            if !reading.is_given(&at.key(name)) {
                continue;
            }
            let owner = owner.word;
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
    match (&destination.kind.shape().url, &destination.url) {
        (UrlShape::In { .. } | UrlShape::Nowhere { .. }, None) => {}
        (UrlShape::In { table, entry }, Some(_)) => {
            let message = format!("a {kind} destination has its addresses in `{table}`");
            let heading = at.key(table).heading();
            let advice = format!("write [{heading}.{entry}] with the url below it");
            reading.contradict(&paths, Complaint::new(message, advice));
        }
        (UrlShape::Nowhere { why }, Some(_)) => {
            reading.contradict(&paths, Complaint::new(*why, "leave url out"));
        }
        (UrlShape::Needed { example, .. }, None) => {
            let message = format!("a destination of the kind {kind} needs `url`");
            let advice = format!("write url = \"{example}\"");
            reading.contradict(&[at.key("kind")], Complaint::new(message, advice));
        }
        (UrlShape::Needed { schemes, example, names }, Some(url)) => {
            let Some(scheme) = url.scheme().filter(|scheme| !schemes.contains(&&**scheme)) else {
                if *names == Names::Servers {
                    servers::examine(url, &at.key("url"), example, reading);
                    servers::examine_end(url, &paths, reading);
                }
                return;
            };
            let begins: Vec<String> = schemes.iter().map(|known| format!("{known}://")).collect();
            let begins = begins.join(" or ");
            let message = format!("an address of the kind {kind} begins with {begins}");
            let advice = match owner(&scheme) {
                Some(owner) => format!("write kind = \"{owner}\", or an address with {begins}"),
                None => format!("correct the scheme, as in \"{example}\""),
            };
            reading.contradict(&paths, Complaint::new(message, advice));
        }
    }
}

/// The kind whose addresses begin so.
fn owner(scheme: &str) -> Option<&'static str> {
    let takes = |url: &UrlShape| matches!(url, UrlShape::Needed { schemes, .. } if schemes.contains(&scheme));
    broker::ALL.iter().find(|shape| takes(&shape.url)).map(|shape| shape.word)
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
    match destination.kind.shape().url {
        UrlShape::In { .. } => None,
        UrlShape::Nowhere { .. } => Some(destination.kind.word()),
        UrlShape::Needed { .. } => destination.url.as_ref()?.literal(),
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
