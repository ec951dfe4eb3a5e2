//! Trouble: what the store refused last, by operation, until the same operation succeeds.
//!
//! Keeps INV-8: a store that can be read but not written to is in trouble although every other call
//! succeeds; one success must not hide another call's failure.

use postrider_core::{DestinationId, Error, Result};

use crate::notice::Notice;

/// An operation of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Define,
    Acquire,
    Renew,
    Release,
    Load,
    Head,
    Fetch,
    Due,
    Admit,
    Settle,
    CarryOut,
    Retire,
    Count,
}

impl Work {
    /// The operation's name, as logs and metrics spell it.
    const fn as_str(self) -> &'static str {
        match self {
            Work::Define => "define",
            Work::Acquire => "acquire",
            Work::Renew => "renew",
            Work::Release => "release",
            Work::Load => "load",
            Work::Head => "head",
            Work::Fetch => "fetch",
            Work::Due => "due",
            Work::Admit => "admit",
            Work::Settle => "settle",
            Work::CarryOut => "carry out",
            Work::Retire => "retire",
            Work::Count => "count",
        }
    }
}

/// The last failures. At most one for each operation and destination.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    standing: Vec<(Work, Option<DestinationId>, Error)>,
    /// What has changed since it was last taken.
    changes: Vec<Notice>,
}

impl Troubles {
    /// An operation failed.
    pub(crate) fn add(&mut self, work: Work, of: Option<&DestinationId>, error: Error) {
        let same = |(other, destination, _): &&mut (Work, Option<DestinationId>, Error)| {
            *other == work && destination.as_ref() == of
        };
        let last = self.standing.iter_mut().find(same);
        if last.as_ref().is_none_or(|(_, _, last)| last.kind() != error.kind()) {
            self.changes.push(Notice::StoreTrouble {
                operation: work.as_str(),
                kind: error.kind(),
                detail: error.to_string(),
                code: error.operator_code(),
            });
        }
        match last {
            Some((_, _, last)) => *last = error,
            None => self.standing.push((work, of.cloned(), error)),
        }
    }

    /// An operation succeeded.
    pub(crate) fn clear(&mut self, work: Work, of: Option<&DestinationId>) {
        let before = self.standing.len();
        self.standing
            .retain(|(other, destination, _)| *other != work || destination.as_ref() != of);
        if self.standing.len() < before {
            self.changes.push(Notice::StoreRecovered { operation: work.as_str() });
        }
    }

    /// Notes how an operation ended, and passes on what it brought.
    pub(crate) fn note<T>(
        &mut self,
        work: Work,
        of: Option<&DestinationId>,
        result: Result<T>,
    ) -> Option<T> {
        match result {
            Ok(value) => {
                self.clear(work, of);
                Some(value)
            }
            Err(error) => {
                self.add(work, of, error);
                None
            }
        }
    }

    /// A destination is not served any more.
    pub(crate) fn forget(&mut self, gone: &DestinationId) {
        self.standing.retain(|(_, destination, _)| destination.as_ref() != Some(gone));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Error> {
        self.standing.iter().map(|(_, _, error)| error)
    }

    /// What has changed since this was last called.
    pub(crate) fn changes(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.changes)
    }
}
