//! Fetch: load where a flow stands, and read ahead within the window.
//!
//! Destinations of a partition that stand at the same cursor share a page. How much room each has
//! is in [`room`](crate::room), and when each looks again in [`pace`](crate::pace).

use postrider_core::source::{FetchRequest, Loaded, Page};
use postrider_core::{
    Cursor, DestinationId, Error, ErrorKind, Invariant, PartitionId, Result, reach,
};

use crate::command::Command;
use crate::flow::Flow;
use crate::machine::{Asked, Machine};
use crate::owned::{FlowState, Head, Owned};
use crate::pace::{BUSY_POLLS, beat};
use crate::room::Budget;
use crate::trial::CAREFUL_AFTER;
use crate::trouble::Work;

/// Whether what was read so far is void: the reading was replaced, or the server is another one.
pub(crate) fn is_void(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Conflict)
}

impl Machine {
    /// The store says that something may have been committed: look at once.
    pub(crate) fn wake(&mut self) {
        let now = self.now;
        self.carrying.hurry(now);
        for owned in self.owned.values_mut() {
            owned.admit_at = owned.admit_at.map(|at| at.min(now));
            for state in owned.flows.values_mut() {
                if let FlowState::Ready(flow) = state {
                    flow.poll_at = flow.poll_at.min(now);
                    flow.woken = flow.fetching;
                    reach!(WokenWhileFetching, if flow.fetching);
                }
            }
        }
    }

    /// The application is about to commit: poll fast for a while.
    pub(crate) fn nudge(&mut self) {
        reach!(RelayNudged);
        let until = self.now + self.settings.nudge;
        for owned in self.owned.values_mut() {
            for state in owned.flows.values_mut() {
                if let FlowState::Ready(flow) = state {
                    flow.pace.nudge(until);
                }
            }
        }
        self.wake();
    }

    /// Loads, reads, and asks for what waits, in every partition that is ours to read.
    pub(crate) fn tend_flows(&mut self) {
        if self.mode.is_draining() {
            return;
        }
        let partitions: Vec<_> =
            self.owned.iter().filter(|(_, owned)| !owned.leaving).map(|(id, _)| *id).collect();
        // The sum over all windows, once: what is asked for now is not in any of them yet.
        let mut budget = self.budget();
        for partition in partitions {
            self.load(partition);
            self.look_at_head(partition);
            self.admit(partition);
            self.hold_trials(partition);
            self.ask_for_due(partition);
            self.relieve(partition, &budget);
            self.probe_paused(partition);
            self.fetch(partition, &mut budget);
        }
        self.read_ranges();
    }

    fn load(&mut self, partition: PartitionId) {
        let now = self.now;
        let Some(owned) = self.owned.get_mut(&partition) else {
            return;
        };
        if owned.carrying {
            // Counts that are read now might be from before what is being carried out, or after.
            return;
        }
        for destination in self.outlets.keys() {
            if !owned.flows.contains_key(destination) {
                owned.flows.insert(destination.clone(), FlowState::Wanted(now));
            }
        }
        let due = |state: &FlowState| matches!(state, FlowState::Wanted(at) if *at <= now);
        let wanted = owned.flows.iter().filter(|(_, state)| due(state));
        let mut wanted: Vec<DestinationId> = wanted.map(|(id, _)| id.clone()).collect();
        wanted.retain(|id| self.is_open(id));
        let Some(owned) = self.owned.get_mut(&partition).filter(|_| !wanted.is_empty()) else {
            return;
        };
        let lease = owned.lease.clone();
        for destination in &wanted {
            owned.flows.insert(destination.clone(), FlowState::Loading(now));
        }
        for destination in wanted {
            let asked = Asked::Load(partition, lease.token, destination.clone());
            self.command(asked, Command::Load(lease.clone(), destination));
        }
    }

    pub(crate) fn loaded(
        &mut self,
        partition: PartitionId,
        token: u64,
        destination: DestinationId,
        result: Result<Loaded>,
    ) {
        let now = self.now;
        let rows_max = self.settings.window.rows_max;
        let outlet = self.outlets.get(&destination);
        let unrouted = outlet.is_some_and(|outlet| outlet.definition.is_unrouted());
        let result = match result {
            Err(error) if is_void(&error) => return self.refused(partition, token, error),
            result => result,
        };
        let retry = match &result {
            Ok(_) => now,
            Err(_) => self.again_within(self.settings.heartbeat),
        };
        let Some(owned) = self.owned_under(partition, token) else {
            return;
        };
        let careful = if owned.takeovers >= CAREFUL_AFTER { rows_max.div_ceil(8) } else { 0 };
        let Some(state) = owned.flows.get_mut(&destination) else {
            return;
        };
        match owned.trouble.note(Work::Load, Some(&destination), result) {
            Some(loaded) => {
                let mut flow = Flow::new(partition, destination, loaded, now);
                (flow.careful, flow.wary, flow.unrouted) = (careful, careful, unrouted);
                reach!(FlowLoaded);
                reach!(FlowCareful, if careful > 0);
                *state = FlowState::Ready(Box::new(flow));
                self.carrying.resume(now);
            }
            None => {
                reach!(LoadFailed);
                *state = FlowState::Wanted(retry);
            }
        }
    }

    /// A drain reads its target once, when the partition is ours.
    fn look_at_head(&mut self, partition: PartitionId) {
        if !self.mode.has_target() {
            return;
        }
        let now = self.now;
        let Some(owned) = self.owned.get_mut(&partition) else {
            return;
        };
        if matches!(owned.head, Head::Wanted(at) if at <= now) {
            owned.head = Head::Asked;
            let lease = owned.lease.clone();
            self.command(Asked::Head(partition, lease.token), Command::Head(lease));
        }
    }

    pub(crate) fn head_known(
        &mut self,
        partition: PartitionId,
        token: u64,
        result: Result<Cursor>,
    ) {
        let result = match result {
            Err(error) if is_void(&error) => return self.refused(partition, token, error),
            result => result,
        };
        let retry = match &result {
            Ok(_) => self.now,
            Err(_) => self.again_within(self.settings.poll_max),
        };
        let Some(owned) = self.owned_under(partition, token) else {
            return;
        };
        reach!(HeadRead);
        owned.head = match owned.trouble.note(Work::Head, None, result) {
            Some(head) => Head::Known(head),
            None => Head::Wanted(retry),
        };
    }

    /// Reads a page for each group of destinations that stand at one cursor and have room.
    fn fetch(&mut self, partition: PartitionId, budget: &mut Budget) {
        let has_target = self.mode.has_target();
        loop {
            let Some(owned) = self.owned.get(&partition) else {
                return;
            };
            if !owned.ready().any(|(_, flow)| self.wants_page(flow)) {
                return;
            }
            if owned.loading_until().is_some_and(|until| self.now < until) {
                // A moment later all flows begin together, and share their pages.
                reach!(FetchHeldByLoading);
                return;
            }
            let until = match &owned.head {
                Head::Known(head) => Some(head.clone()),
                _ if has_target => return,
                _ => None,
            };
            let group = self.group(owned, budget);
            let Some((after, destinations, rows_max, bytes_max)) = group else {
                return;
            };
            let request = FetchRequest {
                lease: owned.lease.clone(),
                destinations: destinations.clone(),
                after,
                until,
                rows_max,
                bytes_max,
            };
            let token = owned.lease.token;
            let asked = Asked::Fetch(partition, token, destinations.clone(), rows_max);
            budget.asked(&destinations, bytes_max);
            self.stats.fetches += 1;
            let page = self.stats.fetches;
            if let Some(owned) = self.owned.get_mut(&partition) {
                for destination in &destinations {
                    if let Some(flow) = owned.flow(destination) {
                        (flow.fetching, flow.page) = (true, page);
                        flow.is_read();
                    }
                }
            }
            reach!(FetchSent);
            reach!(FetchShared, if destinations.len() > 1);
            self.command(asked, Command::Fetch(request));
        }
    }

    /// Whether a flow would read now, if it may.
    fn wants_page(&self, flow: &Flow) -> bool {
        !flow.fetching && !flow.reached && flow.poll_at <= self.now
    }

    /// The next group of flows that want to read, with the room that all of them have.
    fn group(
        &self,
        owned: &Owned,
        budget: &Budget,
    ) -> Option<(Cursor, Vec<DestinationId>, u32, u64)> {
        let mut group: Option<(Cursor, Vec<DestinationId>, u32, u64)> = None;
        for (destination, flow) in owned.ready() {
            if !self.wants_page(flow) || !self.may_read(destination) {
                continue;
            }
            if self.waits_until(owned, flow, budget).is_some() {
                reach!(FetchWaitsForCompanion);
                continue;
            }
            let Some((rows, bytes)) = self.room(flow, budget) else {
                reach!(WindowFull);
                continue;
            };
            match &mut group {
                None => {
                    let after = flow.window.read().clone();
                    group = Some((after, vec![destination.clone()], rows, bytes));
                }
                Some((after, destinations, rows_max, bytes_max)) if after == flow.window.read() => {
                    destinations.push(destination.clone());
                    *rows_max = rows.min(*rows_max);
                    *bytes_max = bytes.min(*bytes_max);
                }
                Some(_) => {}
            }
        }
        group
    }

    /// Compares a page with what was asked for.
    pub(crate) fn check_page(&mut self, rows_max: u32, result: &Result<Page>) {
        if result.as_ref().is_ok_and(|page| page.rows.len() > rows_max as usize) {
            self.violated((Invariant::Bounded, "a page has more rows than there is room for"));
        }
    }

    pub(crate) fn fetched(
        &mut self,
        partition: PartitionId,
        token: u64,
        destinations: &[DestinationId],
        result: Result<Page>,
    ) {
        let (now, settings) = (self.now, self.settings);
        let has_target = self.mode.has_target();
        let Some(owned) = self.owned.get_mut(&partition) else {
            return;
        };
        if owned.lease.token != token {
            return;
        }
        let page = match result {
            Ok(page) => page,
            Err(error) if is_void(&error) => {
                reach!(FetchVoid);
                return self.refused(partition, token, error);
            }
            Err(error) => return self.fetch_failed(partition, destinations, error),
        };
        for destination in destinations {
            owned.trouble.clear(Work::Fetch, Some(destination));
        }
        self.stats.rows_read += page.rows.len() as u64;
        reach!(FetchEmpty, if page.rows.is_empty());
        reach!(FetchMore, if page.more);
        let found = !page.rows.is_empty();
        let begins = found && now >= self.busy_until;
        if found {
            self.busy_until = now + settings.poll_min * BUSY_POLLS;
        }
        let busy = found || (settings.in_step && now < self.busy_until);
        for destination in destinations {
            let Some(outlet) = self.outlets.get_mut(destination) else {
                continue;
            };
            let Some(flow) = owned.flow(destination) else {
                continue;
            };
            flow.fetching = false;
            let start = flow.window.read().clone();
            let befores = std::iter::once(&start).chain(page.rows.iter().map(|row| &row.cursor));
            for (row, before) in page.rows.iter().zip(befores) {
                flow.take(row, before, outlet, &self.routes, &settings, now);
            }
            flow.window.read_to(page.end.clone());
            flow.was_read(now);
            flow.reached = has_target && !page.more;
            let pause = flow.pace.next(busy, now, settings.poll_min, settings.poll_max);
            let woken = std::mem::take(&mut flow.woken);
            flow.poll_at = match () {
                () if page.more || woken => now,
                // At the same moments as all others, and the faster ones at those of the slower.
                () if settings.in_step => beat(now, pause),
                () => now + pause,
            };
            if flow.unsaved_since.is_none() && flow.has_outcomes() {
                flow.unsaved_since = Some(now);
            }
        }
        if begins && settings.in_step {
            self.hurry(beat(now, settings.poll_min));
        }
    }

    /// A page could not be read: what it was for is asked for again after a pause.
    fn fetch_failed(
        &mut self,
        partition: PartitionId,
        destinations: &[DestinationId],
        error: Error,
    ) {
        let slow = error.kind() == ErrorKind::Rewound;
        reach!(FetchFailed, if !slow);
        reach!(FetchRewound, if slow);
        let pause = if slow { self.settings.heartbeat } else { self.settings.poll_max };
        let again = self.again_within(pause);
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        for destination in destinations {
            if let Some(flow) = owned.flow(destination) {
                flow.fetching = false;
                flow.poll_at = again;
            }
        }
        let gone = error.kind() == ErrorKind::NotFound;
        owned.trouble.add(Work::Fetch, destinations.first(), error);
        if gone {
            // One of them was removed, or has another name now: nothing that is sent under the old one is saved.
            self.define_again();
        }
    }
}
