//! Trouble: what the store refused last, by operation, until the same operation succeeds.
//!
//! Keeps INV-8: a store that can be read but not written to is in trouble although every other call
//! succeeds; one success must not hide another call's failure.

use postrider_core::{DestinationId, Error, Result};

/// An operation of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Define,
    Acquire,
    Renew,
    Load,
    Head,
    Fetch,
    Due,
    Admit,
    Settle,
    CarryOut,
}

/// The last failures. At most one for each operation and destination.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Vec<(Work, Option<DestinationId>, Error)>);

impl Troubles {
    /// An operation failed.
    pub(crate) fn add(&mut self, work: Work, of: Option<&DestinationId>, error: Error) {
        self.clear(work, of);
        self.0.push((work, of.cloned(), error));
    }

    /// An operation succeeded.
    pub(crate) fn clear(&mut self, work: Work, of: Option<&DestinationId>) {
        self.0.retain(|(other, destination, _)| *other != work || destination.as_ref() != of);
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
        self.0.retain(|(_, destination, _)| destination.as_ref() != Some(gone));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Error> {
        self.0.iter().map(|(_, _, error)| error)
    }
}
