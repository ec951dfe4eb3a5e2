//! Pace: when an outbox that had no more is looked at again.
//!
//! Keeps INV-8 at a bounded cost: fast while events come or are announced, slower and slower when none do,
//! and all partitions at the same moments, so that a store can answer them in one statement.

use std::time::Duration;

use postrider_core::{Tick, reach};

use crate::machine::Machine;
use crate::owned::FlowState;

/// For so many of the shortest pauses after a row was found anywhere, all that is in step stays fast: who
/// commits to one partition commits to others, and one statement asks for all of them.
pub(crate) const BUSY_POLLS: u32 = 8;

/// The next of the moments that lie so far apart. What is idle looks at them, all partitions at once, so
/// that a store can answer them together.
pub(crate) fn beat(now: Tick, apart: Duration) -> Tick {
    let since = now.since(Tick::default()).as_nanos();
    let rest = apart.as_nanos() - since % apart.as_nanos().max(1);
    now + Duration::from_nanos(u64::try_from(rest).unwrap_or(u64::MAX))
}

/// How polling is paced: fast while busy or nudged, slower and slower when idle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    interval: Duration,
    fast_until: Tick,
}

impl Pace {
    /// The time to the next poll after one that found nothing, or something.
    pub(crate) fn next(
        &mut self,
        found: bool,
        now: Tick,
        min: Duration,
        max: Duration,
    ) -> Duration {
        let doubled = self.interval.saturating_mul(2).clamp(min, max);
        self.interval = if found || now < self.fast_until { min } else { doubled };
        self.interval
    }

    /// Stay fast for a while.
    pub(crate) fn nudge(&mut self, until: Tick) {
        self.fast_until = self.fast_until.max(until);
    }
}

impl Machine {
    /// Something was committed: what looked at the slow pace of an idle outbox looks by then.
    pub(crate) fn hurry(&mut self, by: Tick) {
        reach!(PollsHurried);
        for state in self.owned.values_mut().flat_map(|owned| owned.flows.values_mut()) {
            if let FlowState::Ready(flow) = state {
                flow.poll_at = flow.poll_at.min(by);
            }
        }
    }
}
