//! Kafka destinations: from the configuration to the client, where this program has one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use postrider_config::{DestinationConfig, Secrets};
use postrider_core::Broker;

use crate::failure::Failure;

/// Partitions that were added to topics while this process sends to them: a process has one relay.
static ADDED: AtomicU64 = AtomicU64::new(0);

/// Partitions that were added to topics of this relay while it ran.
pub(crate) fn added_partitions() -> u64 {
    ADDED.load(Ordering::Relaxed)
}

/// The broker of a destination of the kind `kafka`.
///
/// # Errors
/// A configuration failure, also where this program was built without Kafka.
#[cfg(not(feature = "kafka"))]
pub(super) fn open(_: &DestinationConfig, _: &Secrets) -> Result<Arc<dyn Broker>, Failure> {
    Err(missing())
}

/// This program has no client.
#[cfg(any(test, not(feature = "kafka")))]
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
    settings.notices = Notices::to(note);
    settings.record_key = kafka.record_key.clone();
    Ok(Arc::new(KafkaBroker::new(settings)?))
}

/// Counts and tells what changed at the cluster.
#[cfg(feature = "kafka")]
fn note(notice: &postrider_kafka::Notice) {
    if let postrider_kafka::Notice::PartitionsAdded { before, now, .. } = notice {
        ADDED.fetch_add(now.saturating_sub(*before) as u64, Ordering::Relaxed);
    }
    tracing::warn!("{notice}");
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

#[cfg(all(test, feature = "kafka"))]
mod tests {
    use super::*;

    #[test]
    fn partitions_that_were_added_are_counted() {
        let before = added_partitions();
        let topic = "orders".to_owned();
        note(&postrider_kafka::Notice::PartitionsAdded { topic, before: 1, now: 4 });
        assert_eq!(added_partitions() - before, 3);
    }
}
