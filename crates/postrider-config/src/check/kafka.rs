//! Destinations and sources on Kafka: who we are, in full, and times.

use super::connection;
use crate::choice::Kind;
use crate::config::{Config, Consume};
use crate::destination::DestinationConfig;
use crate::duration::print;
use crate::kafka::KafkaLogin;
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
    examine_login(&kafka.login(), &at, reading);
    connection::examine_timeout(config, kafka.timeout, &at, reading);
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

/// A sidecar's connection.
pub(super) fn examine_source(consumer: &Consume, at: &Path, reading: &mut Reading) {
    let source = ("kafka", &["kafka"][..], "kafka://HOST:9092/TOPIC");
    if connection::is_used(consumer, source, at, reading) {
        examine_login(&consumer.kafka.login(), &at.key("kafka"), reading);
    }
}

/// Who we are is said in full, and certificates are for connections that encrypt.
fn examine_login(login: &KafkaLogin<'_>, at: &Path, reading: &mut Reading) {
    let pairs = [
        ("user", login.user.is_some(), "password", login.password.is_some()),
        ("user", login.user.is_some(), "mechanism", login.mechanism.is_some()),
        (
            "certificate",
            login.certificate.is_some(),
            "certificate_key",
            login.certificate_key.is_some(),
        ),
    ];
    connection::examine_pairs(&pairs, at, reading);
    let of_tls = [("roots", login.roots.is_some()), ("certificate", login.certificate.is_some())];
    for (given, _) in of_tls.into_iter().filter(|(_, given)| *given && !login.tls) {
        let message = format!("`{given}` is of no use to a connection that does not encrypt");
        let advice = format!("write tls = true, or leave {given} out");
        reading.contradict(&[at.key(given)], Complaint::new(message, advice));
    }
}
