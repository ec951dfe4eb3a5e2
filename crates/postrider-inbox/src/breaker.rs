//! The pause when the inbox's store is down: one question instead of a storm.
//!
//! Invariant: while it is open at most one handler, the probe, is started.

use postrider_core::{Jitter, Tick, reach};

use crate::command::DeliveryNo;
use crate::options::ConsumerOptions;
use crate::settle::pause;

/// Whether the store answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Open {
        until: Tick,
    },
    Probing {
        no: DeliveryNo,
    },
}

impl Breaker {
    /// Whether the store is believed to answer.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether a handler may start now.
    pub(crate) fn admits(&self, now: Tick) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until } => now >= until,
            State::Probing { .. } => false,
        }
    }

    /// When the next probe may start.
    pub(crate) fn opens_at(&self) -> Option<Tick> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::Probing { .. } => None,
        }
    }

    /// A handler was started.
    pub(crate) fn started(&mut self, no: DeliveryNo) {
        if matches!(self.state, State::Open { .. }) {
            reach!(StoreBreakerProbed);
            self.state = State::Probing { no };
        }
    }

    /// The store answered something.
    pub(crate) fn succeeded(&mut self) {
        if !self.is_closed() {
            reach!(StoreBreakerClosed);
        }
        self.failures = 0;
        self.state = State::Closed;
    }

    /// The store did not answer.
    pub(crate) fn failed(
        &mut self,
        no: DeliveryNo,
        now: Tick,
        options: &ConsumerOptions,
        jitter: &mut Jitter,
    ) {
        let opens = match self.state {
            State::Closed => {
                self.failures += 1;
                self.failures >= options.store_failures_max
            }
            State::Probing { no: probe } if probe == no => {
                self.failures += 1;
                true
            }
            // It was started before the breaker opened, and says nothing new.
            State::Open { .. } | State::Probing { .. } => false,
        };
        if opens {
            let tries = self.failures - options.store_failures_max + 1;
            let until = now + pause(tries, options, jitter);
            reach!(StoreBreakerOpened);
            self.state = State::Open { until };
        }
    }

    /// A handler ended without a word about the store.
    pub(crate) fn abandoned(&mut self, no: DeliveryNo, now: Tick) {
        if self.state == (State::Probing { no }) {
            self.state = State::Open { until: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: fn() -> ConsumerOptions = ConsumerOptions::default;

    #[test]
    fn it_opens_after_consecutive_failures_and_lets_one_probe_through() {
        let (mut breaker, mut jitter) = (Breaker::default(), Jitter::seeded(1));
        let mut fail = |breaker: &mut Breaker, no, now| {
            breaker.failed(DeliveryNo(no), now, &OPTIONS(), &mut jitter);
        };
        fail(&mut breaker, 1, Tick(0));
        fail(&mut breaker, 2, Tick(0));
        assert!(breaker.is_closed(), "two may be chance");
        fail(&mut breaker, 3, Tick(0));
        assert!(!breaker.admits(Tick(0)));
        let first = breaker.opens_at().unwrap();
        assert!(breaker.admits(first));
        breaker.started(DeliveryNo(4));
        assert!(!breaker.admits(first), "one probe");
        fail(&mut breaker, 2, first);
        assert!(breaker.opens_at().is_none(), "not the probe's answer");
        fail(&mut breaker, 4, first);
        assert!(breaker.opens_at().unwrap() > first, "longer");
        breaker.succeeded();
        assert!(breaker.is_closed() && breaker.admits(Tick(0)));
    }

    #[test]
    fn a_probe_that_was_dropped_makes_room_for_another() {
        let (mut breaker, mut jitter) = (Breaker::default(), Jitter::seeded(1));
        for no in 0..3 {
            breaker.failed(DeliveryNo(no), Tick(0), &OPTIONS(), &mut jitter);
        }
        let at = breaker.opens_at().unwrap();
        breaker.started(DeliveryNo(9));
        breaker.abandoned(DeliveryNo(9), at);
        assert!(breaker.admits(at));
    }
}
