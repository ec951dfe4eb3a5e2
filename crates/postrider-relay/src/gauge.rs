//! Gauge: how many events of a destination wait, against the bound of that.
//!
//! Keeps INV-6 (what waits has a limit: at the bound nothing new of the destination is read, and what is read already
//! finds its place in `waiting` all the same, so that nothing is lost) and INV-5 (other destinations go on). What
//! waits goes on being tried, redriven, and discarded, and reading goes on by itself when there are fewer.
//!
//! The store is asked for the number, because other relays let events of the destination wait as well. Between two
//! answers what this relay lets wait is added and what it delivers is taken away: so the store is asked seldom, and
//! one relay alone passes the bound by what its windows hold and no more.

use std::time::Duration;

use postrider_core::waiting::Counts;
use postrider_core::{DestinationId, Result, Tick, planted, reach};

use crate::command::Command;
use crate::flow::Flow;
use crate::machine::{Asked, Machine};
use crate::notice::{Filling, Notice};
use crate::owned::FlowState;
use crate::trouble::Work;

/// How often the store is asked while half of the bound is reached: other relays let events wait as well.
const NEAR_EVERY: Duration = Duration::from_secs(30);

/// How often it is asked below that, if others may let events wait: from there to the bound it is a long way.
const FAR_EVERY: Duration = Duration::from_secs(300);

/// A count that took long is made so much more seldom: it takes a twentieth of one connection's time, however
/// many wait.
const REST: u32 = 20;

/// What is known of the events of one destination that wait.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    /// What the store said last.
    counted: Option<u64>,
    /// What was found in the partitions that were loaded, until it has said anything.
    found: u64,
    /// What this relay has let wait since the last answer was asked for.
    entered: u64,
    /// Of that, since the question that is under way.
    entered_since_asked: u64,
    /// What it has delivered since the answer came.
    left: u64,
    /// Events ahead of their cursors: they come out by what is read next alone, and must not keep that from being
    /// read. Those are among them that operators discarded, which the store does not count.
    ahead: u64,
    /// No more of what the store counts can be ahead: the least that it has counted beside `behind` since a
    /// partition was loaded that had any. Nothing, until it has.
    ahead_max: u64,
    /// Requests may have brought more of it since: the next count is taken as it is.
    ahead_grew: bool,
    /// Neither was since the question under way was asked.
    steady: bool,
    /// What this relay has let wait since, and not delivered: that was read, and is not ahead.
    behind: u64,
    /// When the question under way was asked.
    asked: Option<Tick>,
    /// When the last answer came.
    answered: Tick,
    /// How long it took.
    took: Duration,
    /// There was none.
    failed: bool,
    /// Requests of operators were carried out since: how many rows they took or brought, nobody has said.
    touched: bool,
    /// A partition was loaded since: whoever owned it before may have let more wait.
    inherited: bool,
    /// Nothing new is read.
    full: bool,
    /// The store said so, and it is not only reckoned.
    confirmed: bool,
    /// Half of the bound is reached.
    near: bool,
}

/// Events of a flow that came to wait, and that left, since the gauge was told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passage {
    /// It was loaded.
    fresh: bool,
    /// Waited then, and hold their keys.
    found: u64,
    pub(crate) entered: u64,
    pub(crate) left: u64,
}

impl Passage {
    /// What a flow finds when it is loaded: of each key so many.
    pub(crate) fn found(counts: impl Iterator<Item = u32>) -> Passage {
        Passage { fresh: true, found: counts.map(u64::from).sum(), ..Passage::default() }
    }

    /// Whether there is nothing to tell.
    fn is_empty(self) -> bool {
        !self.fresh && self.entered == 0 && self.left == 0
    }
}

impl Gauge {
    /// Takes over what a flow has to tell.
    fn add(&mut self, flow: &mut Flow) {
        let passage = std::mem::take(&mut flow.passage);
        self.inherited |= passage.fresh && self.counted.is_some();
        let holds = passage.found > 0 || (passage.fresh && !flow.ahead.is_empty());
        self.inherited |= holds && self.asked.is_some();
        if passage.fresh && holds {
            self.ahead_max = 0;
            self.doubt_ahead();
        }
        self.found += passage.found;
        self.entered += passage.entered;
        self.entered_since_asked += passage.entered;
        self.left += passage.left;
        self.behind = (self.behind + passage.entered).saturating_sub(passage.left);
        self.ahead += flow.ahead.len() as u64;
    }

    /// How many wait, as far as is known: rather too many than too few.
    fn waiting(&self) -> u64 {
        (self.counted.unwrap_or(self.found) + self.entered).saturating_sub(self.left)
    }

    /// More may wait ahead of its cursor than the store has counted yet.
    fn doubt_ahead(&mut self) {
        (self.ahead_grew, self.steady, self.behind) = (true, false, 0);
    }

    /// What of so many waits behind its cursor.
    fn without_ahead(&self, waiting: u64) -> u64 {
        waiting.saturating_sub(self.ahead.min(self.ahead_max))
    }

    /// Works out whether what is new is read, and what is to be said of it.
    fn weigh(&mut self, most: u64) -> Option<Filling> {
        let waiting = self.waiting();
        let behind = self.without_ahead(waiting);
        let (was_full, was_near) = (self.full, self.near);
        self.full = match was_full && self.confirmed {
            // An eighth has to go first, so that it does not stop and go with each event.
            true => behind > most - (most / 8).max(1),
            false => behind >= most,
        };
        self.confirmed &= self.full;
        self.near = match was_near {
            true => waiting > most / 8 * 3,
            false => waiting >= most.div_ceil(2),
        };
        reach!(WaitingFull, if self.full && !was_full);
        reach!(WaitingRoom, if was_full && !self.full);
        match (was_full, self.full, was_near, self.near) {
            (false, true, ..) => Some(Filling::Full),
            (true, false, ..) => Some(Filling::Room),
            (.., false, true) => Some(Filling::Half),
            (.., true, false) => Some(Filling::Less),
            _ => None,
        }
    }

    /// When the store is to be asked again; `None` while it is being asked, or if nothing can have changed that this
    /// relay does not know.
    fn ask_at(&self, share: Share, most: u64, pause: Duration) -> Option<Tick> {
        if self.asked.is_some() {
            return None;
        }
        let soonest = self.answered + pause.max(self.took * REST);
        let Some(counted) = self.counted.filter(|_| !self.failed) else {
            return Some(if self.failed { soonest } else { self.answered });
        };
        // Others let as many wait, each as far as it owns partitions: they are counted again before all together can
        // have come half of the way that was left.
        let step = share.of(most.saturating_sub(counted)) / 2;
        let grown = share.is_part() && self.entered > step.max(share.of(most / 64));
        let doubted = self.full && !self.confirmed;
        match () {
            () if doubted || grown || self.inherited => Some(soonest),
            () if self.touched && self.near => Some(soonest),
            () if self.near => Some(soonest.max(self.answered + NEAR_EVERY)),
            () if share.is_part() || self.touched => Some(soonest.max(self.answered + FAR_EVERY)),
            () => None,
        }
    }

    /// A question goes out, while so many are on their way into `waiting`: the store may not count them yet.
    fn ask(&mut self, entering: u64, now: Tick) {
        (self.asked, self.entered_since_asked) = (Some(now), entering);
        (self.touched, self.inherited, self.steady) = (false, false, true);
    }

    /// The answer, `None` if there is none: what was known before holds on.
    fn answer(&mut self, waiting: Option<u64>, most: u64, now: Tick) {
        let asked = self.asked.take().unwrap_or(now);
        (self.answered, self.took) = (now, now.since(asked));
        self.failed = waiting.is_none();
        self.touched |= self.failed;
        if let Some(waiting) = waiting {
            (self.counted, self.entered, self.left) = (Some(waiting), self.entered_since_asked, 0);
            if self.steady {
                // What is on its way may be in the count or not.
                let behind = self.behind.saturating_sub(self.entered_since_asked);
                let ahead = waiting.saturating_sub(behind);
                let grew = std::mem::take(&mut self.ahead_grew);
                self.ahead_max = if grew { ahead } else { ahead.min(self.ahead_max) };
            }
            self.confirmed = self.full && self.without_ahead(waiting) >= most;
        }
    }
}

/// How many of all partitions this relay owns.
#[derive(Clone, Copy, Debug)]
struct Share {
    owned: u64,
    partitions: u64,
}

impl Share {
    /// Its part of a number.
    fn of(self, number: u64) -> u64 {
        number.saturating_mul(self.owned) / self.partitions.max(1)
    }

    /// Whether others own something too, or may.
    fn is_part(self) -> bool {
        self.owned < self.partitions
    }
}

impl Machine {
    /// Whether something new of a destination may be read: it is open, and fewer wait than may.
    pub(crate) fn may_read(&self, destination: &DestinationId) -> bool {
        let full = self.gauges.get(destination).is_some_and(|gauge| gauge.full);
        self.is_open(destination) && (!full || planted!(WaitingUnbounded))
    }

    /// Destinations of which nothing new is read, with how many wait.
    pub(crate) fn full_destinations(&self) -> impl Iterator<Item = (&DestinationId, u64)> {
        let full = self.gauges.iter().filter(|(id, gauge)| gauge.full && self.is_open(id));
        full.map(|(id, gauge)| (id, gauge.waiting()))
    }

    /// Takes over what came to wait and what has left, and asks the store how many there are, where that is due.
    pub(crate) fn gauge(&mut self) {
        if self.mode.is_draining() {
            return;
        }
        let most = self.settings.waiting_max;
        self.gauges.retain(|destination, _| self.outlets.contains_key(destination));
        self.gauges.values_mut().for_each(|gauge| gauge.ahead = 0);
        for owned in self.owned.values_mut() {
            for (destination, state) in &mut owned.flows {
                let FlowState::Ready(flow) = state else { continue };
                if flow.passage.is_empty() && flow.ahead.is_empty() {
                    continue;
                }
                match self.gauges.get_mut(destination) {
                    Some(gauge) => gauge.add(flow),
                    None => self.gauges.entry(destination.clone()).or_default().add(flow),
                }
            }
        }
        for (destination, gauge) in &mut self.gauges {
            if let Some(filling) = gauge.weigh(most) {
                let (destination, waiting) = (destination.clone(), gauge.waiting());
                self.notices.push(Notice::Waiting { destination, waiting, most, filling });
            }
        }
        self.count_waiting();
    }

    fn count_waiting(&mut self) {
        let due: Vec<DestinationId> = self
            .gauges_open()
            .filter(|(_, at)| *at <= self.now)
            .map(|(destination, _)| destination.clone())
            .collect();
        for destination in due {
            let flows = self.owned.values().flat_map(|owned| owned.ready());
            let entering = flows
                .filter(|(id, _)| **id == destination)
                .map(|(_, flow)| flow.entering.rows())
                .sum();
            let Some(gauge) = self.gauges.get_mut(&destination) else { continue };
            reach!(WaitingCounted);
            gauge.ask(entering, self.now);
            self.command(Asked::Count(destination.clone()), Command::Count(destination));
        }
    }

    pub(crate) fn waiting_counted(&mut self, destination: &DestinationId, result: Result<Counts>) {
        if !self.outlets.contains_key(destination) {
            return;
        }
        let counts = self.stats.trouble.note(Work::Count, Some(destination), result);
        reach!(WaitingNotCounted, if counts.is_none());
        if let Some(gauge) = self.gauges.get_mut(destination) {
            gauge.answer(counts.map(|counts| counts.total()), self.settings.waiting_max, self.now);
        }
    }

    /// Operators' requests were carried out: some of what waited is gone, or due, or new.
    pub(crate) fn gauges_touched(&mut self) {
        for gauge in self.gauges.values_mut() {
            gauge.touched = true;
            gauge.doubt_ahead();
        }
    }

    /// When the store is to be asked next how many wait.
    pub(crate) fn gauge_wake_at(&self) -> Option<Tick> {
        let draining = self.mode.is_draining();
        self.gauges_open().map(|(_, at)| at).filter(|_| !draining).min()
    }

    /// The gauges of destinations that are open, with when the store is to be asked.
    fn gauges_open(&self) -> impl Iterator<Item = (&DestinationId, Tick)> {
        let share = Share { owned: self.owned.len() as u64, partitions: self.partitions.into() };
        let (most, pause) = (self.settings.waiting_max, self.settings.poll_max);
        let open = self.gauges.iter().filter(|(id, _)| self.is_open(id));
        open.filter_map(move |(id, gauge)| Some((id, gauge.ask_at(share, most, pause)?)))
    }
}

#[cfg(test)]
mod tests;
