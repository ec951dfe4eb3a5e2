//! A delivery that the engine holds, and its times.
//!
//! Invariant: from arrival to the broker's answer to its settlement it is counted as held.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Delivery, KeyHash, Tick};

/// A delivery in this process.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) key: KeyHash,
    pub(crate) bytes: u64,
    pub(crate) stage: Stage,
    pub(crate) visibility: Visibility,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In its lane, waiting for a handler.
    Waiting,
    /// With a handler, until the time limit.
    InWork { limit: Tick },
    /// With a handler that was told to stop.
    Stopping { kill_at: Tick, why: Why },
    /// Settled; the broker has not answered yet. It comes again after that time, if it was given
    /// back.
    Settling { back_after: Option<Duration> },
    /// Refused, and the same: its key waits, since it comes again where no dead letter could be made of it.
    Burying,
}

/// Why a handler was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It worked too long: the try counts.
    Overtime,
    /// The engine stops: the try does not count.
    Shutdown,
}

/// How long the broker hides the message from others, as the engine may assume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visibility {
    until: Tick,
    extend_at: Tick,
    /// When the extension that is under way was sent.
    asked: Option<Tick>,
}

impl Visibility {
    /// From the arrival. The broker's clock started a little before, by the time on the wire: that
    /// is what the two spare thirds are for.
    pub(crate) fn from(now: Tick, span: Duration) -> Visibility {
        Visibility { until: now + span, extend_at: now + span / 3, asked: None }
    }

    /// Whether it must be taken for somebody else's.
    pub(crate) fn ended(&self, now: Tick) -> bool {
        now >= self.until
    }

    /// When it should be extended next.
    pub(crate) fn due(&self) -> Tick {
        self.extend_at
    }

    /// Plans the next extension, and says whether one may be sent now: not while one is under way.
    pub(crate) fn ask(&mut self, now: Tick, span: Duration) -> bool {
        self.extend_at = now + span / 3;
        if self.asked.is_some() {
            return false;
        }
        self.asked = Some(now);
        true
    }

    /// The extension was answered; if granted, for the span from when it was sent.
    pub(crate) fn answered(&mut self, granted: Option<Duration>) {
        if let (Some(asked), Some(span)) = (self.asked.take(), granted) {
            self.until = self.until.max(asked + span);
        }
    }
}

impl Held {
    /// Whether a handler is on it.
    pub(crate) fn in_work(&self) -> bool {
        matches!(self.stage, Stage::InWork { .. } | Stage::Stopping { .. })
    }

    /// Whether it was settled, and only the broker's answer is waited for.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Settling { .. } | Stage::Burying)
    }

    /// When something is to be done about it, if nothing happens before.
    pub(crate) fn due(&self) -> Option<Tick> {
        let extend = self.visibility.due();
        match self.stage {
            Stage::Waiting => Some(extend),
            Stage::InWork { limit } => Some(extend.min(limit)),
            Stage::Stopping { kill_at, .. } => Some(extend.min(kill_at)),
            Stage::Settling { .. } | Stage::Burying => None,
        }
    }
}
