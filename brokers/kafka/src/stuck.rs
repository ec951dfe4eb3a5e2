//! A partition that cannot be read: the library asks for the same records again and again, and says no more than a code.
//!
//! Invariant (INV-8): where reading fails for long, somebody is told which partition stands still, and at which offset.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::topic_partition_list::{Offset, TopicPartitionListElem};

use crate::holdings::Place;

/// Failures so far apart have nothing to do with each other: the library asks again within a second.
const APART: Duration = Duration::from_secs(10);

/// Partitions that are named, and whose ends are asked for: records wait meanwhile.
const NAMED_MAX: usize = 8;

/// How long a server may take to say where a partition ends.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Stuck {
    /// How long the same has to fail.
    patience: Duration,
    failing: Option<Failing>,
}

/// Partitions, each with the offset behind what was read of it; without one, where nothing was.
pub(crate) type Places = HashMap<Place, Option<i64>>;

struct Failing {
    code: RDKafkaErrorCode,
    since: Instant,
    last: Instant,
    /// Where each partition stood then; nowhere, where nothing was read of it.
    places: Places,
}

impl Stuck {
    /// Of a reader whose deliveries are hidden for so long: elections and restarts of servers take less than the 30 s that
    /// this is by default.
    pub(crate) fn after(visibility: Duration) -> Stuck {
        Stuck { patience: visibility, failing: None }
    }

    /// Reading has failed with a code that passes by itself, if it does. Says which partitions have stood still since it
    /// began to, though they have more.
    pub(crate) fn note<C: ConsumerContext>(
        &mut self,
        consumer: &BaseConsumer<C>,
        code: RDKafkaErrorCode,
    ) -> Option<String> {
        let now = Instant::now();
        match &mut self.failing {
            Some(failing) if failing.code == code && now < failing.last + APART => {
                failing.last = now;
                if now < failing.since + self.patience {
                    return None;
                }
            }
            failing => {
                *failing =
                    Some(Failing { code, since: now, last: now, places: positions(consumer) });
                return None;
            }
        }
        let before = self.failing.take()?;
        let after = positions(consumer);
        let mut still: Vec<_> = before
            .places
            .into_iter()
            .filter(|(place, offset)| after.get(place) == Some(offset))
            .take(NAMED_MAX)
            .filter(|((topic, partition), offset)| {
                let ends = consumer.fetch_watermarks(topic, *partition, ANSWER_MAX);
                ends.is_ok_and(|(first, end)| end > offset.unwrap_or(first))
            })
            .map(|((topic, partition), offset)| match offset {
                Some(offset) => format!("{topic}/{partition} at offset {offset}"),
                None => format!("{topic}/{partition}"),
            })
            .collect();
        self.failing = Some(Failing { code, since: now, last: now, places: after });
        still.sort_unstable();
        (!still.is_empty()).then(|| still.join(", "))
    }
}

/// Where reading stands in each partition that is read.
pub(crate) fn positions<C: ConsumerContext>(consumer: &BaseConsumer<C>) -> Places {
    let Ok(list) = consumer.position() else { return HashMap::new() };
    let place = |it: &TopicPartitionListElem<'_>| {
        let offset = match it.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        ((it.topic().into(), it.partition()), offset)
    };
    list.elements().iter().map(place).collect()
}
