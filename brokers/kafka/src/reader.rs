//! The thread that reads: it polls the library's consumer, and follows the group's rebalances. A second one commits.
//!
//! Invariant: an offset is committed only when everything before it is settled, and until the group has it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postrider_core::{Error, ErrorKind};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::absence::Absence;
use crate::aside::{Aside, signed};
use crate::group::{Coordinator, is_gone, not_let_in, until_anew};
use crate::holdings::{Holdings, Mark, Place};
use crate::notice::Notices;
use crate::places::{Places, list_of};
use crate::record::record;
use crate::replaced::Replaced;
use crate::resets::Resets;
use crate::stuck::{Stuck, positions};
use crate::transactions::{Reports, Transactions};
use crate::trouble::{self, Trouble};
use crate::turn::Turn;

/// The longest that the thread waits for a record before it looks after the rest.
const TURN: Duration = Duration::from_millis(50);
/// Between two commits: what a crash of this process brings again, besides what was not settled.
const COMMIT_EVERY: Duration = Duration::from_millis(100);
/// How long a commit is waited for before partitions are given up beside it: one that is answered takes milliseconds, and
/// the thread that reads hears of nothing meanwhile.
pub(crate) const COMMIT_MAX: Duration = Duration::from_secs(3);
/// How long the group may take to say what was put aside in partitions that it has just given us: it has said where they
/// begin in milliseconds. What it does not say comes again.
const KNOWN_MAX: Duration = Duration::from_secs(3);
/// How long commits may fail before somebody is told: a rebalance, or another coordinator, takes less.
const COMMIT_PATIENCE: Duration = Duration::from_secs(30);

/// Follows the group.
pub(crate) struct Member {
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) trouble: Arc<Trouble>,
    /// How long a rebalance waits for the handlers at work.
    pub(crate) patience: Duration,
    /// Nobody receives any more.
    pub(crate) ended: Arc<AtomicBool>,
    /// One commit at a time, and none while partitions are given up: the library keeps one back while there is no
    /// coordinator, and would send it after those of the next owner.
    pub(crate) turn: Turn,
    /// A commit was refused, since its topic is gone.
    pub(crate) refused: AtomicBool,
    /// The one that reads has ended to be replaced by another client's.
    pub(crate) renews: Arc<AtomicBool>,
    /// The error that was told last is of reading: told by the thread that polls, before it has the error.
    pub(crate) of_reading: AtomicBool,
    /// Where reading went on somewhere else.
    pub(crate) resets: Resets,
    /// Topics in whose place another one is.
    pub(crate) replaced: Replaced,
    /// What the library last reported.
    pub(crate) reports: Reports,
    /// How long a transaction of others may hold up a partition.
    pub(crate) transaction_max: Duration,
    pub(crate) coordinator: Arc<Coordinator>,
    /// Who acts on what is received.
    pub(crate) handler: Option<String>,
    /// Who said what Debezium's router wrote.
    pub(crate) router_source: String,
    pub(crate) notices: Notices,
}

/// How the library begins to say that records were not given. It asks for them again by itself.
const OF_READING: &str = "Fetch from broker";

impl ClientContext for Member {
    fn stats(&self, said: Statistics) {
        self.reports.hear(&said);
        self.coordinator.hear(&said, Instant::now());
    }

    fn log(&self, _: RDKafkaLogLevel, _: &str, said: &str) {
        // What else matters comes as an error too, and a library prints nothing.
        self.resets.hear(said);
        self.replaced.hear(said);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.trouble.note(&error, reason);
        self.of_reading.store(reason.starts_with(OF_READING), Ordering::Release);
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
        let give_up = || self.holdings.give_up(&places);
        if lost || settled.is_empty() {
            return self.turn.alone(COMMIT_MAX, give_up);
        }
        // What is not committed comes again at its new owner.
        if !self.ended.load(Ordering::Acquire) && self.turn.after_a_round(COMMIT_MAX, give_up) {
            return;
        }
        // The thread that commits has ended, or cannot be heard of: then the partitions are given up already.
        if self.ended.load(Ordering::Acquire) {
            let _ = consumer.commit(&offsets(&settled, self.handler()), CommitMode::Sync);
            give_up();
        }
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Member>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(list) = rebalance {
            self.trouble.forget();
            let stale = positions(consumer);
            self.holdings.take_over(known(consumer, list), &stale);
            // A pause outlives the loss of its partition. Where this fails, it was given up again.
            let _ = consumer.resume(list);
        }
    }
}

fn places(list: &TopicPartitionList) -> Vec<Place> {
    list.elements().iter().map(|it| (Arc::from(it.topic()), it.partition())).collect()
}

/// These partitions, each with what a member before had put aside; nothing, where the group does not say.
fn known(consumer: &BaseConsumer<Member>, list: &TopicPartitionList) -> Vec<(Place, Aside)> {
    let committed = consumer.committed_offsets(list.clone(), KNOWN_MAX);
    let read = |place: Place| {
        let beside = committed.as_ref().ok().and_then(|committed| {
            let found = committed.find_partition(&place.0, place.1)?;
            // Another program may have written what is no text, of which the library makes a panic.
            catch_unwind(AssertUnwindSafe(|| consumer.context().greet(&place, found.metadata())))
                .ok()
        });
        (place, beside.unwrap_or_default())
    };
    places(list).into_iter().map(read).collect()
}

fn offsets(marks: &[Mark], handler: Option<&str>) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(marks.len());
    for ((topic, partition), (offset, aside)) in marks {
        let mut it = list.add_partition(topic, *partition);
        // An offset that was read is one that can be written.
        let beside = signed(aside, handler);
        if it.set_offset(Offset::Offset(*offset)).is_ok() && !beside.is_empty() {
            it.set_metadata(beside);
        }
    }
    list
}

/// See the module.
pub(crate) struct Reader {
    pub(crate) consumer: BaseConsumer<Member>,
    pub(crate) topics: Vec<String>,
    /// For messages.
    pub(crate) group: String,
}

impl Reader {
    /// Reads until nobody receives any more, and leaves the group.
    pub(crate) fn read(self) {
        thread::scope(|scope| {
            let committer = thread::Builder::new().name("kafka committer".to_owned());
            match committer.spawn_scoped(scope, || self.commit_what_is_settled()) {
                Ok(_) => self.read_on(),
                Err(error) => {
                    self.tell(ErrorKind::Unavailable, &error.to_string(), "start it anew")
                }
            }
        });
        // Leaving revokes what is held, which commits it: see `pre_rebalance`.
        self.consumer.unsubscribe();
        drop(self.consumer);
    }

    pub(crate) fn member(&self) -> &Member {
        self.consumer.context()
    }

    fn is_ended(&self) -> bool {
        self.member().ended.load(Ordering::Acquire)
    }

    fn read_on(&self) {
        let member = self.member();
        let _broken = Broken(member);
        let (mut looked, mut anew) = (Instant::now(), None);
        let mut stuck = Stuck::after(member.patience);
        let mut absence = Absence::begin();
        let mut places = Places::after(member.patience);
        let mut transactions = Transactions::after(member.transaction_max);
        // Asked for once for many records: their topics are few.
        let mut topic: Arc<str> = Arc::from("");
        while !self.is_ended() {
            match self.consumer.poll(TURN) {
                None => {}
                Some(Ok(message)) => {
                    if *topic != *message.topic() {
                        topic = Arc::from(message.topic());
                    }
                    let place = (Arc::clone(&topic), message.partition());
                    // It stands behind others that were not read, where the topic is not the one it was.
                    if !member.replaced.has(&topic)
                        && member.holdings.push(&place, record(&message, &member.router_source))
                    {
                        self.flow(&mut places);
                    }
                }
                Some(Err(error)) => {
                    member.refused.fetch_or(is_gone(&error), Ordering::AcqRel);
                    if !self.judge(&error) {
                        self.judge_reading(&mut stuck, &error);
                    }
                    let of_reading = member.of_reading.load(Ordering::Acquire);
                    anew = anew.or_else(|| Some(Instant::now() + until_anew(&error, of_reading)?));
                }
            }
            if looked.elapsed() >= COMMIT_EVERY {
                looked = Instant::now();
                self.flow(&mut places);
                places.look(&self.consumer, &member.resets, &member.notices);
                transactions.look(&self.consumer);
            }
            if self.follow_topics(&mut absence) {
                // The library remembers the leader's epoch of a topic that is no more, and would be refused for ever: another
                // client knows nothing of it.
                member.renews.store(true, Ordering::Release);
                return;
            }
            if anew.is_some_and(|due| due <= Instant::now()) {
                anew = None;
                self.join_anew();
            }
        }
    }

    /// The library begins no partition whose committed offset it could not ask for, and tells nobody which.
    fn join_anew(&self) {
        self.consumer.unsubscribe();
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        if let Err(error) = self.consumer.subscribe(&topics) {
            self.tell(ErrorKind::Unavailable, &error.to_string(), "start the consumer anew");
        }
    }

    /// Each commit is waited for: the library tells nobody that one failed whose end nobody waits for, and what was
    /// settled last would never be committed.
    fn commit_what_is_settled(&self) {
        let mut failing: Option<Instant> = None;
        while !self.is_ended() {
            // For more that is settled, to be committed with one request.
            self.member().turn.rest(COMMIT_EVERY);
            let Err(error) = self.member().turn.round(|| self.commit()) else {
                failing = None;
                continue;
            };
            self.member().refused.fetch_or(is_gone(&error), Ordering::AcqRel);
            self.judge(&error);
            let since = *failing.get_or_insert_with(Instant::now);
            if since.elapsed() >= COMMIT_PATIENCE {
                failing = None;
                let said = format!("nothing could be committed for {COMMIT_PATIENCE:?}: {error}");
                self.tell(ErrorKind::Unavailable, &said, "it is tried again");
            }
        }
    }

    fn commit(&self) -> KafkaResult<()> {
        let holdings = &self.member().holdings;
        let mut settled = holdings.uncommitted();
        // Of a topic that is no more, it would be the group's place in the one that is there now.
        settled.retain(|(place, _)| !self.member().replaced.has(&place.0));
        if !settled.is_empty() {
            let marks = offsets(&settled, self.member().handler());
            self.consumer.commit(&marks, CommitMode::Sync)?;
            holdings.committed(&settled);
        }
        Ok(())
    }

    fn flow(&self, places: &mut Places) {
        let (full, free) = self.member().holdings.flow();
        if !full.is_empty() {
            // Where it fails, a little more is read.
            let _ = self.consumer.pause(&list_of(&full));
        }
        if !free.is_empty() {
            // Where it fails, the partition was given up.
            let _ = self.consumer.resume(&list_of(&free));
        }
        places.follow(full, &free);
    }

    /// What is somebody's to mend is told; what passes is the library's to mend. Says whether it is known which.
    fn judge(&self, error: &KafkaError) -> bool {
        let Some(code) = error.rdkafka_error_code() else { return false };
        let trouble = &self.member().trouble;
        let said = trouble.said().unwrap_or_else(|| code.to_string());
        let refused = || {
            let named = trouble::advice(ErrorKind::Unauthorized, &said);
            (ErrorKind::Unauthorized, named.unwrap_or("correct the credentials"))
        };
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
            | RDKafkaErrorCode::SSL => refused(),
            // They do not come back by themselves.
            RDKafkaErrorCode::AllBrokersDown if trouble.is_refusal() => refused(),
            RDKafkaErrorCode::AllBrokersDown => {
                self.member().holdings.is_down();
                (ErrorKind::Unavailable, "it goes on when one of them is back")
            }
            RDKafkaErrorCode::Fatal => (ErrorKind::Unavailable, "start the consumer anew"),
            code => match not_let_in(code) {
                Some(told) => told,
                None => return false,
            },
        };
        self.tell(kind, &said, advice);
        true
    }

    /// What should pass, and does not: the library asks for the same records again and again.
    fn judge_reading(&self, stuck: &mut Stuck, error: &KafkaError) {
        let Some(code) = error.rdkafka_error_code() else { return };
        if let Some(places) = stuck.note(&self.consumer, code) {
            let said = format!(
                "reading fails again and again ({code}), and these partitions stand still: {places}"
            );
            let advice = "look at the record there, and set the group's place behind it if nobody can read it";
            self.tell(ErrorKind::Unavailable, &said, advice);
        }
    }

    pub(crate) fn tell(&self, kind: ErrorKind, said: &str, advice: &str) {
        let error = Error::new(kind, "consume")
            .message(format!("Kafka: {said}; what is not settled comes again; {advice}"))
            .context("group", &self.group);
        self.member().holdings.complain(error);
    }
}

/// Whatever ends the thread that reads ends the one that commits with it, and so the membership: see `Membership::is_broken`.
struct Broken<'a>(&'a Member);

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
    }
}
