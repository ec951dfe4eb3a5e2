//! Kafka destinations: from the configuration to the client, where this program has one.

use std::sync::Arc;

use postrider_config::{DestinationConfig, Secrets};
use postrider_core::Broker;

use crate::failure::Failure;

/// The broker of a destination of the kind `kafka`.
///
/// # Errors
/// A configuration failure, also where this program was built without Kafka.
#[cfg(not(feature = "kafka"))]
pub(super) fn open(_: &DestinationConfig, _: &Secrets) -> Result<Arc<dyn Broker>, Failure> {
    Err(Failure::config("this program was built without Kafka").advice(
        "Build it with --features kafka (kafka-tls for TLS and SCRAM), or with --features full.",
    ))
}

/// The broker of a destination of the kind `kafka`.
///
/// # Errors
/// A configuration failure, also where this program was built without Kafka, or without what its settings need.
#[cfg(feature = "kafka")]
pub(super) fn open(
    destination: &DestinationConfig,
    secrets: &Secrets,
) -> Result<Arc<dyn Broker>, Failure> {
    use postrider_config::{KafkaCompression, KafkaMechanism};
    use postrider_kafka::{Compression, KafkaBroker, KafkaSettings, Mechanism, Sasl, Tls};

    let kafka = &destination.kafka;
    let url = destination.url.as_ref().and_then(|url| secrets.address(url));
    let mut settings = KafkaSettings::new(url.unwrap_or_default());
    if let (Some(user), Some(password), Some(mechanism)) =
        (&kafka.user, &kafka.password, kafka.mechanism)
    {
        let password = super::brokers::text(secrets, password).map_err(Failure::config)?;
        let mechanism = match mechanism {
            KafkaMechanism::Plain => Mechanism::Plain,
            KafkaMechanism::ScramSha256 => Mechanism::ScramSha256,
            KafkaMechanism::ScramSha512 => Mechanism::ScramSha512,
        };
        settings.sasl = Some(Sasl { mechanism, user: user.clone(), password: password.into() });
    }
    settings.tls = kafka.tls.then(|| Tls {
        roots: kafka.roots.clone(),
        identity: kafka.certificate.clone().zip(kafka.certificate_key.clone()),
    });
    settings.compression = match kafka.compression {
        KafkaCompression::None => Compression::None,
        KafkaCompression::Lz4 => Compression::Lz4,
        KafkaCompression::Zstd => Compression::Zstd,
        KafkaCompression::Snappy => Compression::Snappy,
        KafkaCompression::Gzip => Compression::Gzip,
    };
    settings.deadline = kafka.timeout;
    settings.batches_in_flight = kafka.batches;
    settings.linger = kafka.linger;
    settings.record_key = kafka.record_key.clone();
    Ok(Arc::new(KafkaBroker::new(settings)?))
}
