//! Trouble: what the store refused last, by operation, until the same operation succeeds.
//!
//! Keeps INV-8: a store that can be read but not written to is in trouble although every other call
//! succeeds; one success must not hide another call's failure.

use postrider_core::{Code, DestinationId, Error, ErrorKind, Result};

use crate::notice::{Notice, Notices};

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
    ReadRange,
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
            Work::ReadRange => "read range",
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
    changes: Vec<Change>,
}

/// A change of what stands.
#[derive(Debug)]
pub(crate) enum Change {
    /// A failure, or one of another kind than before.
    Began { work: Work, kind: ErrorKind, detail: String, cause: String, code: Option<Code> },
    /// A success after one.
    Ended(Work, ErrorKind),
}

impl Troubles {
    /// An operation failed.
    pub(crate) fn add(&mut self, work: Work, of: Option<&DestinationId>, error: Error) {
        let same = |(other, destination, _): &&mut (Work, Option<DestinationId>, Error)| {
            *other == work && destination.as_ref() == of
        };
        let last = self.standing.iter_mut().find(same);
        let new = |last: &Error| last.kind() != error.kind() || words(last) != words(&error);
        if last.as_ref().is_none_or(|(_, _, last)| new(last)) {
            self.changes.push(Change::Began {
                work,
                kind: error.kind(),
                detail: error.to_string(),
                cause: words(&error),
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
        let changes = &mut self.changes;
        self.standing.retain(|(other, destination, error)| {
            let over = *other == work && destination.as_ref() == of;
            if over {
                changes.push(Change::Ended(work, error.kind()));
            }
            !over
        });
    }

    /// There is no such work any more, and so nothing that will succeed: how it ended last is of no interest, and its
    /// failure is not over.
    pub(crate) fn drop_work(&mut self, work: &[Work]) {
        self.standing.retain(|(other, ..)| !work.contains(other));
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

    /// Whether an operation stands, for whatever destination, by such a failure.
    pub(crate) fn stands(&self, work: Work, kind: ErrorKind) -> bool {
        self.standing.iter().any(|(other, _, error)| *other == work && error.kind() == kind)
    }

    /// What has changed since this was last called.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }
}

/// What an error says, but for the partition and for numbers, which may be others each time.
fn words(error: &Error) -> String {
    let mut words = error.of_any_partition();
    words.retain(|letter| !letter.is_ascii_digit());
    words
}

/// What stands, each cause once: its words name a partition only where no other one met it.
pub(crate) fn causes<'a>(
    standing: impl Iterator<Item = &'a Error>,
) -> impl Iterator<Item = (String, Option<Code>)> {
    let mut causes: Vec<(String, &Error, bool)> = Vec::new();
    for error in standing {
        let cause = error.of_any_partition();
        match causes.iter_mut().find(|(known, ..)| *known == cause) {
            Some((.., alone)) => *alone = false,
            None => causes.push((cause, error, true)),
        }
    }
    causes.into_iter().map(|(cause, error, alone)| {
        (if alone { error.to_string() } else { cause }, error.operator_code())
    })
}

/// Words that are remembered, and said. There is an end to what is new.
const SAID_MAX: usize = 64;

/// What was said of all partitions' troubles. An outage meets each of them by itself: it is one line, and not one for each.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// With its words.
    said: Vec<(Work, ErrorKind, String)>,
    /// What succeeded somewhere, and may stand elsewhere.
    ended: Vec<(Work, ErrorKind)>,
}

impl Told {
    /// Says what has changed, where it was not said yet.
    pub(crate) fn hear(&mut self, changes: Vec<Change>, notices: &mut Notices) {
        for change in changes {
            match change {
                Change::Began { work, kind, detail, cause, code } => {
                    let said = (work, kind, cause);
                    if self.said.contains(&said) || self.said.len() >= SAID_MAX {
                        continue;
                    }
                    self.said.push(said);
                    let operation = work.as_str();
                    notices.push(Notice::StoreTrouble { operation, kind, detail, code });
                }
                Change::Ended(work, kind) => {
                    if !self.ended.contains(&(work, kind)) {
                        self.ended.push((work, kind));
                    }
                }
            }
        }
    }

    /// Forgets what stands nowhere any more, and says that it is over. What went with its partition has not succeeded.
    pub(crate) fn look(&mut self, stands: impl Fn(Work, ErrorKind) -> bool, notices: &mut Notices) {
        self.said.retain(|(work, kind, _)| stands(*work, *kind));
        self.ended.retain(|(work, kind)| {
            let still = stands(*work, *kind);
            if !still {
                notices.push(Notice::StoreRecovered { operation: work.as_str() });
            }
            still
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(partition: u16) -> Error {
        Error::new(ErrorKind::Unauthorized, "settle").context("partition", partition)
    }

    /// INV-8: what one cause does to each partition is not to hide the next one.
    #[test]
    fn a_cause_is_named_once_for_all_partitions() {
        let other = Error::new(ErrorKind::DiskFull, "settle").context("partition", 7);
        let met = [refused(0), other, refused(1)];
        let named: Vec<String> = causes(met.iter()).map(|(words, _)| words).collect();
        assert_eq!(named, ["settle: Unauthorized", "settle: DiskFull (partition=7)"]);
    }

    /// A copy that was adopted refuses by the same code as before, and asks for something else.
    #[test]
    fn other_words_of_the_same_kind_are_said() {
        let mut troubles = Troubles::default();
        let said = |message: &str| Error::new(ErrorKind::Conflict, "acquire").message(message);
        for (message, new) in
            [("a copy", 1), ("a copy", 0), ("adopted at 7", 1), ("adopted at 8", 0)]
        {
            troubles.add(Work::Acquire, None, said(message));
            assert_eq!(troubles.changes().len(), new, "{message}");
        }
    }

    /// A cause is said when the first partition meets it, and is over when the last one has succeeded; one that went has not.
    #[test]
    fn a_cause_is_said_once_for_all_partitions() {
        let (mut told, mut notices) = (Told::default(), Notices::default());
        let mut partitions = [Troubles::default(), Troubles::default()];
        let mut turn = |partitions: &mut [Troubles]| {
            for one in &mut *partitions {
                told.hear(one.changes(), &mut notices);
            }
            told.look(
                |work, kind| partitions.iter().any(|one| one.stands(work, kind)),
                &mut notices,
            );
            let said = notices.take().map(|notice| matches!(notice, Notice::StoreTrouble { .. }));
            said.collect::<Vec<bool>>()
        };
        for number in [0, 1] {
            partitions[usize::from(number)].add(Work::Settle, None, refused(number));
        }
        assert_eq!(turn(&mut partitions), [true]);
        partitions[0].clear(Work::Settle, None);
        assert_eq!(turn(&mut partitions), [false; 0], "it stands still");
        partitions[1].clear(Work::Settle, None);
        assert_eq!(turn(&mut partitions), [false]);
        partitions[0].add(Work::Settle, None, refused(0));
        assert_eq!(turn(&mut partitions), [true], "again");
        assert_eq!(turn(&mut partitions[1..]), [false; 0], "lost, which is no success");
        partitions[1].add(Work::Settle, None, refused(1));
        assert_eq!(turn(&mut partitions[1..]), [true]);
    }
}
