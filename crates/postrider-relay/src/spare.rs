//! Spare: how rarely cursors are saved while the store says that saves are dear.
//!
//! Keeps INV-6: what a crash delivers again stays within the window, and a save comes at half of it at the latest. And INV-8:
//! nobody who could read waits for a save, so a flow or a relay that runs out of room saves as ever.

use std::time::Duration;

use postrider_core::reach;

use crate::flow::Flow;
use crate::machine::Machine;
use crate::room::Budget;
use crate::settings::Settings;

/// The longest time between two saves of a cursor that a store may ask for: what a crash delivers again at a low rate,
/// and by how much a saved cursor may lag behind what was delivered. Thirty times fewer saves than by default, and well below
/// the five minutes that alerts on the age of events wait for.
pub const SAVES_APART_MAX: Duration = Duration::from_secs(30);

/// When a flow saves by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saving {
    /// When its oldest outcome is so old.
    pub(crate) after: Duration,
    /// When so many rows of its window are settled.
    pub(crate) rows: u64,
}

impl Settings {
    /// How long an acknowledgement may stay unsaved where the store asks for so much time between saves: no longer than
    /// [`SAVES_APART_MAX`], and no shorter than [`save_after`](Settings::save_after).
    ///
    /// ```
    /// use std::time::Duration;
    /// use postrider_relay::{SAVES_APART_MAX, Settings};
    /// let settings = Settings::default();
    /// assert_eq!(settings.save_interval(Duration::ZERO), settings.save_after);
    /// assert_eq!(settings.save_interval(Duration::from_secs(7)), Duration::from_secs(7));
    /// assert_eq!(settings.save_interval(Duration::from_secs(3_600)), SAVES_APART_MAX);
    /// ```
    pub fn save_interval(&self, asked: Duration) -> Duration {
        asked.min(SAVES_APART_MAX).max(self.save_after)
    }
}

impl Machine {
    /// The store said how far apart it wants saves.
    pub(crate) fn asked_apart(&mut self, apart: Duration) {
        reach!(SavesAskedApart, if apart > self.settings.save_after);
        self.saves_apart = apart;
    }

    /// When a flow saves by itself. The first save under a lease comes as ever: two owners that die before they have saved
    /// anything would have the third try one event at a time.
    pub(crate) fn saving(&self, flow: &Flow, budget: &Budget) -> Saving {
        let (settings, limits) = (&self.settings, &self.settings.window);
        let after = settings.save_interval(self.saves_apart);
        if after > settings.save_after
            && flow.was_saved
            && self.is_ample(budget)
            && self.room_of(flow, budget, budget.left).is_some()
        {
            return Saving { after, rows: u64::from(limits.rows_max / 2).max(1) };
        }
        Saving { after: settings.save_after, rows: u64::from(limits.rows_max / 8).max(1) }
    }

    /// Whether a quarter of the relay's room is left at least, so that nobody needs what a save would free.
    fn is_ample(&self, budget: &Budget) -> bool {
        let limits = &self.settings.window;
        budget.left.unsaved >= limits.total_bytes_max / 4
            && budget.left.memory >= limits.memory_bytes_max / 4
    }
}
