//! Destinations and sources on NATS: who we are, once, and times.

use super::connection;
use crate::config::Consume;
use crate::nats::NatsLogin;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

/// A sidecar's connection.
pub(super) fn examine_source(consumer: &Consume, at: &Path, reading: &mut Reading) {
    if !consumer.is_elsewhere(&["nats", "tls"]) {
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
