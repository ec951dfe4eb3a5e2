//! What connections to brokers have in common: settings that come in pairs, times, and sources of one scheme.

use std::time::Duration;

use crate::config::{Config, Consume};
use crate::duration::print;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

/// A setting, whether it is given, and the same of the one that it is of no use without.
pub(super) type Pair = (&'static str, bool, &'static str, bool);

/// What comes in pairs is given in pairs.
pub(super) fn examine_pairs(pairs: &[Pair], at: &Path, reading: &mut Reading) {
    for &(one, has_one, other, has_other) in pairs {
        if has_one != has_other {
            let (given, missing) = if has_one { (one, other) } else { (other, one) };
            let message = format!("`{given}` is of no use without `{missing}`");
            let advice = format!("write {missing} beside it, or leave {given} out");
            reading.contradict(&[at.key(given)], Complaint::new(message, advice));
        }
    }
}

/// The answer to a batch is there before the relay's own deadline.
pub(super) fn examine_timeout(
    config: &Config,
    timeout: Duration,
    at: &Path,
    reading: &mut Reading,
) {
    if timeout > config.relay.publish_deadline {
        let deadline = print(config.relay.publish_deadline);
        let message = format!(
            "a batch may take {}, but its outcome counts as unknown after {deadline}",
            print(timeout)
        );
        let advice = format!("write timeout = \"{deadline}\", or a longer publish_deadline");
        let paths = [at.key("timeout"), Path::of("relay.publish_deadline")];
        reading.contradict(&paths, Complaint::new(message, advice));
    }
}

/// Whether a sidecar's connection may be used. It is of no use if its events are known to come from elsewhere.
pub(super) fn is_used(
    consumer: &Consume,
    (name, schemes, example): (&str, &[&str], &str),
    at: &Path,
    reading: &mut Reading,
) -> bool {
    if !consumer.is_elsewhere(schemes) || !reading.is_given(&at.key(name)) {
        return true;
    }
    let scheme = consumer.from.scheme().unwrap_or_default();
    let message = format!("`{name}` is of no use to events that come from {scheme}://");
    let advice = format!("leave {name} out, or write from = \"{example}\"");
    reading.contradict(&[at.key(name), at.key("from")], Complaint::new(message, advice));
    false
}

impl Consume {
    /// Whether the source is known to have none of these schemes. Where the address is a reference, nobody knows
    /// before it is read.
    pub(crate) fn is_elsewhere(&self, schemes: &[&str]) -> bool {
        self.from.scheme().is_some_and(|scheme| !schemes.contains(&&*scheme))
    }
}
