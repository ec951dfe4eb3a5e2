//! Destinations on Kafka: who we are, in full, and times.

use crate::choice::Kind;
use crate::config::Config;
use crate::destination::DestinationConfig;
use crate::duration::print;
use crate::kafka::Kafka;
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(
    config: &Config,
    destination: &DestinationConfig,
    at: &Path,
    reading: &mut Reading,
) {
    if destination.kind != Kind::Kafka || !reading.is_sound(&[at.key("kind")]) {
        return;
    }
    let (kafka, at) = (&destination.kafka, at.key("kafka"));
    examine_login(kafka, &at, reading);
    if kafka.timeout > config.relay.publish_deadline {
        let deadline = print(config.relay.publish_deadline);
        let message = format!(
            "a batch may take {}, but its outcome counts as unknown after {deadline}",
            print(kafka.timeout)
        );
        let advice = format!("write timeout = \"{deadline}\", or a longer publish_deadline");
        let paths = [at.key("timeout"), Path::of("relay.publish_deadline")];
        reading.contradict(&paths, Complaint::new(message, advice));
    }
    if kafka.linger > kafka.timeout / 4 {
        let message = format!(
            "a record would wait {} for others, and has {} in all",
            print(kafka.linger),
            print(kafka.timeout)
        );
        let advice = format!("write linger = \"{}\", or less", print(kafka.timeout / 4));
        reading.contradict(&[at.key("linger"), at.key("timeout")], Complaint::new(message, advice));
    }
}

/// Who we are is said in full, and certificates are for connections that encrypt.
fn examine_login(kafka: &Kafka, at: &Path, reading: &mut Reading) {
    let pairs = [
        ("user", kafka.user.is_some(), "password", kafka.password.is_some()),
        ("user", kafka.user.is_some(), "mechanism", kafka.mechanism.is_some()),
        (
            "certificate",
            kafka.certificate.is_some(),
            "certificate_key",
            kafka.certificate_key.is_some(),
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
    let of_tls = [("roots", kafka.roots.is_some()), ("certificate", kafka.certificate.is_some())];
    for (given, _) in of_tls.into_iter().filter(|(_, given)| *given && !kafka.tls) {
        let message = format!("`{given}` is of no use to a connection that does not encrypt");
        let advice = format!("write tls = true, or leave {given} out");
        reading.contradict(&[at.key(given)], Complaint::new(message, advice));
    }
}
