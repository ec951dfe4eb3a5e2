//! The relay's times, and its window.

use crate::config::Config;
use crate::duration::print;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(config: &Config, reading: &mut Reading) {
    let relay = &config.relay;
    let at = |name: &str| Path::of("relay").key(name);
    let needed = relay.heartbeat + relay.publish_deadline + relay.margin;
    if needed >= relay.lease {
        let lease = relay.lease;
        let paths = [at("lease"), at("heartbeat"), at("publish_deadline"), at("margin")];
        let message = format!(
            "heartbeat {} + publish_deadline {} + margin {} = {} is not shorter than the lease of \
             {}: a relay that lost its lease could still publish",
            print(relay.heartbeat),
            print(relay.publish_deadline),
            print(relay.margin),
            print(needed),
            print(lease)
        );
        // The proportions of the defaults.
        let advice = format!(
            "for a lease of {}, write heartbeat = \"{}\", publish_deadline = \"{}\", margin = \"{}\"",
            print(lease),
            print(lease / 5),
            print(lease / 3),
            print(lease / 15)
        );
        reading.contradict(&paths, Complaint::new(message, advice));
    }
    let window = &relay.window;
    if window.bytes > window.total_bytes {
        let paths = [at("window").key("bytes"), at("window").key("total_bytes")];
        let message = format!(
            "one window may hold {}, more than all together, {}",
            window.bytes, window.total_bytes
        );
        reading.contradict(&paths, Complaint::new(message, "raise total_bytes, or lower bytes"));
    }
}
