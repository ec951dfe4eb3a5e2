//! How far the shards of the stream are read.
//!
//! Invariant: no more is remembered than the shards that are being read, one small entry each; and what nobody reads any
//! more does not look read: its lag grows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_sdk_dynamodbstreams::types::Record;

use crate::store::now_ms;

/// How far a shard of the stream is read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardLag {
    /// The service's name for it. There are as many as the table's partitions, new ones every few hours: too many for
    /// labels of a metric.
    pub shard: String,
    /// How long ago it was that everything was read which it had: at its tip, since the last answer; else the age of the
    /// last record that was read, by the service's clock and this machine's, or the time since its reading began.
    pub lag: Duration,
    /// Whether the last answer had nothing new.
    pub at_tip: bool,
}

impl ShardLag {
    /// What is told of a shard, such as by who shows it.
    pub fn new(shard: &str, lag: Duration, at_tip: bool) -> ShardLag {
        ShardLag { shard: shard.to_owned(), lag, at_tip }
    }
}

/// So many empty answers of a shard whose reading began are not yet its tip: two seconds of them.
const EMPTY_MAX: u32 = 8;

/// What is known of each shard.
#[derive(Debug, Default)]
pub(crate) struct Lags(Mutex<BTreeMap<String, Reached>>);

/// Up to where a shard is read.
#[derive(Clone, Copy, Debug)]
enum Reached {
    /// Its tip, when the service said so.
    Tip(Instant),
    /// A record, that was made then, in milliseconds.
    Record(i64),
    /// Nothing of it yet: its reading began, and so many answers were empty. The service gives empty ones before it
    /// comes to the first record.
    Begun(Instant, u32),
}

impl Lags {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Reached>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A shard is read from here on: from what comes, or from its oldest record.
    pub(crate) fn begin(&self, shard: &str, latest: bool) {
        let now = Instant::now();
        let reached = if latest { Reached::Tip(now) } else { Reached::Begun(now, 0) };
        self.all().insert(shard.to_owned(), reached);
    }

    /// An answer of a shard that goes on.
    pub(crate) fn read(&self, shard: &str, records: &[Record]) {
        let made =
            |record: &Record| record.dynamodb()?.approximate_creation_date_time()?.to_millis().ok();
        let mut all = self.all();
        let reached = match records.last() {
            None => match all.get(shard) {
                Some(Reached::Begun(at, empty)) if *empty < EMPTY_MAX => {
                    Reached::Begun(*at, empty + 1)
                }
                _ => Reached::Tip(Instant::now()),
            },
            Some(last) => match made(last) {
                Some(made) => Reached::Record(made),
                // The service says when; where it does not, the answer is as far as is known.
                None => Reached::Begun(Instant::now(), 0),
            },
        };
        all.insert(shard.to_owned(), reached);
    }

    /// Forgets the others: they were read to their end, or are gone.
    pub(crate) fn retain(&self, shards: &BTreeSet<&str>) {
        self.all().retain(|shard, _| shards.contains(&**shard));
    }

    pub(crate) fn told(&self) -> Vec<ShardLag> {
        let now = now_ms();
        let told = |(shard, reached): (&String, &Reached)| {
            let lag = match reached {
                Reached::Tip(at) | Reached::Begun(at, _) => at.elapsed(),
                // Clocks that are apart make no negative age.
                Reached::Record(made) => {
                    Duration::from_millis(u64::try_from(now - made).unwrap_or_default())
                }
            };
            let at_tip = matches!(reached, Reached::Tip(_));
            ShardLag::new(shard, lag, at_tip)
        };
        self.all().iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodbstreams::primitives::DateTime;
    use aws_sdk_dynamodbstreams::types::StreamRecord;

    use super::*;

    fn made(ago: i64) -> Record {
        let at = DateTime::from_millis(now_ms() - ago);
        let change = StreamRecord::builder().approximate_creation_date_time(at).build();
        Record::builder().dynamodb(change).build()
    }

    /// R059: the lag is the age of the last record read while there is more, and nothing at the tip; a clock that is
    /// ahead makes none, and shards that end are forgotten.
    #[test]
    fn a_shard_lags_by_the_age_of_what_was_read_last() {
        let lags = Lags::default();
        lags.begin("a", true);
        lags.begin("b", false);
        lags.read("a", &[made(90_000_000), made(60_000_000)]);
        lags.read("c", &[made(-60_000_000)]);
        let of = |shard: &str| lags.told().into_iter().find(|lag| lag.shard == shard).unwrap();
        assert!(!of("a").at_tip && of("a").lag >= Duration::from_secs(60_000), "{:?}", of("a"));
        assert!(of("a").lag < Duration::from_secs(90_000), "the last one counts");
        lags.read("b", &[]);
        assert!(!of("b").at_tip, "nothing of it was read yet");
        (0..EMPTY_MAX).for_each(|_| lags.read("b", &[]));
        assert!(of("b").at_tip);
        assert_eq!(of("c").lag, Duration::ZERO);
        lags.read("a", &[]);
        assert!(of("a").at_tip && of("a").lag < Duration::from_secs(60_000));
        lags.retain(&BTreeSet::from(["a"]));
        assert_eq!(lags.told().len(), 1);
    }
}
