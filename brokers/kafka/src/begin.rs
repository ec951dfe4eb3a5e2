//! Where a group begins that has no place in a topic yet, and is to hear of what comes from now on alone.
//!
//! The ends are written down as the group's own places before anybody joins it. To begin at whatever is the end when a
//! partition is read first would pass over what was handed out and not settled before a crash, and what came into a
//! partition before the group knew of it.
//!
//! And whether one without a place would begin with what is too old.
//!
//! Invariant: what comes after a group began is handed out, whoever of its members dies (INV-1).

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::thread;

use postrider_core::{Error, ErrorKind, Result};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::client::{Context, end, metadata};
use crate::reader::Member;
use crate::settings::{KafkaSettings, wrong};
use crate::subscription::SubscriptionSettings;
use crate::trouble::Trouble;

/// Writes down the end of each topic in which the group has no place, and gives the consumer back. The servers take that
/// only for a group without members; where it has some, they began it.
///
/// # Errors
/// The servers did not answer in time, or do not let this user read the group. `Conflict` if the group is at work and
/// has no place in one of the topics.
pub(crate) fn at_the_ends(
    mut consumer: BaseConsumer<Member>,
    settings: &SubscriptionSettings,
    kafka: &KafkaSettings,
    trouble: &Trouble,
) -> Result<BaseConsumer<Member>> {
    let asked = |error: KafkaError| unanswered(trouble, &error, settings, kafka);
    for topic in &settings.topics {
        let all = partitions(&consumer, topic, kafka, trouble)?;
        if has_place(&consumer, all.clone(), kafka).map_err(asked)? {
            continue;
        }
        let ends = ends(&consumer, &all, kafka).map_err(asked)?;
        let (returned, written) = write_down(consumer, ends, settings, kafka)?;
        consumer = returned;
        let Err(error) = written else { continue };
        let has_members = matches!(
            error.rdkafka_error_code(),
            Some(
                RDKafkaErrorCode::UnknownMemberId
                    | RDKafkaErrorCode::IllegalGeneration
                    | RDKafkaErrorCode::RebalanceInProgress
            )
        );
        if !has_members {
            return Err(asked(error));
        }
        if !has_place(&consumer, all, kafka).map_err(asked)? {
            return Err(Error::new(ErrorKind::Conflict, "subscribe")
                .message(format!(
                    "the group is at work and has no place in `{topic}`, so where it begins there cannot be written \
                     down; nothing was passed over. Stop its instances and start one, or set `from_now` to false \
                     for the oldest record"
                ))
                .context("group", &settings.group));
        }
    }
    Ok(consumer)
}

/// Whether the group has no place in one of the topics, and that has records from before then, in milliseconds since 1970. Asked by a
/// client that joins nothing. Where the group has a place in some partitions of a topic, the others have merely settled
/// nothing yet: the servers let go of all of them at once.
///
/// # Errors
/// As [`at_the_ends`].
pub(crate) fn is_before(
    then: i64,
    settings: &SubscriptionSettings,
    kafka: &KafkaSettings,
) -> Result<bool> {
    let trouble = Arc::new(Trouble::default());
    let consumer: BaseConsumer<Context> =
        BaseConsumer::from_config_and_context(&kafka.consumer(settings), Context::new(&trouble))
            .map_err(|error| wrong(error.to_string()))?;
    let asked = settings.topics.iter().map(|topic| {
        let all = partitions(&consumer, topic, kafka, &trouble)?;
        has_older(&consumer, &all, then, kafka)
            .map_err(|error| unanswered(&trouble, &error, settings, kafka))
    });
    let found = asked.collect::<Result<Vec<bool>>>();
    end(consumer);
    Ok(found?.contains(&true))
}

/// Asks for the group's places in its topics, wherever these are.
///
/// # Errors
/// As [`at_the_ends`].
pub(crate) fn ask_places<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    settings: &SubscriptionSettings,
    kafka: &KafkaSettings,
    trouble: &Trouble,
) -> Result<()> {
    for topic in &settings.topics {
        let all = partitions(consumer, topic, kafka, trouble)?;
        has_place(consumer, all, kafka)
            .map_err(|error| unanswered(trouble, &error, settings, kafka))?;
    }
    Ok(())
}

fn has_older<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    all: &TopicPartitionList,
    then: i64,
    kafka: &KafkaSettings,
) -> KafkaResult<bool> {
    if has_place(consumer, all.clone(), kafka)? {
        return Ok(false);
    }
    let mut times = TopicPartitionList::with_capacity(all.count());
    // Before the times: what comes in between is young, and would seem to be old.
    let mut stands = HashMap::with_capacity(all.count());
    for it in all.elements() {
        let place = (it.topic().to_owned(), it.partition());
        stands
            .insert(place, consumer.fetch_watermarks(it.topic(), it.partition(), kafka.deadline)?);
        // What the library asks for as a time is an offset to its list.
        times.add_partition_offset(it.topic(), it.partition(), Offset::Offset(then))?;
    }
    let found = consumer.offsets_for_times(times, kafka.deadline)?;
    Ok(found.elements().iter().any(|since| {
        let place = (since.topic().to_owned(), since.partition());
        let Some((first, end)) = stands.get(&place) else { return false };
        match since.offset() {
            Offset::Offset(offset) => offset > *first,
            // There was nothing as young as that.
            _ => end > first,
        }
    }))
}

/// Writes these down as the group's places, and gives the consumer back with what the servers say.
///
/// The library tries this again for as long as the group's coordinator keeps no places, and its call has no deadline. So
/// it is made on a thread of its own, which has the consumer until it returns. Where that is after the deadline, what it
/// wrote down is an end from before those that are written down next, so nothing behind a beginning is passed over.
///
/// # Errors
/// The servers did not answer in time.
fn write_down(
    consumer: BaseConsumer<Member>,
    ends: TopicPartitionList,
    settings: &SubscriptionSettings,
    kafka: &KafkaSettings,
) -> Result<(BaseConsumer<Member>, KafkaResult<()>)> {
    let failed = |said: String| {
        Error::new(ErrorKind::Unavailable, "subscribe")
            .message(said)
            .context("group", &settings.group)
            .context("servers", kafka.shown())
    };
    let (returns, returned) = mpsc::channel();
    let write = move || {
        let written = consumer.commit(&ends, CommitMode::Sync);
        // Who waits no longer leaves the consumer to this thread.
        drop(returns.send((consumer, written)));
    };
    let writing = thread::Builder::new().name("kafka begin".to_owned()).spawn(write);
    writing.map_err(|error| failed(error.to_string()))?;
    returned.recv_timeout(kafka.deadline).map_err(|_| {
        failed(format!(
            "Kafka did not write down within {:?} where the group begins, and whether it will is not known; nothing \
             was passed over. See whether the topic `__consumer_offsets` has the replicas it needs, and start again",
            kafka.deadline
        ))
    })
}

/// All partitions of a topic.
fn partitions<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    kafka: &KafkaSettings,
    trouble: &Trouble,
) -> Result<TopicPartitionList> {
    let found = metadata(consumer, Some(topic), kafka, trouble)?;
    let mut list = TopicPartitionList::new();
    for partition in found.topics().iter().flat_map(|found| found.partitions()) {
        list.add_partition(topic, partition.id());
    }
    Ok(list)
}

/// Whether the group has a place in any of the partitions of a topic. Then those without one came later, and begin with
/// their beginning.
fn has_place<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
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
    trouble: &Trouble,
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
        _ => trouble.unreachable(&kafka.shown()),
    }
}
