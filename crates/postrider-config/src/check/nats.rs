//! NATS destinations: who we are, once, and times.

use crate::choice::Kind;
use crate::config::Config;
use crate::destination::DestinationConfig;
use crate::duration::print;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(
    config: &Config,
    destination: &DestinationConfig,
    at: &Path,
    reading: &mut Reading,
) {
    if destination.kind != Kind::Nats || !reading.is_sound(&[at.key("kind")]) {
        return;
    }
    let (nats, at) = (&destination.nats, at.key("nats"));
    let ways = [
        ("user", nats.user.is_some()),
        ("token", nats.token.is_some()),
        ("nkey", nats.nkey.is_some()),
        ("creds", nats.creds.is_some()),
    ];
    let given: Vec<&str> = ways.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    if let [first, second, ..] = given[..] {
        let message = format!("`{first}` and `{second}` both say who we are");
        let advice = "leave one of them out: a server asks once";
        reading.contradict(&[at.key(first), at.key(second)], Complaint::new(message, advice));
    }
    let pairs = [
        ("user", nats.user.is_some(), "password", nats.password.is_some()),
        (
            "certificate",
            nats.certificate.is_some(),
            "certificate_key",
            nats.certificate_key.is_some(),
        ),
    ];
    for (one, has_one, other, has_other) in pairs {
        if has_one != has_other {
            let (given, missing) = if has_one { (one, other) } else { (other, one) };
            let message = format!("`{given}` is of no use without `{missing}`");
            let advice = format!("write {missing} beside it, or leave {given} out");
            reading.contradict(&[at.key(given)], Complaint::new(message, advice));
        }
    }
    if nats.timeout > config.relay.publish_deadline {
        let deadline = print(config.relay.publish_deadline);
        let message = format!(
            "a batch may take {}, but its outcome counts as unknown after {deadline}",
            print(nats.timeout)
        );
        let advice = format!("write timeout = \"{deadline}\", or a longer publish_deadline");
        let paths = [at.key("timeout"), Path::of("relay.publish_deadline")];
        reading.contradict(&paths, Complaint::new(message, advice));
    }
}
