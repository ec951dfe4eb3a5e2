//! Take: where each event goes that is read from the outbox.
//!
//! Keeps INV-3: what follows an event that waits goes behind it.

use std::sync::Arc;

use postrider_core::source::{FetchedRow, Malformed};
use postrider_core::waiting::{Passed, Placement, Reason, RowRef};
use postrider_core::{Cursor, Event, Payload, Tick, planted, reach};

use crate::attempt::{attempted, holds_key};
use crate::flow::Flow;
use crate::hot::share;
use crate::lane::{Entry, Origin};
use crate::outlet::Outlet;
use crate::routes::Routed;
use crate::settings::Settings;
use crate::window::Ordinal;

impl Flow {
    /// Takes a fetched row: into a lane, behind its key in `waiting`, or past it. `before` has passed all before it.
    pub(crate) fn take(
        &mut self,
        row: &FetchedRow,
        before: &Cursor,
        outlet: &mut Outlet,
        routed: &dyn Routed,
        settings: &Settings,
        now: Tick,
    ) {
        let ordinal = self.window.push(row.row, row.key_hash, row.cursor.clone(), row.bytes);
        if self.ahead.remove(&row.row.seq) {
            reach!(RowFoundAgain);
            self.window.settle(ordinal, Passed::Waiting);
            self.look_for_due(now);
            return;
        }
        let event = match &row.event {
            Ok(event) => event,
            Err(Malformed { event: Some(event), .. }) => event,
            Err(malformed) => {
                let of_range = !outlet.definition.is_unrouted()
                    && self.ranges.has(row.key_hash)
                    && self.pass_by_range(ordinal, row, before, outlet, settings);
                if !of_range {
                    self.take_malformed(ordinal, row, malformed, outlet, now);
                }
                return;
            }
        };
        if outlet.definition.is_unrouted() {
            return self.take_unrouted(ordinal, row, event, routed, now);
        }
        let Some(route) = outlet.route_of(event) else {
            reach!(RowOfOtherRoute);
            return self.window.settle(ordinal, Passed::OtherRoute);
        };
        if outlet.definition.routes[route].drop {
            reach!(RowDropped);
            return self.window.settle(ordinal, Passed::Dropped);
        }
        let holds = self.waits(row.key_hash) || self.ranges.has(row.key_hash);
        if holds && self.pass_by_range(ordinal, row, before, outlet, settings) {
            return;
        }
        if let Err(malformed) = &row.event
            && event.payload != Payload::Erased
        {
            return self.take_malformed(ordinal, row, malformed, outlet, now);
        }
        if let Some(placement) = self.suspicion() {
            reach!(SuspectEntered);
            return self.wait(ordinal, row, Some(event), placement, now);
        }
        if self.waits(row.key_hash) {
            reach!(RowBehindWaitingKey);
            return self.wait(ordinal, row, Some(event), Placement::Behind(Reason::Behind), now);
        }
        if event.payload == Payload::Erased {
            reach!(RowErased);
            return self.window.settle(ordinal, Passed::Erased);
        }
        if let Err(error) = outlet.definition.limits.check_size(event) {
            reach!(RowTooLarge);
            let attempted = attempted(0, Reason::TooLarge, error.to_string());
            let holds_key = holds_key(outlet.definition.routes[route].dead_key);
            let placement = Placement::Dead { attempted, holds_key };
            return self.wait(ordinal, row, Some(event), placement, now);
        }
        self.enter_lane(ordinal, row, event, route, outlet, settings, now);
    }

    /// Puts a row at the end of its key's lane, unless its endpoint is down or its key is hot.
    #[expect(clippy::too_many_arguments, reason = "a step of `take`, which has them all")]
    fn enter_lane(
        &mut self,
        ordinal: Ordinal,
        row: &FetchedRow,
        event: &Arc<Event>,
        route: usize,
        outlet: &mut Outlet,
        settings: &Settings,
        now: Tick,
    ) {
        let endpoint = outlet.endpoint_of(route, event);
        if outlet.is_disabled(endpoint) {
            reach!(RowForDisabled);
            let placement = Flow::behind_endpoint(outlet, endpoint);
            return self.wait(ordinal, row, Some(event), placement, now);
        }
        if outlet.is_down_alone(endpoint, settings) {
            reach!(RowForEndpointDown);
            if planted!(BreakerDrops) {
                return self.window.settle(ordinal, Passed::Dropped);
            }
            let attempted = attempted(0, Reason::EndpointDown, String::new());
            let placement = Placement::Retry { delay: outlet.pause_left(endpoint, now), attempted };
            return self.wait(ordinal, row, Some(event), placement, now);
        }
        let lane = self.lanes.entry(row.key_hash).or_default();
        if lane.len() as u64 >= share(settings) {
            // A hot key must not fill the window: the rest of it waits in the store.
            reach!(HotKeyParked);
            return self.wait(ordinal, row, Some(event), Placement::Behind(Reason::Behind), now);
        }
        let entry = Entry {
            event: Arc::clone(event),
            row: row.row,
            origin: Origin::Stream(ordinal),
            endpoint,
            route: u16::try_from(route).unwrap_or(u16::MAX),
            bytes: row.bytes,
            tried: None,
        };
        reach!(LaneOpened, if lane.head().is_none());
        reach!(LaneGrew, if lane.head().is_some());
        lane.push(entry);
        self.open += 1;
        let rows = lane.len() as u64;
        if !lane.queued && lane.in_flight == 0 {
            lane.queued = true;
            outlet.ready(endpoint, (self.partition, row.key_hash));
        }
        self.has_grown(row.key_hash, rows, settings);
    }

    /// A row that is no event is a dead letter of every destination that might have been its own:
    /// which one it was, nobody can say, and its key must not be overtaken.
    fn take_malformed(
        &mut self,
        ordinal: Ordinal,
        row: &FetchedRow,
        malformed: &Malformed,
        outlet: &Outlet,
        now: Tick,
    ) {
        if outlet.definition.is_unrouted() {
            return self.window.settle(ordinal, Passed::OtherRoute);
        }
        let attempted = attempted(0, malformed.reason, malformed.detail.clone());
        reach!(RowMalformed);
        let placement = Placement::Dead { attempted, holds_key: malformed.event.is_none() };
        self.wait(ordinal, row, malformed.event.as_ref(), placement, now);
    }

    fn take_unrouted(
        &mut self,
        ordinal: Ordinal,
        row: &FetchedRow,
        event: &Arc<Event>,
        routed: &dyn Routed,
        now: Tick,
    ) {
        if routed.is_routed(event) {
            return self.window.settle(ordinal, Passed::OtherRoute);
        }
        reach!(RowUnrouted);
        let detail = format!("no route matches the type `{}`", event.event_type.escape_debug());
        let attempted = attempted(0, Reason::NoRoute, detail);
        let placement = Placement::Dead { attempted, holds_key: false };
        self.wait(ordinal, row, Some(event), placement, now);
    }

    /// Lets a row of the window wait in the store, with the next settlement.
    fn wait(
        &mut self,
        ordinal: Ordinal,
        row: &FetchedRow,
        event: Option<&Arc<Event>>,
        placement: Placement,
        now: Tick,
    ) {
        self.note_if_dead(row.row, event, &placement);
        self.enter_waiting(ordinal, row.row, row.key_hash, event.cloned(), placement, now);
    }

    /// Says of a row that it is a dead letter, if it is placed as one.
    pub(crate) fn note_if_dead(
        &mut self,
        row: RowRef,
        event: Option<&Arc<Event>>,
        placement: &Placement,
    ) {
        if let Placement::Dead { attempted, holds_key } = placement {
            let subject = self.subject(row, event.cloned());
            self.note_dead(subject, attempted, *holds_key);
        }
    }
}
