//! A sidecar's times and addresses.

use crate::broker::{self, Names, UrlShape};
use crate::config::Consume;
use crate::duration::print;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

use super::servers;

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
    examine_sources(consumer, at, reading);
    if let Some(example) = example_of_servers(consumer) {
        servers::examine(&consumer.from, &at.key("from"), example, reading);
    }
    super::nats::examine(consumer, at, reading);
    super::require_http(&at.key("endpoint"), Some(&consumer.endpoint), reading);
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

/// What an address looks like, if it is one of servers.
fn example_of_servers(consumer: &Consume) -> Option<&'static str> {
    let scheme = consumer.from.scheme()?;
    let of_servers = broker::ALL.iter().find(|shape| {
        matches!(&shape.url, UrlShape::Needed { schemes, names: Names::Servers, .. } if schemes.contains(&&*scheme))
    });
    Some(of_servers?.source.as_ref()?.example)
}

impl Consume {
    /// Whether the source is known to have none of these schemes. Where the address is a reference, nobody knows
    /// before it is read.
    pub(crate) fn is_elsewhere(&self, schemes: &[&str]) -> bool {
        self.from.scheme().is_some_and(|scheme| !schemes.contains(&&*scheme))
    }
}
