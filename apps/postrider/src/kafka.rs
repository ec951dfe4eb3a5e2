//! Connections to Kafka: from the configuration to the client's settings.
//!
//! Invariant: what is secret was read before, and stands in no message.

use postrider_config::{KafkaLogin, KafkaMechanism, Secrets};
use postrider_kafka::{KafkaSettings, Mechanism, Sasl, Tls};

use crate::failure::Failure;
use crate::relay::brokers::text;

/// The settings of a connection, whose times are the defaults.
///
/// # Errors
/// A configuration failure: a secret was not read.
pub(crate) fn settings(
    url: &str,
    login: &KafkaLogin<'_>,
    secrets: &Secrets,
) -> Result<KafkaSettings, Failure> {
    let mut settings = KafkaSettings::new(url);
    if let (Some(user), Some(password), Some(mechanism)) =
        (login.user, login.password, login.mechanism)
    {
        let password = text(secrets, password).map_err(Failure::config)?;
        let mechanism = match mechanism {
            KafkaMechanism::Plain => Mechanism::Plain,
            KafkaMechanism::ScramSha256 => Mechanism::ScramSha256,
            KafkaMechanism::ScramSha512 => Mechanism::ScramSha512,
        };
        settings.sasl = Some(Sasl { mechanism, user: user.to_owned(), password: password.into() });
    }
    settings.tls = login.tls.then(|| Tls {
        roots: login.roots.cloned(),
        identity: login.certificate.cloned().zip(login.certificate_key.cloned()),
    });
    Ok(settings)
}
