//! Outlets: a destination's way out, with its endpoints, their breakers, and the lanes that are ready.
//!
//! Keeps INV-5: each endpoint has its own breaker and its own queue, so a dead one costs one probe
//! of one event at a time, and the others keep their pace.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{
    BrokerCapabilities, Destination, Event, Jitter, KeyHash, Layout, PartitionId, Route, Tick,
    reach,
};

use crate::disable::Disabling;
use crate::endpoint::Endpoint;
use crate::hold::Holds;
use crate::settings::Settings;
use crate::sweep::ENDPOINTS_KEPT;
use crate::turn::Turn;

/// A lane, by its name.
pub(crate) type LaneRef = (PartitionId, KeyHash);

/// A destination that this relay serves.
#[derive(Debug)]
pub(crate) struct Outlet {
    pub(crate) definition: Arc<Destination>,
    /// Its version in the store.
    pub(crate) version: u64,
    /// What each route says about messages besides their format.
    layouts: Vec<Option<Arc<Layout>>>,
    pub(crate) capabilities: BrokerCapabilities,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) by_topic: BTreeMap<Arc<str>, u32>,
    /// Places of endpoints that were forgotten.
    pub(crate) free: Vec<u32>,
    /// How many endpoints there may be before unused ones are looked for.
    pub(crate) sweep_at: usize,
    /// Endpoints with ready lanes, each once, in turn.
    turn: VecDeque<u32>,
    /// Lanes that are ready at a time.
    pub(crate) timers: BTreeMap<(Tick, u64), (u32, LaneRef)>,
    timer_next: u64,
    /// Batches under way.
    pub(crate) in_flight: u32,
    /// Endpoints with failures since their last acknowledgement.
    pub(crate) failing: u32,
    /// The last acknowledgement by any endpoint.
    pub(crate) last_ack: Option<Tick>,
    /// When an event was last acknowledged, or got an answer of its own.
    pub(crate) moved_at: Option<Tick>,
    /// Since when it moves, without a silence of [`HELD`](crate::progress::HELD).
    pub(crate) moving_since: Tick,
    /// When it was last seen with nothing to deliver.
    pub(crate) idle_at: Tick,
    /// When it was last seen with all of it well.
    pub(crate) well_at: Tick,
    /// Endpoints that are disabled, by topic. Kept apart from the endpoints, so that a sweep of those
    /// that are not used does not forget it.
    pub(crate) disabled: BTreeMap<Box<str>, Disabling>,
    /// Those of them that the store is to be told of.
    pub(crate) untold: BTreeSet<Box<str>>,
    /// Types that endpoints refuse.
    pub(crate) holds: Holds,
    /// Lanes that became ready for an endpoint that is disabled.
    pub(crate) stranded: Vec<(u32, LaneRef)>,
    /// A buffer for rendering topics.
    topic: String,
}

impl Outlet {
    pub(crate) fn new(definition: Arc<Destination>, capabilities: BrokerCapabilities) -> Outlet {
        Outlet {
            layouts: definition.routes.iter().map(Route::layout).collect(),
            definition,
            version: 0,
            capabilities,
            endpoints: Vec::new(),
            by_topic: BTreeMap::new(),
            free: Vec::new(),
            sweep_at: ENDPOINTS_KEPT,
            turn: VecDeque::new(),
            timers: BTreeMap::new(),
            timer_next: 0,
            in_flight: 0,
            failing: 0,
            last_ack: None,
            moved_at: None,
            moving_since: Tick::default(),
            idle_at: Tick::default(),
            well_at: Tick::default(),
            disabled: BTreeMap::new(),
            untold: BTreeSet::new(),
            holds: Holds::default(),
            stranded: Vec::new(),
            topic: String::new(),
        }
    }

    /// The endpoint that a route names for an event.
    pub(crate) fn endpoint_of(&mut self, route: usize, event: &Event) -> u32 {
        self.topic.clear();
        self.definition.routes[route].topic.render_into(event, &mut self.topic);
        if let Some(index) = self.by_topic.get(self.topic.as_str()) {
            return *index;
        }
        let topic: Arc<str> = Arc::from(self.topic.as_str());
        reach!(EndpointFound);
        let mut endpoint = Endpoint::new(Arc::clone(&topic), self.capabilities.batch_rows_max);
        endpoint.disabled = self.disabled.contains_key(&*topic);
        let index = match self.free.pop() {
            Some(index) => {
                self.endpoints[index as usize] = endpoint;
                index
            }
            None => {
                self.endpoints.push(endpoint);
                u32::try_from(self.endpoints.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.by_topic.insert(topic, index);
        index
    }

    /// The index of the first route that matches.
    pub(crate) fn route_of(&self, event: &Event) -> Option<usize> {
        self.definition.routes.iter().position(|route| route.matches.matches(event))
    }

    pub(crate) fn route(&self, index: u16) -> &Route {
        &self.definition.routes[usize::from(index)]
    }

    pub(crate) fn layout(&self, index: u16) -> Option<Arc<Layout>> {
        self.layouts[usize::from(index)].clone()
    }

    pub(crate) fn endpoint(&self, index: u32) -> &Endpoint {
        &self.endpoints[index as usize]
    }

    /// Puts a lane into its endpoint's queue.
    pub(crate) fn ready(&mut self, index: u32, lane: LaneRef) {
        let endpoint = &mut self.endpoints[index as usize];
        if endpoint.disabled {
            return self.stranded.push((index, lane));
        }
        endpoint.ready.push_back(lane);
        self.takes_turns(index);
    }

    /// An endpoint with something ready takes its turns among the others.
    pub(crate) fn takes_turns(&mut self, index: u32) {
        let endpoint = &mut self.endpoints[index as usize];
        if !endpoint.in_turn {
            endpoint.in_turn = true;
            self.turn.push_back(index);
        }
    }

    /// Puts a lane into its endpoint's queue at a time.
    pub(crate) fn ready_at(&mut self, at: Tick, index: u32, lane: LaneRef) {
        self.timers.insert((at, self.timer_next), (index, lane));
        self.timer_next += 1;
    }

    /// Moves lanes whose time has come into their queues.
    pub(crate) fn tick(&mut self, now: Tick) {
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (index, lane) = entry.remove();
            self.ready(index, lane);
        }
    }

    /// Whether something stands ready for some endpoint.
    pub(crate) fn has_ready(&self) -> bool {
        !self.turn.is_empty()
    }

    /// The next endpoint, in turn, to which a batch may go now.
    pub(crate) fn next_endpoint(&mut self, now: Tick) -> Option<u32> {
        if self.in_flight >= self.capabilities.batches_in_flight_max.max(1) {
            return None;
        }
        for _ in 0..self.turn.len() {
            let index = self.turn.pop_front()?;
            let endpoint = &mut self.endpoints[index as usize];
            if endpoint.ready.is_empty() {
                endpoint.in_turn = false;
                continue;
            }
            self.turn.push_back(index);
            let endpoint = &self.endpoints[index as usize];
            if endpoint.may_send(now, self.capabilities.endpoint_batches_max) {
                return Some(index);
            }
        }
        None
    }

    /// How many events a batch to the endpoint may have now: one while it is being probed.
    pub(crate) fn batch_rows(&self, index: u32) -> u32 {
        let endpoint = self.endpoint(index);
        if endpoint.failures > 0 { 1 } else { endpoint.batch_rows.max(1) }
    }

    /// The next ready lane of an endpoint.
    pub(crate) fn pop_ready(&mut self, index: u32) -> Option<LaneRef> {
        let lane = self.endpoints[index as usize].ready.pop_front()?;
        self.leaves_queue(index, lane);
        Some(lane)
    }

    /// Puts a lane back to the front, because it did not fit the batch.
    pub(crate) fn put_back(&mut self, index: u32, lane: LaneRef) {
        self.endpoints[index as usize].ready.push_front(lane);
    }

    /// A batch was sent.
    pub(crate) fn sent(&mut self, index: u32) {
        self.in_flight += 1;
        self.endpoints[index as usize].in_flight += 1;
    }

    /// A batch was answered, or given up.
    pub(crate) fn answered(&mut self, index: u32) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.in_flight = endpoint.in_flight.saturating_sub(1);
    }

    /// The endpoint acknowledged something. Says how often in a row it had failed before, and for how
    /// long, if it had.
    pub(crate) fn acked(
        &mut self,
        index: u32,
        now: Tick,
        settings: &Settings,
    ) -> Option<(u32, Duration)> {
        self.last_ack = Some(now);
        let rows_max = self.capabilities.batch_rows_max.max(1);
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.last_ack = Some(now);
        endpoint.batch_rows = endpoint.batch_rows.saturating_mul(2).clamp(1, rows_max);
        let failures = endpoint.recover();
        let away = now.since(endpoint.failing_since);
        self.failing -= u32::from(failures > 0);
        reach!(EndpointRecovered, if failures > 0);
        self.moved(now, settings);
        (failures > 0).then_some((failures, away))
    }

    /// The endpoint failed, through no fault of an event: it pauses. Says how long.
    pub(crate) fn failed(
        &mut self,
        index: u32,
        now: Tick,
        sent: Tick,
        after: Option<Duration>,
        settings: &Settings,
        jitter: &mut Jitter,
    ) -> Duration {
        let endpoint = &mut self.endpoints[index as usize];
        if endpoint.failures == 0 {
            endpoint.failing_since = now;
            reach!(EndpointSuspected);
            self.failing += 1;
        }
        endpoint.fail(now, sent, after, self.capabilities.pause_max, settings, jitter)
    }

    /// A batch failed without naming an event: the next has half as many.
    pub(crate) fn halve(&mut self, index: u32, rows: u32) {
        reach!(BatchHalved, if rows > 1);
        self.endpoints[index as usize].batch_rows = (rows / 2).max(1);
    }

    /// Whether an endpoint is disabled.
    pub(crate) fn is_disabled(&self, index: u32) -> bool {
        self.endpoint(index).disabled
    }

    /// An endpoint is disabled, or in service again: whatever it did before is forgotten.
    pub(crate) fn set_disabled(&mut self, topic: &str, disabled: bool) {
        let Some(index) = self.by_topic.get(topic).copied() else { return };
        let endpoint = &mut self.endpoints[index as usize];
        self.failing -= u32::from(endpoint.recover() > 0);
        endpoint.disabled = disabled;
        reach!(EndpointDisabled, if disabled);
        reach!(EndpointEnabled, if !disabled);
        let ready = std::mem::take(&mut endpoint.ready);
        ready.into_iter().for_each(|lane| self.ready(index, lane));
    }

    /// Takes out what became ready for endpoints that are disabled.
    pub(crate) fn take_stranded(&mut self) -> Vec<(u32, LaneRef)> {
        let (stranded, ready): (Vec<_>, Vec<_>) = std::mem::take(&mut self.stranded)
            .into_iter()
            .partition(|(index, _)| self.is_disabled(*index));
        ready.into_iter().for_each(|(index, lane)| self.ready(index, lane));
        stranded
    }

    /// Whether the endpoint is down while others of the destination are not. Its events then leave
    /// the window, so that they do not hold the cursor; when the whole destination is down, they
    /// stay, and the cursor stands.
    pub(crate) fn is_down_alone(&self, index: u32, settings: &Settings) -> bool {
        let endpoint = self.endpoint(index);
        endpoint.is_down(settings)
            && self.last_ack.is_some_and(|ack| endpoint.last_ack.is_none_or(|own| own < ack))
            && self.has_witness()
    }

    /// Endpoints that are down while another took what it was given last. Whether the whole
    /// destination is down nobody knows until the other is given something: what fills a window for
    /// these must not hide it.
    pub(crate) fn hiders(&self, settings: &Settings) -> Vec<u32> {
        if self.failing == 0 || !self.has_witness() {
            return Vec::new();
        }
        (0..)
            .zip(&self.endpoints)
            .filter(|(index, _)| self.is_down(*index, settings))
            .map(|(index, _)| index)
            .collect()
    }

    /// Whether some endpoint took what it was given last, and would take more.
    fn has_witness(&self) -> bool {
        let healthy = |other: &Endpoint| other.failures == 0 && other.last_ack.is_some();
        self.endpoints.iter().any(|other| healthy(other) && !other.disabled)
    }

    /// Whether an endpoint counts as down.
    pub(crate) fn is_down(&self, index: u32, settings: &Settings) -> bool {
        self.endpoint(index).is_down(settings)
    }

    /// Whether something stands ready to be the next probe of an endpoint, or is it.
    pub(crate) fn has_probe(&self, index: u32) -> bool {
        let endpoint = self.endpoint(index);
        endpoint.in_flight > 0 || !endpoint.ready.is_empty()
    }

    /// Nothing of an endpoint stands ready any more: all of it went back to the store.
    pub(crate) fn forget_ready(&mut self, index: u32) {
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.ready.clear();
        endpoint.turn = Turn::Any;
    }

    /// Endpoints with failures since their last acknowledgement.
    pub(crate) fn failing(&self) -> u32 {
        self.failing
    }

    /// When the outlet wants to be looked at again, if nothing else happens.
    pub(crate) fn wake_at(&self, now: Tick) -> Option<Tick> {
        let timer = self.timers.first_key_value().map(|((at, _), _)| *at);
        let paused = self
            .turn
            .iter()
            .map(|index| self.endpoint(*index))
            .filter(|endpoint| !endpoint.ready.is_empty() && endpoint.paused_until > now)
            .map(|endpoint| endpoint.paused_until)
            .min();
        [timer, paused].into_iter().flatten().min()
    }
}
