//! What is known of topics: whether each is there, and what it takes.
//!
//! Invariant: nothing is given to the client for a topic that is not known to be there. The client would keep
//! it for as long as a record lives, and say no more than that its time ran out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Fault, Result};
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::FromClientConfig;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::metadata::{MetadataPartition, MetadataTopic};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use crate::answer::{denied, missing};
use crate::client::{Client, Producer, end};
use crate::notice::Notice;
use crate::partition::partition;
use crate::settings::{KafkaSettings, SET_BYTES_MAX};
use crate::trouble::Trouble;

/// Topics that are remembered. Past them all are asked for again.
const TOPICS_MAX: usize = 4_096;
/// How long to wait for a topic's settings. A user that may not read them is answered at once.
const SETTINGS_MAX: Duration = Duration::from_secs(1);

/// How far apart a topic of which something failed is asked for again: each time takes a client of its own, and many batches
/// fail together. The old answer counts meanwhile.
const AGAIN_APART: Duration = Duration::from_secs(1);

/// Partitions that are named, of those with which something is wrong.
const NAMED_MAX: usize = 10;

/// What is known of a topic that is there.
#[derive(Debug)]
pub(crate) struct Facts {
    /// When it was asked for.
    seen: Instant,
    /// How many partitions it has.
    partitions: usize,
    /// Whether that was compared with how many it had before.
    compared: AtomicBool,
    /// What one request may hold for a partition; unknown where we may not ask.
    pub(crate) bytes_max: Option<u64>,
    /// It refused what the client sent as one, so each record goes by itself.
    alone: AtomicBool,
    /// Why some of what goes there may not be answered.
    pub(crate) limping: Option<String>,
}

impl Facts {
    /// Where the records of a key go.
    pub(crate) fn partition(&self, key: &[u8]) -> Option<i32> {
        partition(key, self.partitions)
    }

    /// Whether records are to be sent one by one.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed) || self.bytes_max.is_some_and(|max| max < SET_BYTES_MAX)
    }

    /// Whether it was asked for before then.
    pub(crate) fn is_from_before(&self, then: Instant) -> bool {
        self.seen < then
    }

    pub(crate) fn send_alone(&self) {
        self.alone.store(true, Ordering::Relaxed);
    }
}

/// How a topic stands.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    There(Arc<Facts>),
    /// It takes nothing, and why.
    Closed(Fault),
    /// Nobody says, who has spoken of a topic before.
    Unsaid(Fault),
}

/// What is remembered of a topic.
#[derive(Default)]
struct Entry {
    /// What was found of it, if it is there; locked while it is asked for.
    found: Arc<tokio::sync::Mutex<Option<Arc<Facts>>>>,
    /// When something last went wrong there.
    suspected: Mutex<Option<Instant>>,
}

impl Entry {
    fn suspected(&self) -> MutexGuard<'_, Option<Instant>> {
        self.suspected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether what was seen then still counts.
fn is_fresh(seen: Instant, suspected: Option<Instant>, refresh: Duration, now: Instant) -> bool {
    let doubted = suspected.is_some_and(|at| at >= seen);
    now < seen + if doubted { AGAIN_APART.min(refresh) } else { refresh }
}

/// See the module.
pub(crate) struct Topics {
    settings: Arc<KafkaSettings>,
    trouble: Arc<Trouble>,
    known: Mutex<HashMap<Arc<str>, Arc<Entry>>>,
    /// How many partitions each had when it was looked at last.
    counted: Mutex<HashMap<Arc<str>, usize>>,
}

impl Topics {
    pub(crate) fn new(settings: &Arc<KafkaSettings>, trouble: &Arc<Trouble>) -> Topics {
        Topics {
            settings: Arc::clone(settings),
            trouble: Arc::clone(trouble),
            known: Mutex::default(),
            counted: Mutex::default(),
        }
    }

    /// How the topic stands, asked for at most once at a time.
    ///
    /// For an event that is alone in its batch an error would be its own; a cluster that is slow to speak of its topic blames
    /// no event.
    ///
    /// # Errors
    /// `Unavailable` or `Unauthorized` if the cluster does not say in time; nothing was sent.
    pub(crate) async fn look(
        &self,
        clients: (&Arc<Producer>, &Client),
        topic: &Arc<str>,
        until: Instant,
        alone: bool,
    ) -> Result<Standing> {
        let looked = self.look_up(clients, topic, until).await;
        match looked {
            Err(error)
                if alone && error.kind() == ErrorKind::Unavailable && self.was_any_found() =>
            {
                Ok(Standing::Unsaid(Fault::new(error.kind(), error.to_string())))
            }
            looked => looked,
        }
    }

    fn was_any_found(&self) -> bool {
        !self.counted.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    async fn look_up(
        &self,
        (producer, other): (&Arc<Producer>, &Client),
        topic: &Arc<str>,
        until: Instant,
    ) -> Result<Standing> {
        let entry = self.entry(topic);
        let unreachable = || self.trouble.unreachable(&self.settings.shown());
        let mut found = timeout_at(until, Arc::clone(&entry.found).lock_owned())
            .await
            .map_err(|_| unreachable())?;
        let suspected = *entry.suspected();
        let fresh = |facts: &&Arc<Facts>| {
            is_fresh(facts.seen, suspected, self.settings.refresh, Instant::now())
        };
        if let Some(facts) = found.as_ref().filter(fresh).map(Arc::clone) {
            self.compare(topic, &facts);
            return Ok(Standing::There(facts));
        }
        let other = timeout_at(until, other.made()).await.map_err(|_| unreachable())?;
        let question = Question {
            producer: Arc::clone(producer),
            other,
            settings: Arc::clone(&self.settings),
            trouble: Arc::clone(&self.trouble),
            topic: Arc::clone(topic),
        };
        // What is answered too late for this call is there for the next one: else a cluster whose answers take longer than
        // one call has for them would never get an event.
        let asking = spawn_blocking(move || {
            let standing = question.ask()?;
            *found = match &standing {
                Standing::There(facts) => Some(Arc::clone(facts)),
                _ => None,
            };
            Ok::<_, Error>(standing)
        });
        let answered = timeout_at(until, asking).await.map_err(|_| unreachable())?;
        let standing = answered.map_err(|error| {
            Error::new(ErrorKind::Internal, "find topic").message(error.to_string())
        })??;
        if let Standing::There(facts) = &standing {
            self.compare(topic, facts);
        }
        Ok(standing)
    }

    /// Something went wrong there: it is asked for again before more is sent to it, if it was not just asked for.
    pub(crate) fn suspect(&self, topic: &str) {
        let entry = self.lock().get(topic).map(Arc::clone);
        if let Some(entry) = entry {
            *entry.suspected() = Some(Instant::now());
        }
    }

    /// What is known of it may be wrong: it is asked for again at once.
    pub(crate) fn doubt(&self, topic: &str) {
        self.lock().remove(topic);
    }

    /// All are asked for again, by whoever comes next: who asks now may never be answered.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    /// Tells of partitions that were added, before anything is sent by the new count. Nothing has to be drained: of a key one
    /// event is under way, so its next one is sent when the one before it is in the old partition.
    fn compare(&self, topic: &Arc<str>, facts: &Facts) {
        if facts.compared.swap(true, Ordering::AcqRel) {
            return;
        }
        let now = facts.partitions;
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.len() >= TOPICS_MAX && !counted.contains_key(topic) {
            counted.clear();
        }
        let before = counted.insert(Arc::clone(topic), now);
        drop(counted);
        if let Some(before) = before.filter(|before| *before < now) {
            let added = Notice::PartitionsAdded { topic: topic.to_string(), before, now };
            self.settings.notices.tell(&added);
        }
    }

    fn entry(&self, topic: &Arc<str>) -> Arc<Entry> {
        let mut known = self.lock();
        if known.len() >= TOPICS_MAX && !known.contains_key(topic) {
            known.clear();
        }
        Arc::clone(known.entry(Arc::clone(topic)).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Entry>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question about one topic, asked on a thread that may wait.
struct Question {
    producer: Arc<Producer>,
    /// Another client that sends to it.
    other: Option<Arc<Producer>>,
    settings: Arc<KafkaSettings>,
    trouble: Arc<Trouble>,
    topic: Arc<str>,
}

impl Question {
    fn ask(&self) -> Result<Standing> {
        let unreachable = || self.trouble.unreachable(&self.settings.shown());
        // What changes while it is asked for counts as later.
        let seen = Instant::now();
        let metadata = self
            .producer
            .client()
            .fetch_metadata(Some(&self.topic), self.settings.deadline)
            .map_err(|_| unreachable())?;
        let Some(found) = metadata.topics().first() else {
            return Ok(Standing::Closed(missing(&self.topic)));
        };
        self.trouble.forget();
        if let Some(error) = found.error() {
            return Ok(Standing::Closed(self.judge(error.into())));
        }
        let patience = SETTINGS_MAX.min(self.settings.preparation() / 2);
        // It refuses partitions of which it has not heard; where it does not hear of them now, it is asked again after that.
        if let Some(other) = &self.other {
            let _ = other.client().fetch_metadata(Some(&self.topic), patience);
        }
        let (bytes_max, in_sync_min) = self.describe(patience);
        if let Some(fault) = in_sync_min.and_then(|min| self.lacking(found, min)) {
            return Ok(Standing::Closed(fault));
        }
        let partitions = found.partitions().len();
        Ok(Standing::There(Arc::new(Facts {
            seen,
            partitions,
            compared: AtomicBool::new(false),
            bytes_max,
            alone: AtomicBool::new(false),
            limping: self.limping(found, in_sync_min.unwrap_or_default()),
        })))
    }

    fn judge(&self, code: RDKafkaErrorCode) -> Fault {
        match code {
            RDKafkaErrorCode::UnknownTopicOrPartition => missing(&self.topic),
            RDKafkaErrorCode::TopicAuthorizationFailed => denied(&self.topic, code),
            _ => Fault::new(
                ErrorKind::Unavailable,
                format!("the topic `{}` cannot be used now: {code}", self.topic),
            ),
        }
    }

    /// The topic's largest request and its fewest replicas in sync, where we may know them.
    fn describe(&self, patience: Duration) -> (Option<u64>, Option<usize>) {
        let Ok(admin) =
            AdminClient::<DefaultClientContext>::from_config(&self.settings.connection())
        else {
            return (None, None);
        };
        let options = AdminOptions::new().request_timeout(Some(patience));
        let topic = [ResourceSpecifier::Topic(&self.topic)];
        let described = Handle::current().block_on(admin.describe_configs(&topic, &options));
        end(admin);
        let Some(Ok(config)) = described.ok().and_then(|mut found| found.pop()) else {
            return (None, None);
        };
        let number = |name: &str| config.get(name)?.value.as_ref()?.parse::<u64>().ok();
        let in_sync_min = number("min.insync.replicas").and_then(|min| usize::try_from(min).ok());
        (number("max.message.bytes"), in_sync_min)
    }

    /// What is wrong if no partition can acknowledge anything.
    fn lacking(&self, found: &MetadataTopic, in_sync_min: usize) -> Option<Fault> {
        let most = |count: fn(&MetadataPartition) -> usize| {
            found.partitions().iter().map(count).max().unwrap_or_default()
        };
        let in_sync = most(|partition| partition.isr().len());
        // Where there are fewer, servers since Kafka 3.7 want no more than there are.
        let wanted = in_sync_min.min(most(|partition| partition.replicas().len()));
        (in_sync < wanted).then(|| {
            let topic = &self.topic;
            let detail = format!(
                "of the topic `{topic}` only {in_sync} replicas are in sync, and it wants {wanted} \
                 (`min.insync.replicas`); it goes on when they are back"
            );
            Fault::new(ErrorKind::Unavailable, detail)
        })
    }

    /// Why some of it may not be acknowledged, though the rest is.
    fn limping(&self, found: &MetadataTopic, in_sync_min: usize) -> Option<String> {
        let (topic, all) = (&self.topic, found.partitions());
        let which = |is: &dyn Fn(&&MetadataPartition) -> bool| {
            let ids = all.iter().filter(is).map(|partition| partition.id().to_string());
            let ids: Vec<String> = ids.take(NAMED_MAX).collect();
            (!ids.is_empty()).then(|| ids.join(", "))
        };
        if let Some(ids) = which(&|partition| partition.leader() < 0) {
            return Some(format!(
                "of the topic `{topic}` these partitions have no leader: {ids}; see whether their servers run"
            ));
        }
        let wanted = |partition: &MetadataPartition| in_sync_min.min(partition.replicas().len());
        if let Some(ids) = which(&|partition| partition.isr().len() < wanted(partition)) {
            return Some(format!(
                "of the topic `{topic}` these partitions have fewer replicas in sync than it wants \
                 (`min.insync.replicas`): {ids}; they go on when the others are back"
            ));
        }
        let few = all.iter().any(|partition| partition.replicas().len() < in_sync_min);
        few.then(|| {
            format!(
                "the topic `{topic}` wants {in_sync_min} replicas in sync (`min.insync.replicas`) and has fewer at all, \
                 with which servers before Kafka 3.7 acknowledge nothing: add replicas, or want fewer"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-6: where every batch fails, it is asked once a second, and not for each; and at once where it was asked long ago.
    #[test]
    fn a_topic_of_which_all_fails_is_asked_for_once_a_second() {
        let (begun, step) = (Instant::now(), Duration::from_millis(50));
        let refresh = Duration::from_secs(300);
        let (mut seen, mut asked) = (begun, 0);
        for n in 200..400 {
            let now = begun + step * n;
            assert!(is_fresh(seen, None, refresh, now));
            if !is_fresh(seen, Some(now - step / 2), refresh, now) {
                (seen, asked) = (now, asked + 1);
            }
            assert!(n > 200 || asked == 1, "what failed first is looked at");
        }
        assert_eq!(asked, 10);
    }
}
