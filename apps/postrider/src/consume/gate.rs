//! The gate before the endpoint: shut while the endpoint takes nothing, so that an outage costs a
//! probe now and then, and no event an attempt.
//!
//! Invariants: while it is shut one call is under way at most; what fails again and again alone
//! never shuts it for the others; what it says of the endpoint is the last thing that was seen.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::{EventId, Jitter, RetryPolicy};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::judge::{Judgement, Reply, Sign, judge};
use super::tries::{Taken, Tries};

/// How many failures in a row, of different events and without a success between, shut the gate:
/// one may be chance, and two may be two poison events. A refused connection shuts it at once.
const SHUTS_AT: u32 = 3;

/// The pauses of a shut gate, and of an event that waits uncounted. The first is short, because an
/// endpoint that restarts is back soon; the longest is what somebody who mended it gladly waits, and
/// asking an endpoint beside us costs next to nothing. They never give up.
const PAUSES: RetryPolicy = RetryPolicy {
    attempts_max: u32::MAX,
    delay_min: Duration::from_millis(200),
    delay_max: Duration::from_secs(10),
    factor: 2.0,
};

/// The longest `Retry-After` that is obeyed, which is the longest delay of the engine's own retries.
pub(crate) const AFTER_MAX: Duration = Duration::from_secs(600);

/// The gate of one endpoint.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Notify,
}

/// What was learned from a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ruling {
    /// What becomes of the event.
    pub(crate) judgement: Judgement,
    /// How long the event waits before its next try, if it waits uncounted.
    pub(crate) pause: Duration,
}

/// Why the endpoint takes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What it said last.
    pub(crate) fault: String,
    /// How many calls failed in a row.
    pub(crate) in_a_row: u64,
}

/// The right to make one call.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    epoch: u64,
    probe: bool,
}

#[derive(Debug)]
struct State {
    tries: Tries,
    door: Door,
    /// Grows whenever the door shuts: calls that began before say nothing new.
    epoch: u64,
    /// Failures of different events in a row.
    streak: u32,
    last: Option<EventId>,
    in_a_row: u64,
    fault: String,
    jitter: Jitter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    Shut { until: Instant, probing: bool },
}

/// May a call be made?
#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Now { probe: bool },
    At(Instant),
    AfterProbe,
}

impl Gate {
    /// An open gate. The seed spreads its pauses.
    pub(crate) fn new(seed: u64) -> Arc<Gate> {
        let state = State {
            tries: Tries::default(),
            door: Door::Open,
            epoch: 0,
            streak: 0,
            last: None,
            in_a_row: 0,
            fault: String::new(),
            jitter: Jitter::seeded(seed),
        };
        Arc::new(Gate { state: Mutex::new(state), changed: Notify::new() })
    }

    /// Waits until a call may be made.
    pub(crate) async fn pass(self: &Arc<Gate>) -> Permit {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let (admission, epoch) = {
                let mut state = self.lock();
                (state.admit(Instant::now()), state.epoch)
            };
            match admission {
                Admission::Now { probe } => {
                    return Permit { gate: Arc::clone(self), epoch, probe };
                }
                Admission::At(until) => tokio::select! {
                    // waits: the endpoint's pause, or what somebody else learned of it
                    () = tokio::time::sleep_until(until) => {}
                    () = changed => {}
                },
                Admission::AfterProbe => changed.await,
            }
        }
    }

    /// The mark of an event that is sent now.
    pub(crate) fn sent(&self) -> Taken {
        self.lock().tries.taken()
    }

    /// What the endpoint is in trouble with, if it is.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let state = self.lock();
        let troubled = state.in_a_row >= u64::from(SHUTS_AT) || state.door != Door::Open;
        troubled.then(|| Trouble { fault: state.fault.clone(), in_a_row: state.in_a_row })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Learns what came of the call.
    pub(crate) fn learn(self, id: EventId, sent: Taken, reply: Reply, said: &str) -> Ruling {
        let ruling = self.gate.lock().learn(Instant::now(), self.epoch, id, (sent, reply), said);
        self.gate.changed.notify_waiters();
        ruling
    }
}

impl Drop for Permit {
    /// A probe that told nothing makes room for another.
    fn drop(&mut self) {
        if self.probe {
            self.gate.lock().probe_ended(self.epoch);
            self.gate.changed.notify_waiters();
        }
    }
}

impl State {
    fn admit(&mut self, now: Instant) -> Admission {
        match self.door {
            Door::Open => Admission::Now { probe: false },
            Door::Shut { probing: true, .. } => Admission::AfterProbe,
            Door::Shut { until, .. } if until > now => Admission::At(until),
            Door::Shut { until, .. } => {
                self.door = Door::Shut { until, probing: true };
                Admission::Now { probe: true }
            }
        }
    }

    fn probe_ended(&mut self, epoch: u64) {
        if let Door::Shut { until, .. } = self.door
            && epoch == self.epoch
        {
            self.door = Door::Shut { until, probing: false };
        }
    }

    fn learn(
        &mut self,
        now: Instant,
        epoch: u64,
        id: EventId,
        (sent, reply): (Taken, Reply),
        said: &str,
    ) -> Ruling {
        // A process that dies takes all its calls with it, and each of them saw others succeed a
        // moment before. Only what breaks off again may be what kills it.
        let first_break = reply == Reply::BrokenOff && !self.tries.failed_before(id);
        let judgement = judge(reply, self.tries.took_another(id, sent) && !first_break);
        let mut pause = Duration::ZERO;
        match judgement {
            Judgement::Done => {
                self.tries.took(id);
                self.open();
            }
            // It took a look, and knows its own mind.
            Judgement::Refused => {
                self.tries.forget(id);
                self.open();
            }
            Judgement::Counts { .. } => {
                self.tries.failed(id, sent);
            }
            Judgement::Waits { after, sign } => {
                let failures = self.tries.failed(id, sent);
                let after = after.unwrap_or_default().min(AFTER_MAX);
                pause = self.pause(failures).max(after);
                if sign != Sign::None {
                    said.clone_into(&mut self.fault);
                    self.in_a_row += 1;
                    self.bad(now, epoch, id, sign, after);
                }
            }
        }
        Ruling { judgement, pause }
    }

    fn open(&mut self) {
        self.door = Door::Open;
        self.streak = 0;
        self.in_a_row = 0;
        self.last = None;
    }

    fn bad(&mut self, now: Instant, epoch: u64, id: EventId, sign: Sign, after: Duration) {
        if epoch != self.epoch {
            return;
        }
        if self.last.replace(id) != Some(id) || sign == Sign::Away {
            self.streak = self.streak.saturating_add(1);
        }
        if sign == Sign::Away {
            self.streak = self.streak.max(SHUTS_AT);
        }
        if self.streak >= SHUTS_AT {
            let pause = self.pause(self.streak - SHUTS_AT + 1).max(after);
            self.door = Door::Shut { until: now + pause, probing: false };
            self.epoch += 1;
        }
    }

    fn pause(&mut self, failures: u32) -> Duration {
        PAUSES.delay(failures, None, &mut self.jitter).unwrap_or(PAUSES.delay_max)
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
