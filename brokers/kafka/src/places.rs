//! Where a member stands in its partitions, and what keeps it there: told once, since nobody fails.
//!
//! Invariants: that records were let go before the group had them is said (INV-1), and so is that a partition is read
//! no further (INV-8).

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};

use crate::holdings::Place;
use crate::notice::{Notice, Notices};
use crate::resets::Resets;

/// How long a server may take to say where a partition begins: records wait meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// When a server that did not say it is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Places {
    /// How long a partition may be full before somebody is told.
    patience: Duration,
    /// Since when each is full that is; never told again, where it was told.
    full: HashMap<Place, Option<Instant>>,
    /// Those that are ours, and were looked at.
    known: BTreeSet<Place>,
    /// Up to where it was told that records are lost.
    told: HashMap<Place, i64>,
    /// Servers are left alone until then.
    silent: Option<Instant>,
}

impl Places {
    /// Of a reader whose deliveries are hidden for so long: what is full for less has slow events, and nothing that stands.
    pub(crate) fn after(visibility: Duration) -> Places {
        let (full, told) = (HashMap::new(), HashMap::new());
        Places { patience: visibility, full, known: BTreeSet::new(), told, silent: None }
    }

    /// These have read enough for now, and those have room again.
    pub(crate) fn follow(&mut self, full: Vec<Place>, free: &[Place]) {
        self.full.retain(|place, _| !free.contains(place));
        let now = Instant::now();
        self.full.extend(full.into_iter().map(|place| (place, Some(now))));
    }

    /// Tells what is new.
    pub(crate) fn look<C: ConsumerContext>(
        &mut self,
        consumer: &BaseConsumer<C>,
        resets: &Resets,
        notices: &Notices,
    ) {
        let Ok(assigned) = consumer.assignment() else { return };
        let ours: BTreeSet<Place> =
            assigned.elements().iter().map(|it| (it.topic().into(), it.partition())).collect();
        self.full.retain(|place, _| ours.contains(place));
        for ((topic, partition), since) in &mut self.full {
            if since.is_some_and(|since| since.elapsed() >= self.patience) {
                *since = None;
                let (topic, partition) = (topic.to_string(), *partition);
                notices.tell(&Notice::PartitionFull { topic, partition });
            }
        }
        let new: Vec<Place> = ours.difference(&self.known).cloned().collect();
        self.known = ours;
        self.told.retain(|place, _| self.known.contains(place));
        for (place, settled) in settled(consumer, &new) {
            // One that does not answer would be waited for at each of them, and the group would take us for gone.
            let Some(first) = first(consumer, &place) else { break };
            self.tell(place, settled, first, notices);
        }
        self.follow_resets(consumer, resets, notices);
    }

    /// What was let go under us: asked for until a server says where it begins.
    fn follow_resets<C: ConsumerContext>(
        &mut self,
        consumer: &BaseConsumer<C>,
        resets: &Resets,
        notices: &Notices,
    ) {
        if self.silent.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let mut left = resets.take().into_iter();
        while let Some((place, read)) = left.next() {
            if !self.known.contains(&place) {
                continue;
            }
            let Some(first) = first(consumer, &place) else {
                self.silent = Some(Instant::now() + ASK_AGAIN);
                return resets.put_back([(place, read)].into_iter().chain(left));
            };
            self.tell(place, read, first, notices);
        }
    }

    /// Tells that what stood between is lost, if anything did that nobody was told of.
    fn tell(&mut self, place: Place, from: i64, first: i64, notices: &Notices) {
        let settled = self.told.get(&place).map_or(from, |told| from.max(*told));
        if first > settled {
            let (topic, partition) = (place.0.to_string(), place.1);
            notices.tell(&Notice::RecordsLetGo { topic, partition, settled, first });
            self.told.insert(place, first);
        }
    }
}

/// Up to where the group has settled these; nothing of those in which it has no place.
fn settled<C: ConsumerContext>(consumer: &BaseConsumer<C>, places: &[Place]) -> Vec<(Place, i64)> {
    if places.is_empty() {
        return Vec::new();
    }
    let Ok(committed) = consumer.committed_offsets(list_of(places), ANSWER_MAX) else {
        return Vec::new();
    };
    let settled = |it: &TopicPartitionListElem<'_>| match it.offset() {
        Offset::Offset(settled) => Some(((it.topic().into(), it.partition()), settled)),
        _ => None,
    };
    committed.elements().iter().filter_map(settled).collect()
}

/// The same as the library has it.
pub(crate) fn list_of(places: &[Place]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for (topic, partition) in places {
        list.add_partition(topic, *partition);
    }
    list
}

/// The first record that the servers have of a partition.
fn first<C: ConsumerContext>(consumer: &BaseConsumer<C>, place: &Place) -> Option<i64> {
    let asked = consumer.fetch_watermarks(&place.0, place.1, ANSWER_MAX);
    asked.ok().map(|(first, _)| first)
}
