//! Again: when a store that failed is asked once more.
//!
//! Keeps INV-8 for a store that comes back: relays that have lost it in the same moment do not come back to it in the
//! same moments. A pause is never longer than it would be for one relay alone, so that all times of recovery stand.

use std::time::Duration;

use postrider_core::{Jitter, RelayId, Tick};

use crate::machine::Machine;

/// What failed within so short a time failed together, and is asked again together: a store answers many partitions in
/// one statement.
const TOGETHER: Duration = Duration::from_millis(25);

/// How a relay's pauses after errors of its store differ from other relays'.
#[derive(Debug)]
pub(crate) struct Again {
    /// Not the one of brokers' pauses: what a store does changes nothing there.
    jitter: Jitter,
    /// Which share of a pause is waited for, and until when that holds.
    share: f64,
    until: Tick,
}

impl Again {
    pub(crate) fn seeded(seed: u64) -> Again {
        Again { jitter: Jitter::seeded(!seed), share: 1.0, until: Tick::default() }
    }

    /// A share of a pause, between half of it and the whole.
    pub(crate) fn of(&mut self, pause: Duration, now: Tick) -> Duration {
        if now >= self.until {
            self.share = 1.0 - 0.5 * self.jitter.unit();
            self.until = now + TOGETHER;
        }
        pause.mul_f64(self.share)
    }
}

impl Machine {
    /// When to ask again what the store has refused or not answered, at the latest after such a pause.
    pub(crate) fn again_within(&mut self, pause: Duration) -> Tick {
        self.now + self.again.of(pause, self.now)
    }
}

/// A seed of the relay's own: two relays with the same settings have the same jitter otherwise, and none between them.
pub(crate) fn own_seed(seed: u64, owner: &RelayId) -> u64 {
    let mix = |seed: u64, byte: u8| Jitter::seeded(seed ^ u64::from(byte)).bits();
    owner.as_str().bytes().fold(seed, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(seed: u64) -> Vec<Duration> {
        let mut again = Again::seeded(seed);
        (0..50).map(|n| again.of(Duration::from_secs(1), Tick(n * 1_000_000_000))).collect()
    }

    #[test]
    fn pauses_are_between_half_and_the_whole_and_differ_by_seed() {
        let (one, other) = (pauses(1), pauses(2));
        let bounds = Duration::from_millis(500)..=Duration::from_secs(1);
        assert!(one.iter().chain(&other).all(|pause| bounds.contains(pause)));
        assert_eq!(one, pauses(1), "the same seed gives the same pauses");
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
    }

    #[test]
    fn what_failed_together_is_asked_again_together() {
        let mut again = Again::seeded(7);
        let mut at = |ms: u64| again.of(Duration::from_secs(1), Tick(ms * 1_000_000));
        let first = at(0);
        assert_eq!((at(1), at(24)), (first, first));
        assert_ne!(at(26), first);
    }

    #[test]
    fn relays_of_the_same_settings_have_seeds_of_their_own() {
        let (one, other) = (RelayId::mint(), RelayId::mint());
        assert_eq!(own_seed(0, &one), own_seed(0, &one));
        assert_ne!(own_seed(0, &one), own_seed(0, &other));
        assert_ne!(own_seed(0, &one), own_seed(1, &one), "what is set still counts");
    }
}
