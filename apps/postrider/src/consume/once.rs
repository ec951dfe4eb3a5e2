//! `--once`: when a sidecar has nothing left to do.
//!
//! Invariant: nothing in hand is left behind as done, and a sidecar that makes no progress ends too.

use std::time::{Duration, Instant};

use postrider_inbox::Stats;

/// How long nothing may be settled before a sidecar with events in hand gives up, as a relay's `--timeout` is by
/// default: an endpoint that restarts is back before.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// Why there is nothing left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Nothing came any more, and nothing is in hand.
    Empty,
    /// Events are there, and none of them moves.
    Stuck,
}

/// What was seen so far.
#[derive(Debug)]
pub(super) struct Once {
    /// How long nothing may come.
    idle: Duration,
    /// How long nothing may be settled: [`STUCK_AFTER`], after the longest time that one call may take.
    stuck_after: Duration,
    /// Since when nothing came and nothing was in hand.
    quiet_since: Instant,
    /// When something was settled last.
    settled_at: Instant,
    received: u64,
    settled: u64,
}

impl Once {
    /// `call_max`: what one call of the endpoint may take.
    pub(super) fn new(idle: Duration, call_max: Duration, now: Instant) -> Once {
        let stuck_after = STUCK_AFTER + call_max;
        Once { idle, stuck_after, quiet_since: now, settled_at: now, received: 0, settled: 0 }
    }

    /// How long nothing was settled when it is stuck.
    pub(super) fn stuck_after(&self) -> Duration {
        self.stuck_after
    }

    /// Whether it is over. `is_well` says that neither broker, inbox, nor endpoint is in trouble.
    pub(super) fn look(&mut self, now: Instant, stats: &Stats, is_well: bool) -> Option<Over> {
        let settled = stats.done + stats.duplicates + stats.rejected;
        let in_hand = stats.held + stats.away;
        // Who has nothing in hand is not stuck for want of settling something.
        if settled != self.settled || (in_hand == 0 && is_well) {
            (self.settled, self.settled_at) = (settled, now);
        }
        if stats.received != self.received || in_hand > 0 || !is_well {
            (self.received, self.quiet_since) = (stats.received, now);
        }
        if now.duration_since(self.quiet_since) >= self.idle {
            Some(Over::Empty)
        } else if now.duration_since(self.settled_at) >= self.stuck_after {
            Some(Over::Stuck)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(received: u64, done: u64, held: u64, away: u64) -> Stats {
        let mut stats = Stats::default();
        (stats.received, stats.done, stats.held, stats.away) = (received, done, held, away);
        stats
    }

    /// R038: it ends when nothing came for a while, counted from the last that came, and not while something is in
    /// hand or given back.
    #[test]
    fn it_is_over_when_nothing_is_left() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut once = Once::new(Duration::from_secs(10), Duration::from_secs(30), begun);
        assert_eq!(once.look(at(9), &stats(0, 0, 0, 0), true), None);
        assert_eq!(once.look(at(10), &stats(1, 0, 1, 0), true), None, "one came");
        assert_eq!(once.look(at(30), &stats(1, 0, 1, 0), true), None, "it is in work");
        assert_eq!(once.look(at(40), &stats(1, 0, 0, 1), true), None, "it comes again");
        assert_eq!(once.look(at(41), &stats(2, 1, 0, 0), true), None);
        assert_eq!(once.look(at(50), &stats(2, 1, 0, 0), true), None);
        assert_eq!(once.look(at(51), &stats(2, 1, 0, 0), true), Some(Over::Empty));
    }

    /// R038: what never moves ends it as well, and is not said to be done; so does a broker that is away.
    #[test]
    fn it_is_over_when_nothing_moves() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        for (stats, is_well) in [(stats(1, 0, 1, 0), true), (stats(0, 0, 0, 0), false)] {
            let mut once = Once::new(Duration::from_secs(10), Duration::from_secs(30), begun);
            assert_eq!(once.look(at(89), &stats, is_well), None);
            assert_eq!(once.look(at(90), &stats, is_well), Some(Over::Stuck));
        }
    }
}
