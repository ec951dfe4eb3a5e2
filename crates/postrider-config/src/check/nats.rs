//! Destinations and sources on NATS: who we are, once, and times.

use crate::choice::Kind;
use crate::config::{Config, Consume};
use crate::destination::DestinationConfig;
use crate::duration::print;
use crate::nats::NatsLogin;
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
    examine_login(&nats.login(), &at, reading);
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

/// A sidecar's connection.
pub(super) fn examine_source(consumer: &Consume, at: &Path, reading: &mut Reading) {
    let given = reading.is_given(&at.key("nats"));
    if let Some(scheme) = consumer.elsewhere().filter(|_| given) {
        let message = format!("`nats` is of no use to events that come from {scheme}://");
        let advice = "leave nats out, or write from = \"nats://HOST:4222/STREAM\"";
        reading.contradict(&[at.key("nats"), at.key("from")], Complaint::new(message, advice));
        return;
    }
    examine_login(&consumer.nats.login(), &at.key("nats"), reading);
}

/// Who we are is said once, and in full.
fn examine_login(login: &NatsLogin<'_>, at: &Path, reading: &mut Reading) {
    let ways = [
        ("user", login.user.is_some()),
        ("token", login.token.is_some()),
        ("nkey", login.nkey.is_some()),
        ("creds", login.creds.is_some()),
    ];
    let given: Vec<&str> = ways.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
    if let [first, second, ..] = given[..] {
        let message = format!("`{first}` and `{second}` both say who we are");
        let advice = "leave one of them out: a server asks once";
        reading.contradict(&[at.key(first), at.key(second)], Complaint::new(message, advice));
    }
    let pairs = [
        ("user", login.user.is_some(), "password", login.password.is_some()),
        (
            "certificate",
            login.certificate.is_some(),
            "certificate_key",
            login.certificate_key.is_some(),
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
}
