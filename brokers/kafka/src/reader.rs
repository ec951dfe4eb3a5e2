//! The thread that reads: it polls the library's consumer, follows the group's rebalances, and commits.
//!
//! Invariant: an offset is committed only when everything before it is settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postrider_core::{Error, ErrorKind, Marks};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::decode::decode;
use crate::holdings::{Holdings, Place};
use crate::trouble::Trouble;
use crate::window::Record;

/// The longest that the thread waits for a record before it looks after the rest.
const TURN: Duration = Duration::from_millis(50);
/// Between two commits: what a crash of this process brings again, besides what was not settled.
const COMMIT_EVERY: Duration = Duration::from_millis(100);

/// Follows the group.
pub(crate) struct Member {
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) trouble: Arc<Trouble>,
    /// How long a rebalance waits for the handlers at work.
    pub(crate) patience: Duration,
    /// Nobody receives any more.
    pub(crate) ended: Arc<AtomicBool>,
}

impl ClientContext for Member {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {
        // What matters comes as an error too, and a library prints nothing.
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.trouble.note(&error, reason);
    }
}

impl ConsumerContext for Member {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Member>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(list) = rebalance else { return };
        let places = places(list);
        // Who lost its partitions may not say anything about them, and who is gone settles nothing.
        let lost = consumer.assignment_lost();
        let wait = !lost && !self.ended.load(Ordering::Acquire);
        let patience = if wait { self.patience } else { Duration::ZERO };
        let settled = self.holdings.finish(&places, patience);
        if !lost && !settled.is_empty() {
            // What is not committed comes again at its new owner.
            let _ = consumer.commit(&offsets(settled), CommitMode::Sync);
        }
        self.holdings.give_up(&places);
    }

    fn post_rebalance(&self, _: &BaseConsumer<Member>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance {
            self.trouble.forget();
            self.holdings.take_over(places(list));
        }
    }

    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if result.is_err() {
            self.holdings.uncommit();
        }
    }
}

fn places(list: &TopicPartitionList) -> Vec<Place> {
    list.elements().iter().map(|it| (Arc::from(it.topic()), it.partition())).collect()
}

fn offsets(settled: Vec<(Place, i64)>) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(settled.len());
    for ((topic, partition), offset) in settled {
        // An offset that was read is one that can be written.
        let _ = list.add_partition_offset(&topic, partition, Offset::Offset(offset));
    }
    list
}

fn list_of(places: Vec<Place>) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for (topic, partition) in places {
        list.add_partition(&topic, partition);
    }
    list
}

/// See the module.
pub(crate) struct Reader {
    pub(crate) consumer: BaseConsumer<Member>,
    /// For messages.
    pub(crate) group: String,
}

impl Reader {
    /// Reads until nobody receives any more, and leaves the group.
    pub(crate) fn read(self) {
        let member = Arc::clone(self.consumer.context());
        let mut committed = Instant::now();
        // Asked for once for many records: their topics are few.
        let mut topic: Arc<str> = Arc::from("");
        while !member.ended.load(Ordering::Acquire) {
            match self.consumer.poll(TURN) {
                None => {}
                Some(Ok(message)) => {
                    if *topic != *message.topic() {
                        topic = Arc::from(message.topic());
                    }
                    let place = (Arc::clone(&topic), message.partition());
                    member.holdings.push(&place, record(&message));
                }
                Some(Err(error)) => self.judge(&member, &error),
            }
            if committed.elapsed() >= COMMIT_EVERY {
                committed = Instant::now();
                self.commit(&member);
                self.flow(&member);
            }
        }
        // Leaving revokes what is held, which commits it: see `pre_rebalance`.
        self.consumer.unsubscribe();
        drop(self.consumer);
    }

    fn commit(&self, member: &Member) {
        let settled = member.holdings.uncommitted();
        if !settled.is_empty()
            && self.consumer.commit(&offsets(settled), CommitMode::Async).is_err()
        {
            member.holdings.uncommit();
        }
    }

    fn flow(&self, member: &Member) {
        let (full, free) = member.holdings.flow();
        if !full.is_empty() {
            // Where it fails, a little more is read.
            let _ = self.consumer.pause(&list_of(full));
        }
        if !free.is_empty() {
            // Where it fails, the partition was given up.
            let _ = self.consumer.resume(&list_of(free));
        }
    }

    /// What is somebody's to mend is told; what passes is the library's to mend.
    fn judge(&self, member: &Member, error: &KafkaError) {
        let Some(code) = error.rdkafka_error_code() else { return };
        let (kind, advice) = match code {
            RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => {
                (ErrorKind::Unroutable, "create the topic, or correct its name")
            }
            RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed => {
                (ErrorKind::Unauthorized, "grant this user READ on the topic and on the group")
            }
            RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::SSL => {
                (ErrorKind::Unauthorized, "correct the credentials or the certificates")
            }
            RDKafkaErrorCode::AllBrokersDown => {
                (ErrorKind::Unavailable, "it goes on when one of them is back")
            }
            RDKafkaErrorCode::Fatal => (ErrorKind::Unavailable, "start the consumer anew"),
            _ => return,
        };
        let said = member.trouble.said().unwrap_or_else(|| code.to_string());
        let error = Error::new(kind, "consume")
            .message(format!("Kafka: {said}; what is not settled comes again; {advice}"))
            .context("group", &self.group);
        member.holdings.complain(error);
    }
}

fn record(message: &BorrowedMessage<'_>) -> Record {
    let boxed = |bytes: &[u8]| bytes.to_vec().into_boxed_slice();
    let (event, marks) = match decode(message) {
        Ok((event, marks)) => (Ok(event), marks),
        Err(fault) => (Err(fault), Marks::default()),
    };
    Record {
        offset: message.offset(),
        value: event.is_err().then(|| message.payload().map(boxed)).flatten(),
        event,
        marks,
        key: message.key().map(boxed),
        headers: message.headers().map(BorrowedHeaders::detach),
    }
}
