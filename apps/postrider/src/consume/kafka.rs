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
    let (connection, settings) = settings(servers, topics, wishes)?;
    let opened = postrider_kafka::KafkaSubscription::open(connection, settings).await;
    opened
        .map(|opened| Arc::new(opened) as Arc<dyn Subscription>)
        .map_err(|error| Failure::from(error).of_source())
}

/// Looks what a subscription would find.
///
/// # Errors
/// A configuration failure: this program was built without Kafka.
#[cfg(not(feature = "kafka"))]
pub(super) async fn look(_: &str, _: &[String], _: &Wishes) -> Result<Option<String>, Failure> {
    std::future::ready(()).await;
    Err(crate::relay::kafka::missing())
}

/// Looks what a subscription would find, and joins nothing. Returns the topic of dead letters, where this user may not look
/// whether it is there.
///
/// # Errors
/// A configuration failure, and what would keep a sidecar from its start.
#[cfg(feature = "kafka")]
pub(super) async fn look(
    servers: &str,
    topics: &[String],
    wishes: &Wishes,
) -> Result<Option<String>, Failure> {
    /// How long one question may take, however long a sidecar waits: somebody is waiting for all of them.
    const QUESTION_MAX: std::time::Duration = std::time::Duration::from_secs(30);
    let (mut connection, settings) = settings(servers, topics, wishes)?;
    connection.deadline = connection.deadline.min(QUESTION_MAX);
    let looked = postrider_kafka::look(connection, settings).await;
    looked.map_err(|error| Failure::from(error).of_source())
}

#[cfg(feature = "kafka")]
fn settings(
    servers: &str,
    topics: &[String],
    wishes: &Wishes,
) -> Result<(postrider_kafka::KafkaSettings, postrider_kafka::SubscriptionSettings), Failure> {
    use postrider_kafka::{KafkaSettings, Notices, SubscriptionSettings};

    let configured = wishes.kafka.as_ref();
    let mut connection = match configured {
        Some(kafka) => crate::kafka::settings(servers, &kafka.login(), &wishes.secrets)?,
        None => KafkaSettings::new(servers),
    };
    let mut settings = SubscriptionSettings::new("", &wishes.group);
    settings.topics = topics.to_vec();
    settings.visibility = wishes.visibility;
    settings.handler = wishes.handler.clone();
    connection.notices = Notices::to(|notice| tracing::warn!("{notice}"));
    if let Some(kafka) = configured {
        connection.deadline = kafka.timeout;
        settings.from_now = kafka.from_now;
        settings.router_source.clone_from(&kafka.router_source);
        settings.session = kafka.session;
        settings.transaction_max = kafka.transaction_max;
        settings.unsettled_max = kafka.unsettled as usize;
        settings.unsettled_bytes_max =
            usize::try_from(kafka.unsettled_bytes.bytes()).unwrap_or(usize::MAX);
    }
    settings.dead_letters =
        Some(wishes.burial(configured.and_then(|kafka| kafka.dead_letters.as_deref())));
    Ok((connection, settings))
}

#[cfg(test)]
#[cfg(feature = "kafka")]
mod tests {
    use std::time::Duration;

    use postrider_config::{Environment, Loader, Secrets};
    use postrider_kafka::SubscriptionSettings;

    use super::*;

    fn settings_of(keys: &str) -> SubscriptionSettings {
        let text = format!(
            "[consume.billing]\nfrom = \"kafka://a:9092/orders\"\ninbox = \"sqlite://b.db\"\n\
             endpoint = \"http://127.0.0.1:8000\"\n[consume.billing.kafka]\n{keys}"
        );
        let environment = Environment::default();
        let loaded = Loader::new(&environment).text("postrider.toml", text).load().unwrap();
        let wishes = Wishes {
            group: "billing".to_owned(),
            handler: None,
            visibility: Duration::from_secs(30),
            deliveries_max: u32::MAX,
            dead_letters: None,
            nats: None,
            kafka: loaded.config.consume.values().next().map(|consumer| consumer.kafka.clone()),
            sqs: None,
            secrets: Secrets::default(),
        };
        settings("kafka://a:9092", &["orders".to_owned()], &wishes).unwrap().1
    }

    /// INV-6: what a sidecar holds is bounded as the configuration says, and by default as the library's is.
    #[test]
    fn what_is_held_is_bounded_as_configured() {
        let bounds = |it: &SubscriptionSettings| (it.unsettled_max, it.unsettled_bytes_max);
        assert_eq!(bounds(&settings_of("")), bounds(&SubscriptionSettings::new("orders", "a")));
        let own = settings_of("unsettled = 7\nunsettled_bytes = \"1MiB\"");
        assert_eq!(bounds(&own), (7, 1024 * 1024));
    }
}
