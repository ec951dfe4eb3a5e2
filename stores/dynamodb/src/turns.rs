//! When the index is listed, and from where: at its tail, for what is new, and at its front, for everything.
//!
//! Invariants: the front is listed to its end at every backstop, and after every request for it, whatever
//! else is going on; a listing that failed has not been; and no clock of a producer moves the tail ahead of
//! the reader's own.

use std::time::{Duration, Instant};

use crate::index::Resume;

/// How far behind the newest entry a listing begins, in milliseconds: producers' clocks differ, and the
/// index lags. What is older still is found when the index is read from its front.
const OVERLAP_MS: u64 = 10_000;

/// The listings of an index key, one after the other.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Where the listing goes on; nothing where another begins.
    resume: Option<Resume>,
    /// When the listing from the front began that is under way.
    begun: Option<Instant>,
    /// The newest entry that was named, in milliseconds.
    newest: u64,
    /// When the front was last listed to the end.
    swept: Option<Instant>,
    /// When it was last asked that the front be listed, if it was not since.
    asked: Option<Instant>,
}

/// A page of the index that is to be read.
#[derive(Debug, PartialEq)]
pub(crate) struct Turn {
    pub(crate) resume: Option<Resume>,
    /// The moment from which the listing is, in milliseconds; 0 is the front.
    pub(crate) from: u64,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { resume: None, begun: None, newest: 0, swept: None, asked: Some(Instant::now()) }
    }
}

impl Turns {
    /// Has the front listed: a listing from there that is under way goes on, and another follows.
    pub(crate) fn sweep(&mut self) {
        self.asked = Some(Instant::now());
        if self.begun.is_none() {
            self.resume = None;
        }
    }

    /// Whether a listing is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.resume.is_some()
    }

    /// Whether the front is to be listed, or being listed.
    pub(crate) fn owes_front(&self, backstop: Duration) -> bool {
        let stale = |swept: Instant| swept.elapsed() >= backstop;
        (self.resume.is_some() && self.begun.is_some())
            || self.asked.is_some()
            || self.swept.is_none_or(stale)
    }

    /// The next page that is to be read; nothing if the index need not be asked.
    pub(crate) fn next(&mut self, backstop: Duration, polls: bool) -> Option<Turn> {
        let resume = self.resume.take();
        if resume.is_none() {
            let front = self.owes_front(backstop);
            if !front && !polls {
                return None;
            }
            self.begun = front.then(Instant::now);
        }
        let from = if self.begun.is_some() { 0 } else { self.newest.saturating_sub(OVERLAP_MS) };
        Some(Turn { resume, from })
    }

    /// A page was read: where it ended, and the newest entry, which a producer's clock that is ahead of ours
    /// does not make newer than now.
    pub(crate) fn read(&mut self, resume: Option<Resume>, newest: u64, now: u64) {
        self.newest = self.newest.max(newest.min(now));
        if resume.is_none()
            && let Some(begun) = self.begun.take()
        {
            self.swept = Some(Instant::now());
            self.asked = self.asked.filter(|asked| *asked > begun);
        }
        self.resume = resume;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn more() -> Option<Resume> {
        Some(Resume::new())
    }

    #[test]
    fn the_front_comes_first_and_then_the_tail() {
        let mut turns = Turns::default();
        assert_eq!(turns.next(LONG, false), Some(Turn { resume: None, from: 0 }));
        turns.read(more(), 50_000, 99_000);
        assert_eq!(turns.next(LONG, false), Some(Turn { resume: more(), from: 0 }));
        turns.read(None, 60_000, 99_000);
        assert_eq!(turns.next(LONG, false), None, "the stream tells");
        assert_eq!(turns.next(LONG, true), Some(Turn { resume: None, from: 50_000 }));
        turns.read(None, 61_000, 99_000);
        assert_eq!(turns.next(Duration::ZERO, false).unwrap().from, 0, "the backstop");
    }

    /// A listing that failed has not been, and one that was asked for during another follows it.
    #[test]
    fn what_was_asked_for_is_listed() {
        let mut turns = Turns::default();
        turns.next(LONG, false).unwrap();
        assert_eq!(turns.next(LONG, false).unwrap().from, 0, "the first one failed");
        turns.read(more(), 1, 99);
        turns.sweep();
        assert_eq!(turns.next(LONG, false).unwrap().resume, more(), "it goes on");
        turns.read(None, 1, 99);
        assert_eq!(turns.next(LONG, false), Some(Turn { resume: None, from: 0 }));
        turns.read(None, 1, 99);
        assert_eq!(turns.next(LONG, false), None);
    }

    #[test]
    fn a_producers_clock_does_not_move_the_tail_ahead() {
        let mut turns = Turns::default();
        turns.next(LONG, true).unwrap();
        turns.read(None, u64::MAX, 70_000);
        assert_eq!(turns.next(LONG, true).unwrap().from, 60_000);
    }
}
