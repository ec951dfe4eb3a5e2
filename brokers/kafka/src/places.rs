//! Where a member stands in its partitions, and what keeps it there: told once, since nobody fails.
//!
//! Invariants: that records were let go before the group had them is said (INV-1), and so is that a partition is read
//! no further (INV-8).

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::holdings::Place;
use crate::notice::{Notice, Notices};

/// How long a server may take to say where a partition begins: records wait meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Places {
    /// How long a partition may be full before somebody is told.
    patience: Duration,
    /// Since when each is full that is; never told again, where it was told.
    full: HashMap<Place, Option<Instant>>,
    /// Those that are ours, and were looked at.
    known: BTreeSet<Place>,
}

impl Places {
    /// Of a reader whose deliveries are hidden for so long: what is full for less has slow events, and nothing that stands.
    pub(crate) fn after(visibility: Duration) -> Places {
        Places { patience: visibility, full: HashMap::new(), known: BTreeSet::new() }
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
        for notice in let_go(consumer, &new) {
            notices.tell(&notice);
        }
    }
}

/// What the servers let go of that the group had not settled. Where they do not say, nobody knows.
fn let_go<C: ConsumerContext>(consumer: &BaseConsumer<C>, places: &[Place]) -> Vec<Notice> {
    if places.is_empty() {
        return Vec::new();
    }
    let mut list = TopicPartitionList::with_capacity(places.len());
    for (topic, partition) in places {
        list.add_partition(topic, *partition);
    }
    let Ok(committed) = consumer.committed_offsets(list, ANSWER_MAX) else { return Vec::new() };
    let mut lost = Vec::new();
    for it in committed.elements() {
        let Offset::Offset(settled) = it.offset() else { continue };
        // One that does not answer would be waited for at each of them, and the group would take us for gone.
        let Ok((first, _)) = consumer.fetch_watermarks(it.topic(), it.partition(), ANSWER_MAX)
        else {
            break;
        };
        if first > settled {
            let (topic, partition) = (it.topic().to_owned(), it.partition());
            lost.push(Notice::RecordsLetGo { topic, partition, settled, first });
        }
    }
    lost
}
