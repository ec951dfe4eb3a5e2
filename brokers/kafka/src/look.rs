//! What a member of a group needs before it joins: its topics, and a place for its dead letters.
//!
//! Invariant: who looks joins no group, makes none, and makes no topic by asking for it.

use std::sync::Arc;

use postrider_core::{Error, ErrorKind, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use tokio::task::spawn_blocking;

use crate::answer::{missing, unreadable};
use crate::begin;
use crate::client::{Context, end, metadata};
use crate::settings::{KafkaSettings, wrong};
use crate::subscription::SubscriptionSettings;
use crate::trouble::Trouble;

/// Looks whether [`KafkaSubscription::open`](crate::KafkaSubscription::open) would find what it needs, and joins nothing: the
/// topics, the topic of dead letters, and whether this user may ask for the group's places. The servers have no question for
/// the right to read a topic, or to join a group, that does neither. Returns the topic of dead letters where it is not known
/// whether it is there, because this user may not look: nobody starts worse for that, and a dead letter may find no place.
///
/// # Errors
/// What it would fail with: `Unroutable` if a topic is not there, `Config` for settings, `Unavailable` or `Unauthorized` if Kafka
/// cannot be used in time.
pub async fn look(kafka: KafkaSettings, settings: SubscriptionSettings) -> Result<Option<String>> {
    kafka.check()?;
    settings.check()?;
    let looking = spawn_blocking(move || ask(&kafka, &settings)).await;
    looking
        .map_err(|error| Error::new(ErrorKind::Internal, "subscribe").message(error.to_string()))?
}

fn ask(kafka: &KafkaSettings, settings: &SubscriptionSettings) -> Result<Option<String>> {
    let trouble = Arc::new(Trouble::default());
    let consumer: BaseConsumer<Context> =
        BaseConsumer::from_config_and_context(&kafka.consumer(settings), Context::new(&trouble))
            .map_err(|error| wrong(error.to_string()))?;
    let asked = find(&consumer, settings, kafka, &trouble).and_then(|unseen| {
        begin::ask_places(&consumer, settings, kafka, &trouble).map(|()| unseen)
    });
    end(consumer);
    asked
}

/// Finds the topics, and the one of dead letters: returned where this user may not look for it.
///
/// # Errors
/// What is not there, or may not be read, or that nobody answered in time.
pub(crate) fn find<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    settings: &SubscriptionSettings,
    kafka: &KafkaSettings,
    trouble: &Trouble,
) -> Result<Option<String>> {
    let found = |topic: &str| {
        let metadata = metadata(consumer, Some(topic), kafka, trouble)?;
        let error = metadata.topics().first().and_then(|found| found.error());
        Ok(error.map(RDKafkaErrorCode::from))
    };
    for topic in &settings.topics {
        let (kind, detail) = match found(topic)? {
            None => continue,
            Some(RDKafkaErrorCode::UnknownTopicOrPartition) => {
                (ErrorKind::Unroutable, missing(topic).detail)
            }
            // It may be there, or not.
            Some(code @ RDKafkaErrorCode::TopicAuthorizationFailed) => {
                (ErrorKind::Unauthorized, unreadable(topic, code))
            }
            Some(other) => {
                (ErrorKind::Unroutable, format!("the topic `{topic}` cannot be read: {other}"))
            }
        };
        return Err(Error::new(kind, "subscribe").message(detail));
    }
    let Some(dead) = &settings.dead_letters else { return Ok(None) };
    match found(dead)? {
        Some(RDKafkaErrorCode::UnknownTopicOrPartition) => {
            let detail = format!(
                "there is no topic for the dead letters: create `{dead}`, or choose another one for `dead_letters`"
            );
            Err(Error::new(ErrorKind::Unroutable, "subscribe").message(detail))
        }
        // Who may not ask is not refused: a dead letter that cannot be kept is not let go.
        Some(_) => Ok(Some(dead.clone())),
        None => Ok(None),
    }
}
