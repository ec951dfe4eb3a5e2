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
    Err(missing())
}

/// This program has no client.
#[cfg(not(feature = "kafka"))]
pub(crate) fn missing() -> Failure {
    Failure::config("this program was built without Kafka").advice(
        "Build it with --features kafka (kafka-tls for TLS and SCRAM), or with --features full.",
    )
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
    use postrider_config::KafkaCompression;
    use postrider_kafka::{Compression, KafkaBroker, Notices};

    let kafka = &destination.kafka;
    let url = destination.url.as_ref().and_then(|url| secrets.address(url));
    let mut settings = crate::kafka::settings(url.unwrap_or_default(), &kafka.login(), secrets)?;
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
    settings.refresh = kafka.refresh;
    settings.notices = Notices::to(|notice| tracing::warn!("{notice}"));
    settings.record_key = kafka.record_key.clone();
    Ok(Arc::new(KafkaBroker::new(settings)?))
}

/// The broker at an address that a flag gives.
///
/// # Errors
/// A configuration failure, always: this program has no client.
#[cfg(not(feature = "kafka"))]
pub(crate) fn at(_: &str) -> Result<Arc<dyn Broker>, Failure> {
    Err(missing())
}

/// The broker at an address that a flag gives.
///
/// # Errors
/// A configuration failure: the client cannot use the address.
#[cfg(feature = "kafka")]
pub(crate) fn at(url: &str) -> Result<Arc<dyn Broker>, Failure> {
    use postrider_kafka::{KafkaBroker, KafkaSettings};

    Ok(Arc::new(KafkaBroker::new(KafkaSettings::new(url))?))
}
