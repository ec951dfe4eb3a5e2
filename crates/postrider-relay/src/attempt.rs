//! Attempts: what is kept of one that failed, and what a dead letter does to its key.
//!
//! Keeps INV-6: a detail is cut to what a row has room for, whatever a broker answers.

use postrider_core::DeadKeyPolicy;
use postrider_core::waiting::{Attempted, DETAIL_BYTES_MAX, Reason};

use crate::flow::Flow;
use crate::notice::Notice;
use crate::subject::Subject;

/// The outcome of an attempt, with its detail cut to what is kept.
pub(crate) fn attempted(attempts: u32, reason: Reason, detail: impl Into<String>) -> Attempted {
    // No store's text takes a zero byte: the settlement that carries one would be refused for ever.
    let mut detail: String = detail.into().replace('\0', "\u{fffd}");
    if detail.len() > DETAIL_BYTES_MAX {
        let end = (0..=DETAIL_BYTES_MAX).rev().find(|at| detail.is_char_boundary(*at));
        detail.truncate(end.unwrap_or_default());
    }
    Attempted { attempts, reason, detail }
}

/// Whether a dead letter holds its key under a policy.
pub(crate) fn holds_key(policy: DeadKeyPolicy) -> bool {
    match policy {
        DeadKeyPolicy::Park | DeadKeyPolicy::Halt => true,
        DeadKeyPolicy::Skip => false,
    }
}

impl Flow {
    /// Says that an event was given up.
    pub(crate) fn note_dead(&mut self, subject: Subject, attempted: &Attempted, holds_key: bool) {
        self.notices.push(Notice::DeadLetter {
            subject,
            reason: attempted.reason,
            detail: attempted.detail.clone(),
            attempts: attempted.attempts,
            holds_key,
        });
    }
}
