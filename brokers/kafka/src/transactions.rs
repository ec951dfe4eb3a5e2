//! Transactions that other producers leave open: nothing behind the beginning of the oldest is given to who reads what is
//! committed, and to such a reader the partition just ends there.
//!
//! Invariant (INV-8): a partition that is held so for long is named, with what ends it; and it is never named where the server
//! did not say just then that it ends there.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::statistics::{Partition, Statistics};

use crate::holdings::Place;
use crate::reader::Member;
use crate::stuck::positions;

/// How long a server may take to say where a partition ends: records wait meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Partitions that are named, and whose ends are asked for.
pub(crate) const NAMED_MAX: usize = 8;

/// The longest between two reports of the library, which sets down all that it knows for each.
const REPORT_MAX: Duration = Duration::from_secs(5);

/// How often the library is to report, so that what lasts for so long is found about then.
pub(crate) fn report_every(patience: Duration) -> Duration {
    (patience / 3).clamp(Duration::from_millis(100), REPORT_MAX)
}

/// The partitions whose end of what is committed stands before their end, each with the former, as the servers' last answers
/// said. Those alone of which everything up to there was read: others have more to give.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Option<BTreeMap<Place, i64>>>);

impl Reports {
    /// The library reports.
    pub(crate) fn hear(&self, said: &Statistics) {
        let is_held = |it: &&Partition| {
            it.ls_offset >= 0 && it.ls_offset < it.hi_offset && it.next_offset >= it.ls_offset
        };
        let topics = said.topics.values();
        let held = topics.flat_map(|topic| {
            let held = topic.partitions.values().filter(is_held);
            held.map(|it| ((topic.topic.as_str().into(), it.partition), it.ls_offset))
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(held.collect());
    }

    fn take(&self) -> Option<BTreeMap<Place, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// See the module.
pub(crate) struct Transactions {
    patience: Duration,
    /// Where each is held, since when, and whether its server has confirmed it.
    held: BTreeMap<Place, Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    at: i64,
    since: Instant,
    confirmed: bool,
}

impl Transactions {
    /// Of a reader that is to be told what has lasted for so long.
    pub(crate) fn after(patience: Duration) -> Transactions {
        Transactions { patience, held: BTreeMap::new() }
    }

    /// Looks at what transactions left behind, and at the last report, if there is a new one.
    pub(crate) fn look(&mut self, consumer: &BaseConsumer<Member>) {
        let member = consumer.context();
        member.holdings.pass(&positions(consumer));
        let Some(mut report) = member.reports.take() else { return };
        let Ok(ours) = consumer.assignment() else { return };
        report.retain(|(topic, partition), _| ours.find_partition(topic, *partition).is_some());
        self.follow(report, Instant::now());
        for place in self.due(Instant::now()) {
            let asked = consumer.fetch_watermarks(&place.0, place.1, ANSWER_MAX);
            // One that does not answer would be waited for at each of them.
            let Ok((_, end)) = asked else { break };
            self.confirm(&place, end);
        }
        let named = self.held.iter().filter(|(_, held)| held.confirmed).take(NAMED_MAX);
        let named = named.map(|(place, held)| (place.clone(), held.at)).collect();
        member.holdings.are_held_up(named);
    }

    fn follow(&mut self, report: BTreeMap<Place, i64>, now: Instant) {
        let entry = |(place, at): (Place, i64)| {
            let known = self.held.get(&place).copied().filter(|held| held.at == at);
            (place, known.unwrap_or(Held { at, since: now, confirmed: false }))
        };
        self.held = report.into_iter().map(entry).collect();
    }

    /// Those that have been held for long, by answers that may be old.
    fn due(&self, now: Instant) -> Vec<Place> {
        let is_due = |held: &Held| !held.confirmed && now >= held.since + self.patience;
        let due = self.held.iter().filter(|(_, held)| is_due(held));
        due.map(|(place, _)| place.clone()).take(NAMED_MAX).collect()
    }

    /// Its server says where what is committed ends at this moment. The end of the partition was behind that already.
    fn confirm(&mut self, place: &Place, end: i64) {
        if let Some(held) = self.held.get_mut(place) {
            held.confirmed = held.at == end;
        }
    }
}

/// What stands still, and what to do about it.
pub(crate) fn named(held: &[(Place, i64)], patience: Duration) -> Option<String> {
    let ((topic, partition), at) = held.first()?;
    let all: Vec<_> = held
        .iter()
        .map(|((topic, partition), at)| format!("{topic}/{partition} at offset {at}"))
        .collect();
    Some(format!(
        "a transaction that another producer has left open for more than {patience:?} holds up {}: nobody who reads what is \
         committed is given what stands behind it. Have its producer end it; where that is gone, look with \
         `kafka-transactions.sh --bootstrap-server HOST:9092 describe-producers --topic {topic} --partition {partition}`, and end \
         it with `kafka-transactions.sh --bootstrap-server HOST:9092 abort --topic {topic} --partition {partition} --start-offset \
         {at}`: what it wrote is then never given to anybody",
        all.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(90);

    fn place(partition: i32) -> Place {
        ("orders".into(), partition)
    }

    /// A stream of transactions, each of which is short, holds nothing up; one that lasts does, if its server says so then.
    #[test]
    fn one_that_lasts_is_found() {
        let begun = Instant::now();
        let mut transactions = Transactions::after(PATIENCE);
        for step in 0..30 {
            let now = begun + Duration::from_secs(5 * step);
            let moving = 10 + i64::try_from(step).unwrap();
            transactions.follow([(place(0), 7), (place(1), moving)].into(), now);
            let due = transactions.due(now);
            assert_eq!(due, if step < 18 { vec![] } else { vec![place(0)] }, "{step}");
        }
        transactions.confirm(&place(0), 9);
        assert!(!transactions.held[&place(0)].confirmed, "what was heard was old");
        transactions.confirm(&place(0), 7);
        assert!(transactions.held[&place(0)].confirmed);
        transactions.follow([(place(0), 7)].into(), begun);
        assert!(transactions.held[&place(0)].confirmed);
        transactions.follow([(place(0), 8)].into(), begun);
        assert!(!transactions.held[&place(0)].confirmed, "that is another one");
    }

    #[test]
    fn it_is_told_what_to_do() {
        assert_eq!(named(&[], PATIENCE), None);
        let said = named(&[(place(3), 7), (place(4), 9)], PATIENCE).unwrap();
        assert!(said.contains("orders/3 at offset 7, orders/4 at offset 9"), "{said}");
        assert!(said.contains("abort --topic orders --partition 3 --start-offset 7"), "{said}");
    }
}
