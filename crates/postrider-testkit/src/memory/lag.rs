//! How far what names pending keys lags behind a commit, where no statement sees all of them at once.

use std::time::Duration;

use super::MemoryStore;

/// Rates are in this many.
const WHOLE: u64 = 10_000;

/// An index that is consistent some time later, and a stream that is faster, and forgets. A key is
/// found by whichever names it first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// What the lags of single entries are drawn from.
    pub seed: u64,
    /// The longest time after which the index names the key of an event.
    pub index_max: Duration,
    /// The longest time after which the stream does.
    pub stream_max: Duration,
    /// How many of ten thousand entries the stream has forgotten when it is read.
    pub trimmed: u32,
}

impl Lag {
    /// How long after its commit the n-th event names its key.
    pub(super) fn of(&self, n: u64) -> Duration {
        let draw = |what: u64| mix(self.seed ^ mix(n.wrapping_mul(4).wrapping_add(what)));
        let part = |span: Duration, draw: u64| {
            let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX - 1);
            Duration::from_nanos(draw % (nanos + 1))
        };
        let index = part(self.index_max, draw(0));
        if draw(1) % WHOLE < u64::from(self.trimmed) {
            return index;
        }
        index.min(part(self.stream_max, draw(2)))
    }
}

/// Spreads a number over all bits.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

impl MemoryStore {
    /// Lets the index and the stream of a store with keyed numbers lag, for what is committed from now
    /// on. No matter for other kinds.
    pub fn set_lag(&self, lag: Lag) {
        self.state().lag = lag;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lags_differ_and_keep_their_limit() {
        let second = Duration::from_secs(1);
        let lag = Lag { seed: 7, index_max: second, stream_max: second / 10, trimmed: 3_000 };
        let lags: Vec<Duration> = (0..1_000).map(|n| lag.of(n)).collect();
        let slow = lags.iter().filter(|lag| **lag > second / 10).count();
        assert!((150..450).contains(&slow), "{slow} came by the index alone");
        assert!(lags.iter().all(|lag| *lag <= second));
        assert_eq!(lags, (0..1_000).map(|n| lag.of(n)).collect::<Vec<_>>());
        assert_eq!(Lag::default().of(3), Duration::ZERO);
    }
}
