//! Hot keys: of which so much was read that they would soon have more than their share of a window.
//!
//! Keeps INV-5: what is more than the share goes into `waiting`, so that others are read. That costs the store a copy of each
//! event, and the key its pace, so where the lane empties fast the reading waits for it instead: for a moment, about as
//! long as the copies would take.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::waiting::{Placement, Reason};
use postrider_core::{KeyHash, Tick, reach};

use crate::flow::Flow;
use crate::lane::Origin;
use crate::machine::Machine;
use crate::owned::Owned;
use crate::settings::Settings;

/// How long the reading waits for half of a share to be sent: about what it takes a store to copy as much.
const HOLD: Duration = Duration::from_millis(100);

/// Keys whose lanes have grown long, and since when the reading waits for them.
#[derive(Debug, Default)]
pub(crate) struct Hot {
    keys: BTreeSet<KeyHash>,
    since: Tick,
}

/// So many events of one key may stand in the lane of a window.
pub(crate) fn share(settings: &Settings) -> u64 {
    u64::from(settings.window.rows_max / 4).max(1)
}

impl Flow {
    /// The lane of a key has grown.
    pub(crate) fn has_grown(&mut self, key: KeyHash, rows: u64, settings: &Settings) {
        if rows * 2 >= share(settings) {
            self.hot.keys.insert(key);
        }
    }

    /// A page was taken: the reading may wait from now on.
    pub(crate) fn was_read(&mut self, now: Tick) {
        self.hot.since = now;
    }

    /// Until when the reading waits for lanes that are long and may empty fast.
    fn hot_until(&self, settings: &Settings, now: Tick) -> Option<Tick> {
        let until = self.hot.since + HOLD;
        let long = |key: &&KeyHash| {
            let lane = self.lanes.get(key).filter(|_| !self.waits(**key));
            lane.is_some_and(|lane| lane.len() as u64 * 2 >= share(settings))
        };
        (until > now && self.hot.keys.iter().any(|key| long(&key))).then_some(until)
    }

    /// Lets what is in the lane of a key wait in the store: all but its head, and what is under way of it.
    pub(crate) fn shed(&mut self, key: KeyHash, now: Tick) {
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let rest = lane.split_off(lane.in_flight.max(1) as usize);
        reach!(LaneShed, if !rest.is_empty());
        for entry in rest {
            self.let_go(&entry);
            match entry.origin {
                Origin::Stream(ordinal) => {
                    let placement = Placement::Behind(Reason::Behind);
                    self.enter_waiting(ordinal, entry.row, key, Some(entry.event), placement, now);
                }
                // The store has it still, in its order.
                Origin::Waiting { .. } => self.disengage(key),
            }
        }
    }

    /// A page is asked for.
    pub(crate) fn is_read(&mut self) {
        self.hot.keys.clear();
    }
}

impl Machine {
    /// Until when nothing is read at the place where a flow stands, because of the keys of one that stands there too: apart,
    /// each page would be read for each of them.
    pub(crate) fn cools_until(&self, owned: &Owned, flow: &Flow) -> Option<Tick> {
        let here = |other: &Flow| other.window.read() == flow.window.read();
        let beside = owned.ready().filter_map(|(_, other)| {
            other.hot_until(&self.settings, self.now).filter(|_| here(other))
        });
        let until = beside.max();
        reach!(FetchWaitsForHotKey, if until.is_some());
        until
    }
}
