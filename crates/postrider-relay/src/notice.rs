//! Notices: what an operator reads in logs and counts in metrics.
//!
//! The machine says what happened and does nothing about it; the shell hands each notice to the
//! [`Observer`](crate::Observer) and logs it. Keeps INV-6: there is room for so many, and what does not
//! fit is counted. A notice never has a payload.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::waiting::Reason;
use postrider_core::{Code, DestinationId, ErrorKind, Invariant, Marks, PartitionId, Timestamp};

use crate::health::Blocker;
use crate::subject::Subject;

/// Notices that wait for the shell, at most: more than one step of the machine makes.
const NOTICES_MAX: usize = 16_384;

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The broker acknowledged an event.
    Delivered {
        /// Which.
        subject: Subject,
        /// Which attempt it was, from 1.
        attempt: u32,
        /// How it was marked.
        marks: Marks,
        /// How long the call of the broker took that acknowledged it.
        took: Duration,
        /// When the event's row was written.
        created_at: Timestamp,
        /// From then to the acknowledgement, by the wall clock. The machine has none: the shell fills
        /// this in. It is wrong by as much as the clocks of producer and relay differ.
        lag: Option<Duration>,
    },
    /// An attempt failed, and counts against the event.
    AttemptFailed {
        /// Which event.
        subject: Subject,
        /// Which attempt it was, from 1.
        attempt: u32,
        /// What was answered.
        detail: String,
        /// When it is tried again; `None` if it is not.
        delay: Option<Duration>,
    },
    /// An event was given up.
    DeadLetter {
        /// Which.
        subject: Subject,
        /// Why.
        reason: Reason,
        /// What was answered last, or what is wrong with it.
        detail: String,
        /// Attempts that counted.
        attempts: u32,
        /// Whether what follows of its key waits behind it.
        holds_key: bool,
    },
    /// An event waits behind an earlier one of its key. Said of the first of a key only.
    Parked {
        /// Which.
        subject: Subject,
    },
    /// So much of a key waits that nothing more of it is copied: what follows is read again when its turn comes.
    RangeOpened {
        /// The first event that is not.
        subject: Subject,
        /// How many of its key wait.
        waiting: u64,
    },
    /// An endpoint failed, through no fault of an event.
    EndpointFailed {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: Arc<str>,
        /// Failures in a row.
        failures: u32,
        /// What was answered.
        detail: String,
        /// Whether it is the first failure of its kind since the last acknowledgement.
        is_new: bool,
        /// How long nothing is sent to it.
        pause: Duration,
    },
    /// An endpoint that had failed acknowledged something.
    EndpointRecovered {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: Arc<str>,
        /// Failures in a row before that.
        failures: u32,
        /// Since its first failure.
        away: Duration,
    },
    /// An endpoint takes nothing until an operator enables it.
    EndpointDisabled {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: Arc<str>,
        /// What it answered; empty where another relay heard it.
        detail: String,
    },
    /// An endpoint is in service again.
    EndpointEnabled {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: Arc<str>,
    },
    /// An endpoint refuses every event of a type: they wait as held.
    TypeHeld {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: Arc<str>,
        /// Which type.
        event_type: String,
        /// How many of it were refused, with none taken between.
        refused: u32,
        /// What was answered last.
        detail: String,
    },
    /// It takes the type again.
    TypeTaken {
        /// Of which destination.
        destination: DestinationId,
        /// Which topic, subject, queue, or URL.
        topic: Arc<str>,
        /// Which type.
        event_type: String,
        /// How many of it were refused.
        refused: u32,
        /// For how long it was held.
        away: Duration,
    },
    /// A partition is ours.
    LeaseTaken {
        /// Which.
        partition: PartitionId,
        /// Its token.
        token: u64,
        /// How often in a row it was taken over from owners that died, with nothing settled between.
        takeovers: u32,
    },
    /// A partition was given away, because it is more than our share or we are stopping.
    LeaseReleased {
        /// Which.
        partition: PartitionId,
        /// Its token.
        token: u64,
    },
    /// A partition is no longer ours.
    LeaseLost {
        /// Which.
        partition: PartitionId,
        /// Its token.
        token: u64,
        /// Why.
        why: LostBecause,
    },
    /// The store refused a settlement; nothing was written.
    Fenced {
        /// In which partition.
        partition: PartitionId,
        /// Under which token.
        token: u64,
        /// What it said.
        detail: String,
    },
    /// Progress was saved.
    Settled {
        /// In which partition.
        partition: PartitionId,
        /// Events that cursors passed.
        rows: u64,
        /// Events that entered or changed in `waiting`.
        waiting: u64,
    },
    /// Requests of operators were carried out.
    CarriedOut {
        /// Rows that were changed or skipped.
        rows: u32,
        /// Keys that were freed, one for each event that was let go.
        freed: usize,
        /// Partitions that are loaded anew, because a cursor was set back.
        surrendered: usize,
    },
    /// Half as many events of a destination wait as may, or not any more; or as many, and nothing new is read.
    Waiting {
        /// Which destination.
        destination: DestinationId,
        /// How many wait, as far as is known.
        waiting: u64,
        /// How many may.
        most: u64,
        /// What has changed.
        filling: Filling,
    },
    /// Old events were deleted.
    Retired {
        /// In which partition.
        partition: PartitionId,
        /// How many.
        rows: u32,
    },
    /// The store refuses something, or says it differently than before.
    StoreTrouble {
        /// What was asked, like `settle`.
        operation: &'static str,
        /// What kind of failure.
        kind: ErrorKind,
        /// What it said.
        detail: String,
        /// The page about it.
        code: Option<Code>,
    },
    /// The store does again what it refused.
    StoreRecovered {
        /// What was asked, like `settle`.
        operation: &'static str,
    },
    /// A destination is not served, because store and relay do not agree on it. Said once.
    NotServed {
        /// Which, and why: [`Blocker::Definition`], [`Blocker::Unnamed`], or [`Blocker::Absent`].
        blocker: Blocker,
    },
    /// A promise was broken, and the relay saw it. A defect.
    Violated {
        /// Which.
        invariant: Invariant,
        /// What was seen.
        what: &'static str,
    },
}

/// How full `waiting` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// Less than three eighths of the bound wait again.
    Less,
    /// Half of the bound is reached.
    Half,
    /// The bound is reached: nothing new is read.
    Full,
    /// An eighth of it has gone since: what is new is read again.
    Room,
}

/// Why a partition is no longer ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostBecause {
    /// Its lease could have expired by our own clock: no renewal succeeded in time.
    Expired,
    /// The store did not renew it.
    NotRenewed,
    /// The store refused a settlement.
    Refused,
    /// The store let it go, because an operator set a cursor back.
    Surrendered,
    /// A settlement may be written or not, and operators' requests were carried out meanwhile: what
    /// became of both is read anew.
    InDoubt,
}

impl LostBecause {
    /// In a word, for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            LostBecause::Expired => "expired",
            LostBecause::NotRenewed => "not_renewed",
            LostBecause::Refused => "refused",
            LostBecause::Surrendered => "surrendered",
            LostBecause::InDoubt => "in_doubt",
        }
    }
}

/// Notices that the shell has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    queue: VecDeque<Notice>,
    /// How many did not fit.
    pub(crate) lost: u64,
    /// Nobody wants to hear of each delivery.
    pub(crate) no_deliveries: bool,
}

impl Notices {
    pub(crate) fn push(&mut self, notice: Notice) {
        if self.queue.len() >= NOTICES_MAX {
            self.lost += 1;
            return;
        }
        self.queue.push_back(notice);
    }

    pub(crate) fn extend(&mut self, notices: impl IntoIterator<Item = Notice>) {
        notices.into_iter().for_each(|notice| self.push(notice));
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.queue.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-6: who never takes notices costs a bounded memory.
    #[test]
    fn notices_that_nobody_takes_are_counted() {
        let mut notices = Notices::default();
        for _ in 0..NOTICES_MAX + 3 {
            notices.push(Notice::StoreRecovered { operation: "settle" });
        }
        assert_eq!((notices.take().count(), notices.lost), (NOTICES_MAX, 3));
    }
}
