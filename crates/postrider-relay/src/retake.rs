//! Retake: which events come out of `waiting` into their lanes, and which go back or are given up.
//!
//! Keeps INV-3 (what comes out of `waiting` never passes what is under way of its key) and INV-5 (what
//! cannot be sent, because its endpoint is down or its route is gone, takes nobody's place).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::{Reason, WaitingChange, WaitingRow};
use postrider_core::{Payload, Tick, reach};

use crate::attempt::attempted;
use crate::disable::wait_for_endpoint;
use crate::flow::Flow;
use crate::lane::{Entry, Origin};
use crate::outlet::Outlet;
use crate::settings::Settings;

/// What became of a row that was due.
pub(crate) enum Retaken {
    /// It stands in its lane.
    InLane,
    /// Its turn is over: it goes back, is dead, or is on trial. What follows of its key comes later.
    Over,
    /// It is left as it is.
    Left,
}

impl Flow {
    /// Takes events out of `waiting` into their lanes. A key with events under way is left for
    /// later: whatever is under way of it comes first. Says whether it did anything.
    pub(crate) fn take_due(
        &mut self,
        rows: Vec<WaitingRow>,
        outlet: &mut Outlet,
        settings: &Settings,
        now: Tick,
    ) -> bool {
        let mut ours = BTreeSet::new();
        let mut refused = BTreeSet::new();
        let mut did = false;
        for row in rows {
            let key = row.key_hash;
            let seq = row.row.seq;
            let follows = ours.contains(&key)
                && !self.ahead.contains(&seq)
                && self.entering.first(key).is_none_or(|first| first > seq);
            if refused.contains(&key) || !(follows || self.may_try(row.row.seq, key)) {
                refused.insert(key);
                continue;
            }
            let retaken = self.retake(row, follows, outlet, settings, now);
            did |= !matches!(retaken, Retaken::Left);
            match retaken {
                Retaken::InLane => _ = ours.insert(key),
                Retaken::Over | Retaken::Left => _ = refused.insert(key),
            }
        }
        did
    }

    /// Takes one event. What follows another in its lane is left when it is not to be sent: its turn
    /// comes when that one has left.
    fn retake(
        &mut self,
        row: WaitingRow,
        follows: bool,
        outlet: &mut Outlet,
        settings: &Settings,
        now: Tick,
    ) -> Retaken {
        let route = outlet.route_of(&row.event).filter(|at| !outlet.definition.routes[*at].drop);
        if row.event.payload == Payload::Erased {
            // There is nothing to deliver any more: it goes, and its key flows.
            reach!(WaitingErased);
            return match follows {
                true => Retaken::Left,
                false => self.end_turn(&row, WaitingChange::Erased(row.row), now),
            };
        }
        let Some(route) = route else {
            return if follows { Retaken::Left } else { self.give_up(&row, now) };
        };
        let endpoint = outlet.endpoint_of(route, &row.event);
        if outlet.is_disabled(endpoint) {
            if follows {
                return Retaken::Left;
            }
            if !self.strands(row.row.seq) {
                reach!(WaitingCameBackDisabled);
                // Until the definitions are read again, which is asked for every such while.
                return self.put_back(&row, settings.carry_every, now);
            }
            reach!(WaitingDisabled);
            let change = wait_for_endpoint(row.row, row.attempts, outlet, endpoint);
            return self.end_turn(&row, change, now);
        }
        if !follows && let Some(delay) = outlet.keeps_away(endpoint, &row.event, now) {
            return self.hold_row(&row, endpoint, delay, outlet, now);
        }
        let route = u16::try_from(route).unwrap_or(u16::MAX);
        let suspect = self.suspects(&row, outlet.route(route));
        let probed = outlet.is_down(endpoint, settings) && (follows || outlet.has_probe(endpoint));
        let tried = self.tried.get(&row.row.seq).copied();
        let invited = probed && !follows && !suspect && outlet.invites(endpoint, tried);
        if follows && (probed || suspect) {
            return Retaken::Left;
        }
        if probed && !invited {
            // One probe is enough. In a lane it would keep its place from those that can be sent.
            reach!(WaitingPutBack);
            self.was_wary(&row);
            return self.put_back(&row, outlet.put_back_for(endpoint, now), now);
        }
        if suspect {
            return self.try_suspect(row, endpoint, route, outlet, settings, now);
        }
        reach!(WaitingTakenWithHead, if follows);
        self.stand(row, endpoint, route, invited, outlet)
    }

    /// Puts an event into its lane; an invited one is the next probe of its endpoint.
    fn stand(
        &mut self,
        row: WaitingRow,
        endpoint: u32,
        route: u16,
        invited: bool,
        outlet: &mut Outlet,
    ) -> Retaken {
        let (key, tried) = (row.key_hash, self.tried.get(&row.row.seq).copied());
        let entry = Entry {
            bytes: row.event.size_bytes(),
            event: row.event,
            row: row.row,
            origin: Origin::Waiting {
                attempts: row.attempts,
                late: row.late,
                suspect: false,
                held: row.held,
            },
            endpoint,
            route,
            tried,
        };
        reach!(WaitingTaken);
        *self.engaged.entry(key).or_default() += 1;
        self.taken_bytes += entry.bytes;
        let lane = self.lanes.entry(key).or_default();
        lane.push(entry);
        if !lane.queued && lane.in_flight == 0 {
            lane.queued = true;
            match invited {
                true => outlet.invite(endpoint, (self.partition, key), tried),
                false => outlet.stands(endpoint, (self.partition, key), tried),
            }
        }
        Retaken::InLane
    }

    /// Puts a due event off untried.
    pub(crate) fn put_back(&mut self, row: &WaitingRow, delay: Duration, now: Tick) -> Retaken {
        let change = WaitingChange::Postpone { row: row.row, delay };
        self.end_turn(row, change, now)
    }

    /// Nothing can deliver an event any more, because the definition has changed. It is dead, where a
    /// person sees it, and does not hold its key.
    fn give_up(&mut self, row: &WaitingRow, now: Tick) -> Retaken {
        reach!(WaitingLostItsRoute);
        let detail = "no route of the destination takes it any more";
        let attempted = attempted(row.attempts, Reason::NoRoute, detail);
        let subject = self.subject(row.row, Some(Arc::clone(&row.event)));
        self.note_dead(subject, &attempted, false);
        let change = WaitingChange::Dead { row: row.row, attempted, holds_key: false };
        self.end_turn(row, change, now)
    }

    pub(crate) fn end_turn(
        &mut self,
        row: &WaitingRow,
        change: WaitingChange,
        now: Tick,
    ) -> Retaken {
        *self.engaged.entry(row.key_hash).or_default() += 1;
        self.change(row.key_hash, !row.late, change, now);
        Retaken::Over
    }
}
