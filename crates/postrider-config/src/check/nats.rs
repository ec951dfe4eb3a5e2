//! Destinations and sources on NATS: who we are, once, and times.

use super::connection;
use crate::choice::Kind;
use crate::config::{Config, Consume};
use crate::destination::DestinationConfig;
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
    connection::examine_timeout(config, nats.timeout, &at, reading);
}

/// A sidecar's connection.
pub(super) fn examine_source(consumer: &Consume, at: &Path, reading: &mut Reading) {
    let source = ("nats", &["nats", "tls"][..], "nats://HOST:4222/STREAM");
    if connection::is_used(consumer, source, at, reading) {
        examine_login(&consumer.nats.login(), &at.key("nats"), reading);
    }
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
    connection::examine_pairs(&pairs, at, reading);
}
