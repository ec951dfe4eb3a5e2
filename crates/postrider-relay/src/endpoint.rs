//! Endpoints: one topic, subject, queue, or URL of a destination, with its breaker and its queue.

use std::collections::VecDeque;
use std::sync::Arc;

use postrider_core::Tick;

use crate::outlet::LaneRef;
use crate::turn::Turn;

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
            failing_since: Tick::default(),
            crowded: false,
            turn: Turn::Any,
            paused_until: Tick::default(),
            batch_rows: batch_rows_max.max(1),
            last_ack: None,
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
}
