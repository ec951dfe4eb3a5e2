//! The consumer engine's decisions: what happened goes in, what to do comes out.
//!
//! There is no clock, no task, and no I/O in here, and nothing depends on chance that is not the
//! seed's: the same inputs give the same commands. The shell in [`crate::consumer`] carries them
//! out; a test or a simulator can do so in virtual time.
//!
//! Invariants: one delivery per key in work; at most `in_flight_max` in work, and nothing beside what is tried alone; a delivery
//! is settled by exactly one command; a key's messages start in the order in which they were first seen, for as
//! long as the broker brings them back to this process.

mod depart;
mod schedule;
mod unheard;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::too_often;
use postrider_core::subscription::SubscriptionCapabilities;
use postrider_core::{Delivery, Error, ErrorKind, Fault, Jitter, KeyHash, Result, Tick, reach};

use crate::away::Away;
use crate::breaker::Breaker;
use crate::command::{Command, DeliveryNo, Input};
use crate::held::{Held, Stage, Visibility};
use crate::lane::{Arrival, Lane};
use crate::options::ConsumerOptions;
use crate::settle::{Settlement, pause};
use crate::stats::{Health, Stats};
use unheard::Unheard;

/// How long a returned message is expected at most, beyond its delay: where the visibility timeout
/// is longer, a key does not wait for a message that went to another process.
const AWAY_GRACE_MAX: Duration = Duration::from_secs(60);
/// The shortest visibility that is believed; below, extending it would be all the engine does.
const VISIBILITY_MIN: Duration = Duration::from_millis(3);

/// The consumer engine's state.
#[derive(Debug)]
pub struct Machine {
    options: ConsumerOptions,
    visibility: Duration,
    /// Whether tries are counted by the receiver, and not by the broker.
    receiver_counts: bool,
    jitter: Jitter,
    held: BTreeMap<DeliveryNo, Held>,
    held_bytes: u64,
    in_work: usize,
    lanes: BTreeMap<KeyHash, Lane>,
    /// What is to be tried while nothing else is in work, and what is being so tried.
    apart: BTreeSet<DeliveryNo>,
    /// The startable delivery of each lane that has one, oldest first.
    ready: BTreeSet<(DeliveryNo, KeyHash)>,
    ready_of: BTreeMap<KeyHash, DeliveryNo>,
    away: Away,
    breaker: Breaker,
    store_fault: String,
    receiving: bool,
    receive_failures: u32,
    receive_after: Tick,
    receive_fault: String,
    /// Messages of which the broker took no dead letter, and what it said, while they are away.
    unburied: BTreeMap<u64, String>,
    unheard: Unheard,
    /// When the handlers are told to stop, if it is draining.
    draining: Option<Tick>,
    next_no: u64,
    stats: Stats,
    commands: Vec<Command>,
}

impl Machine {
    /// A machine that has received nothing yet. The seed spreads its delays.
    pub fn new(
        options: ConsumerOptions,
        capabilities: SubscriptionCapabilities,
        seed: u64,
    ) -> Machine {
        Machine {
            options,
            visibility: capabilities.visibility.max(VISIBILITY_MIN),
            receiver_counts: false,
            jitter: Jitter::seeded(seed),
            held: BTreeMap::new(),
            held_bytes: 0,
            in_work: 0,
            lanes: BTreeMap::new(),
            apart: BTreeSet::new(),
            ready: BTreeSet::new(),
            ready_of: BTreeMap::new(),
            away: Away::default(),
            breaker: Breaker::default(),
            store_fault: String::new(),
            receiving: false,
            receive_failures: 0,
            receive_after: Tick(0),
            receive_fault: String::new(),
            unburied: BTreeMap::new(),
            unheard: Unheard::default(),
            draining: None,
            next_no: 0,
            stats: Stats::default(),
            commands: Vec::new(),
        }
    }

    /// Believes a receiver that [counts tries](postrider_core::inbox::Receiver::counts_tries).
    #[must_use]
    pub fn of_receiver_that_counts(mut self, counts: bool) -> Machine {
        self.receiver_counts = counts;
        self
    }

    /// Takes in what happened and says what to do, in order. The last command is
    /// [`Command::WaitUntil`], if there is anything to wait for.
    pub fn step(&mut self, now: Tick, input: Input) -> Vec<Command> {
        match input {
            Input::Woke => {}
            Input::Received(deliveries) => {
                self.receiving = false;
                self.receive_failures = 0;
                for delivery in deliveries {
                    self.take_in(now, delivery);
                }
            }
            Input::ReceiveFailed(error) => self.receive_failed(now, &error),
            Input::Answered(no, answer) => self.conclude(now, no, answer),
            Input::Settled(no, result) => self.settled(now, no, &result),
            Input::Extended(no, result) => self.extended(now, no, &result),
            Input::Drain { deadline } => self.drain(deadline),
            Input::Abort => self.drain(now),
        }
        self.forget_expired(now);
        self.keep_times(now);
        self.start_ready(now);
        self.ask_for_more(now);
        if let Some(wake) = self.wake(now) {
            self.commands.push(Command::WaitUntil(wake));
        }
        if self.is_stopped() {
            reach!(DrainEnded);
        }
        std::mem::take(&mut self.commands)
    }

    /// Whether it drained, holds nothing, and will do nothing more.
    pub fn is_stopped(&self) -> bool {
        self.draining.is_some() && self.held.is_empty() && !self.receiving
    }

    /// What it did, and what it holds.
    pub fn stats(&self) -> Stats {
        Stats {
            in_work: self.in_work as u64,
            held: self.held.len() as u64,
            suspects: self.apart.len() as u64,
            away: self.away.len() as u64,
            ..self.stats
        }
    }

    /// Whether it makes progress, and if not, what holds it.
    pub fn health(&self) -> Health {
        if self.is_stopped() {
            Health::Stopped
        } else if self.draining.is_some() {
            Health::Draining
        } else if !self.breaker.is_closed() {
            let detail = self.store_fault.clone();
            Health::StoreDown { detail }
        } else if self.receive_failures > 0 {
            let detail = self.receive_fault.clone();
            Health::BrokerDown { detail }
        } else if let Some(detail) = self.unburied.values().next() {
            Health::BrokerDown { detail: detail.clone() }
        } else if let Some(told) = self.unheard.told() {
            Health::BrokerDown { detail: told.to_owned() }
        } else {
            Health::Ready
        }
    }

    fn take_in(&mut self, now: Tick, mut delivery: Delivery) {
        self.stats.received += 1;
        delivery.alone = Some(false);
        let no = DeliveryNo(self.next_no);
        self.next_no += 1;
        let key = delivery.key_hash();
        let bytes = delivery.event.as_ref().map_or(0, |event| event.size_bytes());
        let (message, late) = (delivery.receipt.message, delivery.marks.late);
        let refusal = self.refusal(&delivery);
        self.held_bytes += bytes;
        let held = Held {
            delivery: Arc::new(delivery),
            key,
            bytes,
            stage: Stage::Waiting,
            visibility: Visibility::from(now, self.visibility),
        };
        self.held.insert(no, held);
        let waiting_max = self.options.lane_max;
        let lane = self.lanes.entry(key).or_default();
        let arrival = lane.arrive(message, no, late, waiting_max);
        self.away.remove(key, message);
        if let Some(fault) = refusal {
            self.finish(no, Settlement::Reject(fault));
        } else if self.draining.is_some() {
            self.give_back(now, no, Duration::ZERO);
        } else {
            match arrival {
                Arrival::Stays => {
                    self.refresh(key);
                    if self.ready_of.get(&key) != Some(&no) {
                        reach!(DeliveryBlocked);
                    }
                }
                Arrival::Full => {
                    reach!(DeliveryFull);
                    self.give_back(now, no, self.options.return_delay);
                }
                Arrival::Behind { until } => {
                    reach!(DeliveryBehind);
                    let delay = self.delay_behind(now, until);
                    self.give_back(now, no, delay);
                }
            }
        }
    }

    /// Why a delivery cannot be acted on at all, if so.
    fn refusal(&self, delivery: &Delivery) -> Option<Fault> {
        let event = match &delivery.event {
            Ok(event) => event,
            Err(fault) => return Some(fault.clone()),
        };
        if event.source.is_empty() {
            let detail = "the event has no source, so it cannot be told from another service's";
            return Some(Fault::new(ErrorKind::Invalid, detail));
        }
        if self.receiver_counts {
            return None;
        }
        let fault = too_often(delivery.count, self.options.deliveries_max)?;
        reach!(DeliveredTooOften);
        Some(fault)
    }

    /// How long to wait behind a message that is away: until it is due, and once it is overdue
    /// longer and longer, because it may have gone elsewhere.
    fn delay_behind(&self, now: Tick, until: Tick) -> Duration {
        let shortest = self.options.return_delay_min;
        if until > now {
            until.since(now).max(shortest)
        } else {
            let longest = self.options.return_delay.max(shortest);
            now.since(until).clamp(shortest, longest)
        }
    }

    fn receive_failed(&mut self, now: Tick, error: &Error) {
        reach!(ReceiveFailed);
        self.receiving = false;
        self.stats.receive_failed += 1;
        self.receive_failures = self.receive_failures.saturating_add(1);
        self.receive_fault = error.to_string();
        let delay = pause(self.receive_failures, &self.options, &mut self.jitter);
        self.receive_after = now + delay.max(self.options.return_delay_min);
    }

    fn settled(&mut self, now: Tick, no: DeliveryNo, result: &Result<()>) {
        if !self.held.get(&no).is_some_and(Held::is_settled) {
            return;
        }
        if let Some(held) = self.held.remove(&no) {
            self.held_bytes -= held.bytes;
            match held.stage {
                Stage::Settling { back_after: Some(delay) } => {
                    let message = held.delivery.receipt.message;
                    self.away.answered(held.key, message, no, now + delay + self.grace());
                }
                Stage::Burying => self.buried(now, no, &held, result.as_ref().err()),
                _ => {}
            }
        }
        self.unheard.answered(now, self.visibility, result.as_ref().err());
        if let Err(error) = result {
            reach!(SettlementFailed);
            if error.kind() == ErrorKind::Fenced {
                reach!(SettlementStale);
            }
            self.stats.settle_failed += 1;
        }
    }

    /// A nack may get lost: the message then comes after its visibility, and may wait to be received for as long
    /// again.
    fn grace(&self) -> Duration {
        self.visibility.saturating_mul(2).min(AWAY_GRACE_MAX)
    }

    fn extended(&mut self, now: Tick, no: DeliveryNo, result: &Result<()>) {
        let Some(held) = self.held.get_mut(&no) else {
            return;
        };
        let granted = result.is_ok().then_some(self.visibility);
        if granted.is_some() {
            reach!(DeliveryExtended);
        }
        held.visibility.answered(granted);
        let refused = matches!(result, Err(error) if error.kind() == ErrorKind::Fenced);
        if refused && held.stage == Stage::Waiting {
            self.lose(now, no);
        }
    }

    fn drain(&mut self, deadline: Tick) {
        reach!(DrainBegun);
        self.draining = Some(self.draining.map_or(deadline, |before| before.min(deadline)));
        if self.receiving {
            self.receiving = false;
            self.commands.push(Command::StopReceiving);
        }
        let waiting: Vec<DeliveryNo> = self
            .held
            .iter()
            .filter(|(_, held)| held.stage == Stage::Waiting)
            .map(|(no, _)| *no)
            .collect();
        for no in waiting {
            self.stats.returned += 1;
            let delay = Duration::ZERO;
            let counted = false;
            self.finish(no, Settlement::Nack { delay, counted });
        }
    }
}
