//! Where a group begins that has no place in a topic yet, and is to hear of what comes from now on alone.
//!
//! The ends are written down as the group's own places before anybody joins it. To begin at whatever is the end when a
//! partition is read first would pass over what was handed out and not settled before a crash, and what came into a
//! partition before the group knew of it.
//!
//! Invariant: what comes after a group began is handed out, whoever of its members dies (INV-1).

use postrider_core::{Error, ErrorKind, Result};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::client::metadata;
use crate::reader::Member;
use crate::settings::KafkaSettings;
use crate::subscription::SubscriptionSettings;

/// Writes down the end of each topic in which the group has no place. The servers take that only for a group without
/// members; where it has some, they began it.
///
/// # Errors
/// The servers did not answer in time, or do not let this user read the group. `Conflict` if the group is at work and
/// has no place in one of the topics.
pub(crate) fn at_the_ends(
    consumer: &BaseConsumer<Member>,
    settings: &SubscriptionSettings,
    kafka: &KafkaSettings,
) -> Result<()> {
    for topic in &settings.topics {
        let asked = |error: KafkaError| unanswered(consumer, &error, settings, kafka);
        let all = partitions(consumer, topic, kafka)?;
        if has_place(consumer, all.clone(), kafka).map_err(asked)? {
            continue;
        }
        let ends = ends(consumer, &all, kafka).map_err(asked)?;
        let Err(error) = consumer.commit(&ends, CommitMode::Sync) else { continue };
        let has_members = matches!(
            error.rdkafka_error_code(),
            Some(
                RDKafkaErrorCode::UnknownMemberId
                    | RDKafkaErrorCode::IllegalGeneration
                    | RDKafkaErrorCode::RebalanceInProgress
            )
        );
        if !has_members {
            return Err(unanswered(consumer, &error, settings, kafka));
        }
        if !has_place(consumer, all, kafka).map_err(asked)? {
            return Err(Error::new(ErrorKind::Conflict, "subscribe")
                .message(format!(
                    "the group is at work and has no place in `{topic}`, so where it begins there cannot be written \
                     down; nothing was passed over. Stop its instances and start one, or set `from_now` to false \
                     for the oldest record"
                ))
                .context("group", &settings.group));
        }
    }
    Ok(())
}

/// All partitions of a topic.
fn partitions(
    consumer: &BaseConsumer<Member>,
    topic: &str,
    kafka: &KafkaSettings,
) -> Result<TopicPartitionList> {
    let found = metadata(consumer, Some(topic), kafka, &consumer.context().trouble)?;
    let mut list = TopicPartitionList::new();
    for partition in found.topics().iter().flat_map(|found| found.partitions()) {
        list.add_partition(topic, partition.id());
    }
    Ok(list)
}

/// Whether the group has a place in any of the partitions of a topic. Then those without one came later, and begin with
/// their beginning.
fn has_place(
    consumer: &BaseConsumer<Member>,
    all: TopicPartitionList,
    kafka: &KafkaSettings,
) -> KafkaResult<bool> {
    let known = consumer.committed_offsets(all, kafka.deadline)?;
    Ok(known.elements().iter().any(|it| matches!(it.offset(), Offset::Offset(_))))
}

fn ends(
    consumer: &BaseConsumer<Member>,
    all: &TopicPartitionList,
    kafka: &KafkaSettings,
) -> KafkaResult<TopicPartitionList> {
    let mut ends = TopicPartitionList::with_capacity(all.count());
    for it in all.elements() {
        let (_, end) = consumer.fetch_watermarks(it.topic(), it.partition(), kafka.deadline)?;
        ends.add_partition_offset(it.topic(), it.partition(), Offset::Offset(end))?;
    }
    Ok(ends)
}

/// What was asked about the group has no answer that helps.
fn unanswered(
    consumer: &BaseConsumer<Member>,
    error: &KafkaError,
    settings: &SubscriptionSettings,
    kafka: &KafkaSettings,
) -> Error {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::GroupAuthorizationFailed | RDKafkaErrorCode::TopicAuthorizationFailed,
        ) => Error::new(ErrorKind::Unauthorized, "subscribe")
            .message(format!(
                "Kafka: {error}; nothing was passed over; grant this user READ on the topic and on the group"
            ))
            .context("group", &settings.group),
        _ => consumer.context().trouble.unreachable(&kafka.shown()),
    }
}
