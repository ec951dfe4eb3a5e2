//! Topics of Kafka as a source, where this program has a client.
//!
//! Invariant: there is always a place for dead letters.

use std::sync::Arc;

use postrider_core::Subscription;

use super::source::Wishes;
use crate::failure::Failure;

/// Subscribes to topics.
///
/// # Errors
/// A configuration failure, also where this program was built without Kafka.
#[cfg(not(feature = "kafka"))]
pub(super) async fn subscribe(
    _: &str,
    _: &[String],
    _: &Wishes,
) -> Result<Arc<dyn Subscription>, Failure> {
    std::future::ready(()).await;
    Err(crate::relay::kafka::missing())
}

/// Subscribes to topics.
///
/// # Errors
/// A configuration failure, and what the servers say.
#[cfg(feature = "kafka")]
pub(super) async fn subscribe(
    servers: &str,
    topics: &[String],
    wishes: &Wishes,
) -> Result<Arc<dyn Subscription>, Failure> {
    use postrider_kafka::{KafkaSettings, KafkaSubscription, SubscriptionSettings};

    let configured = wishes.kafka.as_ref();
    let mut connection = match configured {
        Some(kafka) => crate::kafka::settings(servers, &kafka.login(), &wishes.secrets)?,
        None => KafkaSettings::new(servers),
    };
    let mut settings = SubscriptionSettings::new("", &wishes.group);
    settings.topics = topics.to_vec();
    settings.visibility = wishes.visibility;
    if let Some(kafka) = configured {
        connection.deadline = kafka.timeout;
        settings.from_now = kafka.from_now;
        settings.session = kafka.session;
        settings.unsettled_max = kafka.unsettled as usize;
    }
    settings.dead_letters =
        Some(wishes.burial(configured.and_then(|kafka| kafka.dead_letters.as_deref())));
    let opened = KafkaSubscription::open(connection, settings).await;
    opened
        .map(|opened| Arc::new(opened) as Arc<dyn Subscription>)
        .map_err(|error| Failure::from(error).within("the source"))
}
