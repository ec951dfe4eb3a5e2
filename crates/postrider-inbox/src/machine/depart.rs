//! How a delivery leaves the machine: by its handler's answer, or given back.
//!
//! Invariant: each leaves by exactly one settlement, and what stands behind a message that goes away
//! goes with it.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Error, ErrorKind, Fault, KeyHash, Tick, inbox::Verdict, reach};

use super::Machine;
use crate::command::{Answer, Blame, Command, DeliveryNo, blame};
use crate::held::{Held, Stage, Why};
use crate::lane::Leave;
use crate::settle::{Reason, Settlement, settle};

impl Machine {
    /// A handler ended.
    pub(super) fn conclude(&mut self, now: Tick, no: DeliveryNo, answer: Answer) {
        if self.held.get(&no).is_some_and(Held::in_work) {
            self.learn(now, no, &answer);
            if matches!(answer, Answer::Verdict(Verdict::Alone)) && self.set_apart(no) {
                if self.draining.is_some() {
                    self.give_back(now, no, Duration::ZERO);
                }
            } else if self.gave_up_when_told(no, &answer) {
                self.give_back(now, no, Duration::ZERO);
            } else {
                self.end_work(now, no, answer);
            }
        }
    }

    /// Has a delivery wait at its place until nothing else is in work, unless it was begun so already.
    fn set_apart(&mut self, no: DeliveryNo) -> bool {
        let Some(held) = self.held.get_mut(&no).filter(|held| held.delivery.alone != Some(true))
        else {
            return false;
        };
        Arc::make_mut(&mut held.delivery).alone = Some(true);
        held.stage = Stage::Waiting;
        let key = held.key;
        self.in_work -= 1;
        self.apart.insert(no);
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.wait_again(no);
        }
        self.refresh(key);
        true
    }

    /// Whether a handler was told to stop because the engine stops, and did: no fault of the event.
    fn gave_up_when_told(&self, no: DeliveryNo, answer: &Answer) -> bool {
        let shutdown =
            |held: &Held| matches!(held.stage, Stage::Stopping { why: Why::Shutdown, .. });
        matches!(answer, Answer::Verdict(Verdict::Retry { .. }))
            && self.held.get(&no).is_some_and(shutdown)
    }

    /// Settles what was in work by its answer.
    fn end_work(&mut self, now: Tick, no: DeliveryNo, answer: Answer) {
        let Some(held) = self.held.get(&no) else {
            return;
        };
        let (key, count) = (held.key, held.delivery.count);
        let failures = self.lanes.get(&key).map_or(0, |lane| lane.failures(no)).saturating_add(1);
        let attempts = match &answer {
            // Each of them may be too many: the broker counts what was given back, and the inbox may still have those of a
            // dead letter that was sent again.
            Answer::Verdict(Verdict::Retry { tries: Some(tries), .. }) => {
                failures.max(count.min(*tries))
            }
            // The row of the inbox counts these as well: where the broker counts, it refuses at last what goes on in ever new
            // processes.
            Answer::Verdict(_) | Answer::Panicked(_) if self.receiver_counts => failures,
            _ => count.max(failures),
        };
        let (settlement, reason) = settle(answer, attempts, &self.options, &mut self.jitter);
        match reason {
            Reason::Done => self.stats.done += 1,
            Reason::Duplicate => self.stats.duplicates += 1,
            Reason::Busy => self.stats.busy += 1,
            Reason::Retry => self.stats.retried += 1,
            // Counted once the broker has it.
            Reason::Rejected => {}
            Reason::StoreFailed => self.stats.store_failed += 1,
        }
        match settlement {
            Settlement::Nack { delay, counted } => self.send_away(now, no, delay, counted),
            done => self.finish(no, done),
        }
    }

    /// What an answer says about the inbox's store.
    fn learn(&mut self, now: Tick, no: DeliveryNo, answer: &Answer) {
        match answer {
            Answer::Failed(error) if blame(error) == Blame::Store => {
                self.store_fault = error.to_string();
                self.breaker.failed(no, now, &self.options, &mut self.jitter);
            }
            Answer::Verdict(_) | Answer::Failed(_) => self.breaker.succeeded(),
            Answer::Panicked(_) => {
                reach!(HandlerPanicked);
                self.stats.panicked += 1;
                self.breaker.abandoned(no, now);
            }
        }
    }

    pub(super) fn kill(&mut self, now: Tick, no: DeliveryNo, why: Why) {
        reach!(HandlerKilled);
        self.commands.push(Command::Kill { no });
        self.breaker.abandoned(no, now);
        match why {
            Why::Shutdown => self.give_back(now, no, Duration::ZERO),
            Why::Overtime => {
                let limit = self.options.handler_time_max;
                let detail = format!("the handler worked longer than {limit:?}");
                let fault = Fault::new(ErrorKind::Timeout, detail);
                let verdict = Verdict::Retry { after: None, fault, tries: None };
                // Says nothing about the store, so the breaker does not hear of it.
                self.end_work(now, no, Answer::Verdict(verdict));
            }
        }
    }

    /// Its visibility ended before a handler was free: starting it now might overtake whoever has it.
    pub(super) fn lose(&mut self, now: Tick, no: DeliveryNo) {
        reach!(DeliveryLost);
        self.stats.lost += 1;
        self.send_away(now, no, self.options.return_delay_min, false);
    }

    pub(super) fn give_back(&mut self, now: Tick, no: DeliveryNo, delay: Duration) {
        self.stats.returned += 1;
        self.send_away(now, no, delay, false);
    }

    /// Gives a delivery back, and with it those of its key behind it.
    pub(super) fn send_away(&mut self, now: Tick, no: DeliveryNo, delay: Duration, counted: bool) {
        let behind = self.vacate(now, no, delay, counted);
        for no in behind {
            self.stats.returned += 1;
            self.vacate(now, no, delay, false);
        }
    }

    pub(super) fn vacate(
        &mut self,
        now: Tick,
        no: DeliveryNo,
        delay: Duration,
        counted: bool,
    ) -> Vec<DeliveryNo> {
        let Some(held) = self.held.get(&no) else {
            return Vec::new();
        };
        let (key, message) = (held.key, held.delivery.receipt.message);
        let remembered = self.away.len() < self.options.away_max;
        if remembered {
            self.away.insert(key, message, no);
        } else {
            self.stats.order_forgotten += 1;
        }
        let leave = Leave { until: now + delay, failed: counted, remembered };
        let lane = self.lanes.get_mut(&key);
        let behind = lane.map_or_else(Vec::new, |lane| lane.leave(no, leave));
        self.emit(no, Settlement::Nack { delay, counted });
        self.refresh(key);
        behind
    }

    /// Ends a delivery for good. What is refused keeps its place until the broker has taken it: see
    /// [`buried`](Self::buried).
    pub(super) fn finish(&mut self, no: DeliveryNo, settlement: Settlement) {
        let Some(held) = self.held.get(&no) else {
            return;
        };
        let (key, message) = (held.key, held.delivery.receipt.message);
        if let Some(lane) = self.lanes.get_mut(&key) {
            match settlement {
                Settlement::Reject(_) => lane.start(no),
                Settlement::Ack | Settlement::Nack { .. } => lane.finish(no),
            }
        }
        self.away.remove(key, message);
        if settlement == Settlement::Ack {
            self.no_longer_unburied(message);
        }
        self.emit(no, settlement);
        self.refresh(key);
    }

    /// The broker has answered a refusal. Where it did not take it, the message comes again when its visibility ends,
    /// and what is behind it must not overtake it.
    pub(super) fn buried(
        &mut self,
        now: Tick,
        no: DeliveryNo,
        held: &Held,
        refused: Option<&Error>,
    ) {
        let (key, message) = (held.key, held.delivery.receipt.message);
        let Some(error) = refused else {
            self.stats.rejected += 1;
            self.no_longer_unburied(message);
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.finish(no);
            }
            return self.refresh(key);
        };
        let delay = self.visibility;
        let remembered = self.away.len() < self.options.away_max;
        if remembered {
            if error.kind() != ErrorKind::Fenced {
                let told = "no dead letter could be made of a refused event, and its key waits";
                self.unburied.insert(message, format!("{told}: {error}"));
            }
            self.away.insert(key, message, no);
            self.away.answered(key, message, no, now + delay + self.grace());
        } else {
            self.stats.order_forgotten += 1;
        }
        let leave = Leave { until: now + delay, failed: false, remembered };
        let lane = self.lanes.get_mut(&key);
        let behind = lane.map_or_else(Vec::new, |lane| lane.leave(no, leave));
        for no in behind {
            self.stats.returned += 1;
            self.vacate(now, no, delay, false);
        }
        self.refresh(key);
    }

    /// A message is settled, or is somebody else's now.
    pub(super) fn no_longer_unburied(&mut self, message: u64) {
        self.unburied.remove(&message);
    }

    pub(super) fn emit(&mut self, no: DeliveryNo, settlement: Settlement) {
        let Some(held) = self.held.get_mut(&no) else {
            return;
        };
        debug_assert!(!held.is_settled(), "settled once");
        self.apart.remove(&no);
        self.in_work -= usize::from(held.in_work());
        held.stage = match settlement {
            Settlement::Nack { delay, .. } => Stage::Settling { back_after: Some(delay) },
            Settlement::Ack => Stage::Settling { back_after: None },
            Settlement::Reject(_) => Stage::Burying,
        };
        let delivery = Arc::clone(&held.delivery);
        self.commands.push(match settlement {
            Settlement::Ack => {
                reach!(SettledAck);
                Command::Ack { no, delivery }
            }
            Settlement::Reject(fault) => {
                reach!(SettledReject);
                Command::Reject { no, delivery, fault }
            }
            Settlement::Nack { delay, counted } => {
                if counted {
                    reach!(SettledNackCounted);
                } else {
                    reach!(SettledNackUncounted);
                }
                Command::Nack { no, delivery, delay, counted }
            }
        });
    }

    /// Brings what is ready in line with a lane that changed, and drops the lane if it is empty.
    pub(super) fn refresh(&mut self, key: KeyHash) {
        if let Some(before) = self.ready_of.remove(&key) {
            self.ready.remove(&(before, key));
        }
        let Some(lane) = self.lanes.get(&key) else {
            return;
        };
        if lane.is_empty() {
            self.lanes.remove(&key);
        } else if let Some(no) = lane.startable() {
            self.ready.insert((no, key));
            self.ready_of.insert(key, no);
        }
    }
}
