//! What the machine does by the time: extend, stop, start, ask for more, and when to look again.
//!
//! Invariant: a time that was acted on is not waited for again.

use std::sync::Arc;

use postrider_core::{KeyHash, Tick, planted, reach};

use super::Machine;
use crate::command::{Command, DeliveryNo};
use crate::held::{Held, Stage, Why};
use crate::settle::Settlement;

impl Machine {
    pub(super) fn forget_expired(&mut self, now: Tick) {
        self.unheard.forget_expired(now);
        while let Some((key, message)) = self.away.take_expired(now) {
            reach!(AwayForgotten);
            self.no_longer_unburied(message);
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.forget(message);
            }
            self.refresh(key);
        }
    }

    /// Extends what is held, tells handlers to stop, and drops those that do not.
    pub(super) fn keep_times(&mut self, now: Tick) {
        let over = self.draining.is_some_and(|deadline| now >= deadline);
        let kill_at = now + self.options.cancel_grace;
        let mut dead = Vec::new();
        for (&no, held) in &mut self.held {
            match held.stage {
                Stage::InWork { limit } if over || now >= limit => {
                    let why = if over { Why::Shutdown } else { Why::Overtime };
                    if !over {
                        reach!(HandlerOvertime);
                    }
                    reach!(HandlerTold);
                    self.stats.overtime += u64::from(!over);
                    held.stage = Stage::Stopping { kill_at, why };
                    self.commands.push(Command::Cancel { no, overtime: !over });
                }
                Stage::Stopping { kill_at, why } if now >= kill_at => {
                    dead.push((no, why));
                    continue;
                }
                Stage::Settling { .. } | Stage::Burying => continue,
                _ => {}
            }
            if now >= held.visibility.due() && held.visibility.ask(now, self.visibility) {
                self.commands.push(Command::Extend {
                    no,
                    delivery: Arc::clone(&held.delivery),
                    by: self.visibility,
                });
            }
        }
        for (no, why) in dead {
            self.kill(now, no, why);
        }
    }

    /// What may begin now. What is suspected of ending the process begins while nothing else is in work, and nothing begins
    /// beside it: so no neighbour has a try that such a death cut off. Meanwhile all others wait, for as long as the handlers
    /// that are at work may work.
    fn next_to_start(&self) -> Option<(DeliveryNo, KeyHash)> {
        let suspects = || self.apart.iter().filter_map(|no| Some((*no, self.held.get(no)?)));
        if suspects().any(|(_, held)| held.in_work()) {
            return None;
        }
        let startable = |(no, held): (DeliveryNo, &Held)| {
            (self.ready_of.get(&held.key) == Some(&no)).then_some((no, held.key))
        };
        match suspects().find_map(startable) {
            Some(suspect) => (self.in_work == 0).then_some(suspect),
            None => self.ready.first().copied(),
        }
    }

    pub(super) fn start_ready(&mut self, now: Tick) {
        while self.in_work < self.options.in_flight_max && self.breaker.admits(now) {
            let Some((no, key)) = self.next_to_start() else {
                return;
            };
            let Some(held) = self.held.get_mut(&no) else {
                debug_assert!(false, "what is ready is held");
                return;
            };
            if held.visibility.ended(now) {
                self.lose(now, no);
                continue;
            }
            held.stage = Stage::InWork { limit: now + self.options.handler_time_max };
            let delivery = Arc::clone(&held.delivery);
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.start(no);
            }
            self.in_work += 1;
            self.stats.dispatched += 1;
            self.breaker.started(no);
            self.refresh(key);
            reach!(HandlerStarted);
            self.commands.push(Command::Dispatch { no, delivery });
            if planted!(AckBeforeDone) {
                // The bug: what dies with the process after this is never done.
                self.finish(no, Settlement::Ack);
            }
        }
    }

    pub(super) fn ask_for_more(&mut self, now: Tick) {
        if self.receiving || self.draining.is_some() || now < self.receive_after {
            return;
        }
        let room = self.options.in_flight_max + self.options.prefetch_max;
        let mut max = room.saturating_sub(self.held.len()).min(self.options.receive_max);
        if !self.breaker.is_closed() {
            let probe = self.breaker.admits(now) && self.ready.is_empty();
            max = max.min(usize::from(probe));
        }
        if max > 0 && self.held_bytes < self.options.held_bytes_max {
            self.receiving = true;
            self.commands.push(Command::Receive { max });
        }
    }

    /// The next time at which something changes by itself.
    pub(super) fn wake(&self, now: Tick) -> Option<Tick> {
        let held = self.held.values().filter_map(Held::due);
        let others = [
            self.draining,
            self.breaker.opens_at(),
            (self.receive_failures > 0).then_some(self.receive_after),
            self.away.next(),
            self.unheard.due(),
        ];
        let all = held.chain(others.into_iter().flatten());
        all.filter(|tick| *tick > now).min()
    }
}
