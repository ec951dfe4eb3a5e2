//! A sidecar's times and addresses.

use postrider_core::HandlerName;

use crate::broker::{self, Names, UrlShape};
use crate::config::{Config, Consume};
use crate::duration::print;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

use super::servers;

/// The one header that a sidecar sets and a webhook does not.
const KEY: &str = "idempotency-key";

pub(super) fn examine(consumer: &Consume, at: &Path, reading: &mut Reading) {
    if consumer.timeout >= consumer.lease {
        let message = format!(
            "a call may take {}, and its lease ends after {}: another consumer would call as well",
            print(consumer.timeout),
            print(consumer.lease)
        );
        let advice =
            format!("write lease = \"{}\", or a shorter timeout", print(consumer.timeout * 2));
        let paths = [at.key("timeout"), at.key("lease")];
        reading.contradict(&paths, Complaint::new(message, advice));
    }
    if consumer.headers.contains_key(KEY) {
        let message =
            "the sidecar sets this header itself: the endpoint tells the tries of an event by it";
        let advice = "choose another name";
        reading.contradict(&[at.key("headers").key(KEY)], Complaint::new(message, advice));
    }
    examine_sources(consumer, at, reading);
    examine_from(consumer, &at.key("from"), reading);
    super::nats::examine(consumer, at, reading);
    let endpoint = at.key("endpoint");
    if super::require_http(&endpoint, Some(&consumer.endpoint), reading)
        && consumer.endpoint.scheme().as_deref() == Some("https")
    {
        let advice = "write http://, to a service on this machine or a proxy beside it";
        let message = "a sidecar calls http:// alone: https:// is not there yet";
        reading.contradict(&[endpoint], Complaint::new(message, advice));
    }
}

/// Two that are one group receive each event once between them, so each handler would miss what the other one gets.
pub(super) fn examine_pairs(config: &Config, reading: &mut Reading) {
    let all: Vec<(&HandlerName, &Consume)> = config.consume.iter().collect();
    for (index, (name, consumer)) in all.iter().enumerate() {
        for (other, of_other) in &all[index + 1..] {
            let group = |name: &HandlerName, of: &Consume| {
                of.group.clone().unwrap_or_else(|| name.as_str().to_owned())
            };
            if consumer.from != of_other.from || group(name, consumer) != group(other, of_other) {
                continue;
            }
            let at = Path::of("consume");
            let paths = [at.key(other.as_str()), at.key(name.as_str())];
            let message = format!(
                "`{other}` and `{name}` receive the same events as one group: each event would go to one of them alone"
            );
            let advice = "give each a group of its own, which it has where `group` is left out";
            reading.contradict(&paths, Complaint::new(message, advice));
        }
    }
}

/// Events come from what can be received from, and the address says which.
fn examine_from(consumer: &Consume, at: &Path, reading: &mut Reading) {
    let Some(scheme) = consumer.from.scheme() else { return };
    let known = broker::ALL.iter().filter_map(|shape| Some((shape, shape.source.as_ref()?)));
    let Some((shape, source)) =
        known.clone().find(|(_, source)| source.schemes.contains(&&*scheme))
    else {
        let all: Vec<String> =
            known.map(|(_, source)| format!("{}://", source.schemes[0])).collect();
        let message =
            format!("events are received from {}, and not from {scheme}://", all.join(", "));
        let advice = "correct the scheme, as in \"kafka://HOST:9092/TOPIC\"";
        return reading.contradict(std::slice::from_ref(at), Complaint::new(message, advice));
    };
    if matches!(shape.url, UrlShape::Needed { names: Names::Servers, .. }) {
        servers::examine(&consumer.from, at, source.example, reading);
        servers::require_end(&consumer.from, at, source.example, reading);
    }
}

/// A table is of no use if events are known to come from elsewhere.
fn examine_sources(consumer: &Consume, at: &Path, reading: &mut Reading) {
    for source in broker::ALL.iter().filter_map(|shape| shape.source.as_ref()) {
        let Some((name, _)) = source.table else { continue };
        if !consumer.is_elsewhere(source.schemes) || !reading.is_given(&at.key(name)) {
            continue;
        }
        let scheme = consumer.from.scheme().unwrap_or_default();
        let message = format!("`{name}` is of no use to events that come from {scheme}://");
        let advice = format!("leave {name} out, or write from = \"{}\"", source.example);
        reading.contradict(&[at.key(name), at.key("from")], Complaint::new(message, advice));
    }
}

impl Consume {
    /// Whether the source is known to have none of these schemes. Where the address is a reference, nobody knows
    /// before it is read.
    pub(crate) fn is_elsewhere(&self, schemes: &[&str]) -> bool {
        self.from.scheme().is_some_and(|scheme| !schemes.contains(&&*scheme))
    }
}
