//! Away: how long what waits for an endpoint that is down stays in the store.
//!
//! Keeps its part of INV-5 and INV-8: a long outage costs the store little, and nothing that is put off is forgotten.

use std::time::Duration;

use postrider_core::Tick;

use crate::outlet::Outlet;

impl Outlet {
    /// How long a waiting event stays in the store that is put back untried because its endpoint is
    /// down: a quarter of the time that it has been, so that a long outage costs the store little.
    pub(crate) fn put_back_for(&mut self, index: u32, now: Tick) -> Duration {
        self.endpoints[index as usize].crowded = true;
        self.away_for(index, now)
    }

    /// How long a probe that failed stays in the store: a little longer than the pause, and no less
    /// than others that were put back for its sake: else a few poison events would be all the probes.
    pub(crate) fn probed_for(&mut self, index: u32, pause: Duration, now: Tick) -> Duration {
        let crowded = std::mem::take(&mut self.endpoints[index as usize].crowded);
        let others = if crowded { self.away_for(index, now) } else { Duration::ZERO };
        others.max(pause) + pause / 8
    }

    /// How long what is put off for an endpoint stays in the store.
    pub(crate) fn away_for(&self, index: u32, now: Tick) -> Duration {
        /// What comes back late at most after an outage. Five minutes.
        const AWAY_MAX: Duration = Duration::from_secs(300);
        let outage = now.since(self.endpoint(index).failing_since);
        self.pause_left(index, now).max((outage / 4).min(AWAY_MAX))
    }

    /// The rest of an endpoint's pause.
    pub(crate) fn pause_left(&self, index: u32, now: Tick) -> Duration {
        self.endpoint(index).paused_until.since(now)
    }
}
