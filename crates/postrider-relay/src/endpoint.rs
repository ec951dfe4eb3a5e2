//! Endpoints: one topic, subject, queue, or URL of a destination, with its breaker and its queue.
//!
//! Keeps INV-5: an endpoint that takes nothing for long counts as down, whether it failed often or asked for that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::{ErrorKind, Jitter, Tick, reach};

use crate::outlet::LaneRef;
use crate::part::Part;
use crate::settings::Settings;
use crate::turn::Turn;

/// The longest pause a server may ask for: ten minutes, as a route's longest delay is by default.
const WISH_MAX: Duration = Duration::from_secs(600);

/// One topic, subject, queue or URL.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) topic: Arc<str>,
    pub(crate) ready: VecDeque<LaneRef>,
    /// It takes nothing until an operator enables it.
    pub(crate) disabled: bool,
    pub(crate) in_turn: bool,
    pub(crate) in_flight: u32,
    /// Failures since the last acknowledgement.
    pub(crate) failures: u32,
    /// Of these, such as were sent after the pause for the one before: batches that are under way together fail together,
    /// and that is one outage, however short.
    rounds: u32,
    /// What it failed with last.
    pub(crate) said: Box<str>,
    /// Why it failed since then: each kind once.
    reasons: Vec<ErrorKind>,
    /// It asked for so long a pause that it counts as down, however seldom it has failed.
    pub(crate) away: bool,
    /// How long it asked to be left alone since the last acknowledgement, all pauses together.
    asked: Duration,
    /// Since when it fails.
    pub(crate) failing_since: Tick,
    /// Something was put back untried since the last probe.
    pub(crate) crowded: bool,
    /// Whose turn it is to be probed with.
    pub(crate) turn: Turn,
    /// Nothing is sent before.
    pub(crate) paused_until: Tick,
    /// Events of the next batch at most: halved when a batch fails without naming an event.
    pub(crate) batch_rows: u32,
    pub(crate) last_ack: Option<Tick>,
    /// A part of it that takes nothing.
    pub(crate) part: Option<Box<Part>>,
}

impl Endpoint {
    pub(crate) fn new(topic: Arc<str>, batch_rows_max: u32) -> Endpoint {
        Endpoint {
            topic,
            ready: VecDeque::new(),
            disabled: false,
            in_turn: false,
            in_flight: 0,
            failures: 0,
            rounds: 0,
            said: Box::default(),
            reasons: Vec::new(),
            away: false,
            asked: Duration::ZERO,
            failing_since: Tick::default(),
            crowded: false,
            turn: Turn::Any,
            paused_until: Tick::default(),
            batch_rows: batch_rows_max.max(1),
            last_ack: None,
            part: None,
        }
    }

    pub(crate) fn may_send(&self, now: Tick, batches_max: u32) -> bool {
        let batches = if self.failures > 0 { 1 } else { batches_max.max(1) };
        now >= self.paused_until && self.in_flight < batches
    }

    /// Failures since the last acknowledgement.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether it did not fail for such a reason before, since its last acknowledgement. An outage may begin as a server that is
    /// not reached, and go on as one that does not let us in.
    pub(crate) fn is_new(&mut self, reason: ErrorKind) -> bool {
        let is_new = !self.reasons.contains(&reason);
        self.reasons.extend(is_new.then_some(reason));
        is_new
    }

    /// Whether it counts as down: it failed often in a row, or asked to be left alone for long.
    pub(crate) fn is_down(&self, settings: &Settings) -> bool {
        self.failures >= settings.down_after || self.away
    }

    /// What was sent to it then failed: it pauses, longer each time up to what its broker and the settings say, or as long
    /// as it asks for. Says how long.
    pub(crate) fn fail(
        &mut self,
        now: Tick,
        sent: Tick,
        after: Option<Duration>,
        pause_max: Duration,
        settings: &Settings,
        jitter: &mut Jitter,
    ) -> Duration {
        self.failures = self.failures.saturating_add(1);
        if self.rounds == 0 || sent >= self.paused_until {
            self.rounds = self.rounds.saturating_add(1);
        }
        let doublings = (self.rounds - 1).min(20);
        let longest = settings.pause_max.min(pause_max);
        let step = settings.pause_min.saturating_mul(1 << doublings).min(longest);
        // The server's wish is granted within reason.
        let wish = after.unwrap_or_default().min(WISH_MAX);
        // A second or two is how busy servers spread what they get: to copy all that comes meanwhile would cost more
        // than to wait. Longer than that others wait for nobody, not even for an answer; and it is as long for them
        // when it comes in pieces.
        self.asked = self.asked.saturating_add(wish);
        self.away |= self.asked > settings.publish_deadline;
        reach!(EndpointDown, if self.failures == settings.down_after);
        reach!(EndpointAskedForPause, if after.is_some());
        let pause = step.mul_f64(1.0 - 0.5 * jitter.unit()).max(wish);
        self.paused_until = self.paused_until.max(now + pause);
        pause
    }

    /// Its failures are forgotten. Says how many there were.
    pub(crate) fn recover(&mut self) -> u32 {
        (self.paused_until, self.away, self.asked) = (Tick::default(), false, Duration::ZERO);
        (self.turn, self.rounds, self.said) = (Turn::Any, 0, Box::default());
        self.reasons.clear();
        std::mem::take(&mut self.failures)
    }
}
