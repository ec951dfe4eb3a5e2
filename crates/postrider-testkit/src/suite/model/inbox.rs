//! The naive inbox: per (event, handler) one of the four states of the contract's table.
//!
//! It says what a call must answer. What the contract leaves open, such as which of two results of one
//! step stays, it leaves open too, and takes from the next answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use postrider_core::inbox::Accepted;
use postrider_core::{Claim, ClaimLease, ErrorKind, InboxKey, Result};

use super::{Broken, Met, Rule, holds};
use crate::suite::Then;

/// A row that is there.
#[derive(Clone, Debug)]
struct Row {
    /// Which of two payloads it is known with.
    other_payload: bool,
    /// The greatest token given so far.
    token: u64,
    state: State,
    /// What each step may have stored.
    steps: BTreeMap<u8, BTreeSet<Bytes>>,
}

#[derive(Clone, Debug)]
enum State {
    Claimed { ends: Duration, let_go: bool },
    Processed { result: Bytes, at: Duration },
}

/// The rows, and the store's clock as the model counts it.
#[derive(Debug)]
pub(super) struct Rows {
    rows: BTreeMap<InboxKey, Row>,
    pub(super) effects: u64,
    pub(super) now: Duration,
    /// How far an answer about the rest of a lease may be off.
    slack: Duration,
    /// Whether a purge takes claims that ended, as it takes what was done.
    purges_claims: bool,
}

impl Row {
    /// Whether the lease is the one that may write. It may be over, as long as nobody took it.
    fn is_of(&self, lease: &ClaimLease) -> bool {
        self.token == lease.token && matches!(self.state, State::Claimed { let_go: false, .. })
    }
}

impl Rows {
    pub(super) fn new(slack: Duration, purges_claims: bool) -> Rows {
        Rows { rows: BTreeMap::new(), effects: 0, now: Duration::ZERO, slack, purges_claims }
    }

    /// Compares the answer to a claim, and takes it over.
    pub(super) fn claimed(
        &mut self,
        key: &InboxKey,
        other_payload: bool,
        duration: Duration,
        answer: &Claim,
        met: &Met,
    ) -> Result<(), Broken> {
        let (now, slack) = (self.now, self.slack);
        let told = || format!("{answer:?} at {now:?}");
        let Some(row) = self.rows.get_mut(key) else {
            met.note("claimed");
            let Claim::Claimed(lease) = answer else {
                return holds(Rule::FreeIsGiven, false, || format!("no row: {}", told()));
            };
            let state = State::Claimed { ends: now + duration, let_go: false };
            let steps = BTreeMap::new();
            let row = Row { other_payload, token: lease.token, state, steps };
            self.rows.insert(key.clone(), row);
            return Ok(());
        };
        if row.other_payload != other_payload {
            met.note("claimed with another payload");
            return holds(Rule::OnePayload, *answer == Claim::Mismatch, told);
        }
        match &row.state {
            State::Processed { result, .. } => {
                met.note("claimed what was done");
                let done = Claim::Processed { result: result.clone() };
                holds(Rule::DoneStaysDone, *answer == done, || format!("{row:?}: {}", told()))
            }
            State::Claimed { ends, let_go: false } if *ends > now => {
                met.note("claimed what is leased");
                let left = *ends - now;
                let right = matches!(answer, Claim::Leased { remaining }
                    if remaining.abs_diff(left) <= slack);
                holds(Rule::OneHolder, right, || format!("{row:?}: {}", told()))
            }
            State::Claimed { let_go, .. } => {
                met.note(if *let_go { "claimed what was let go" } else { "taken over" });
                let Claim::Claimed(lease) = answer else {
                    return holds(Rule::FreeIsGiven, false, || format!("{row:?}: {}", told()));
                };
                holds(Rule::TokenGrows, lease.token > row.token, || {
                    format!("{row:?}: {}", told())
                })?;
                row.token = lease.token;
                row.state = State::Claimed { ends: now + duration, let_go: false };
                Ok(())
            }
        }
    }

    /// Compares the answer to a write under a lease: only the last one may. Says whether it did.
    fn fenced<T: std::fmt::Debug>(
        &self,
        lease: &ClaimLease,
        answer: &Result<T>,
        met: &Met,
    ) -> Result<bool, Broken> {
        let row = self.rows.get(&lease.key);
        let stands = row.is_some_and(|row| row.is_of(lease));
        if stands {
            let rule = Rule::EndedIsKept;
            holds(rule, answer.is_ok(), || format!("{answer:?} under {lease:?}; {row:?}"))?;
        } else {
            met.note("a stale claim wrote nothing");
            let kind = answer.as_ref().err().map(postrider_core::Error::kind);
            holds(Rule::StaleIsRefused, kind == Some(ErrorKind::Fenced), || {
                format!("{answer:?} under {lease:?}; {row:?}")
            })?;
        }
        Ok(stands)
    }

    pub(super) fn beaten(
        &mut self,
        lease: &ClaimLease,
        duration: Duration,
        answer: &Result<()>,
        met: &Met,
    ) -> Result<(), Broken> {
        if self.fenced(lease, answer, met)?
            && let Some(row) = self.rows.get_mut(&lease.key)
        {
            let over = matches!(row.state, State::Claimed { ends, .. } if ends <= self.now);
            met.note(if over { "prolonged after its end" } else { "prolonged" });
            row.state = State::Claimed { ends: self.now + duration, let_go: false };
        }
        Ok(())
    }

    pub(super) fn completed(
        &mut self,
        lease: &ClaimLease,
        result: &Bytes,
        answer: &Result<()>,
        met: &Met,
    ) -> Result<(), Broken> {
        let row = self.rows.get_mut(&lease.key);
        if let Some(row) = &row
            && row.token == lease.token
            && matches!(row.state, State::Processed { .. })
        {
            // Said again, as after a lost answer: whatever is answered, the first result stays.
            met.note("completed twice");
            return Ok(());
        }
        if self.fenced(lease, answer, met)?
            && let Some(row) = self.rows.get_mut(&lease.key)
        {
            met.note("completed");
            row.state = State::Processed { result: result.clone(), at: self.now };
        }
        Ok(())
    }

    /// Whatever is answered to one that let go of what it does not have, it changes nothing.
    pub(super) fn released(
        &mut self,
        lease: &ClaimLease,
        answer: &Result<()>,
        met: &Met,
    ) -> Result<(), Broken> {
        let now = self.now;
        let Some(row) = self.rows.get_mut(&lease.key).filter(|row| row.is_of(lease)) else {
            met.note("a stale claim was let go");
            return Ok(());
        };
        holds(Rule::EndedIsKept, answer.is_ok(), || format!("{answer:?} under {lease:?}"))?;
        met.note("let go");
        row.state = State::Claimed { ends: now, let_go: true };
        Ok(())
    }

    pub(super) fn step_read(
        &mut self,
        lease: &ClaimLease,
        step: u8,
        answer: &Result<Option<Bytes>>,
        met: &Met,
    ) -> Result<(), Broken> {
        if !self.fenced(lease, answer, met)? {
            return Ok(());
        }
        let row = self.rows.get_mut(&lease.key);
        let known = row.and_then(|row| row.steps.get_mut(&step));
        let read = answer.as_ref().ok().and_then(Option::as_ref);
        let right = match (&known, read) {
            (None, None) => true,
            (Some(known), Some(read)) => known.contains(read),
            _ => false,
        };
        holds(Rule::StepsStay, right, || format!("{answer:?} for one of {known:?}"))?;
        if let (Some(known), Some(read)) = (known, read) {
            met.note("a step was found");
            *known = BTreeSet::from([read.clone()]);
        }
        Ok(())
    }

    pub(super) fn step_stored(
        &mut self,
        lease: &ClaimLease,
        step: u8,
        result: &Bytes,
        answer: &Result<()>,
        met: &Met,
    ) -> Result<(), Broken> {
        if self.fenced(lease, answer, met)?
            && let Some(row) = self.rows.get_mut(&lease.key)
        {
            row.steps.entry(step).or_default().insert(result.clone());
        }
        Ok(())
    }

    /// Compares what was deleted in portions until nothing was left to delete. Returns the keys that
    /// are gone: their tokens begin anew, and who has one of them outlived the retention.
    pub(super) fn purged(
        &mut self,
        older_than: Duration,
        rows_max: u32,
        portions: &[u64],
        met: &Met,
    ) -> Result<BTreeSet<InboxKey>, Broken> {
        let now = self.now;
        let gone: BTreeSet<InboxKey> = self
            .rows
            .iter()
            .filter(|(_, row)| match row.state {
                State::Processed { at, .. } => now.saturating_sub(at) >= older_than,
                State::Claimed { ends, .. } => {
                    self.purges_claims && ends <= now && now.saturating_sub(ends) >= older_than
                }
            })
            .map(|(key, _)| key.clone())
            .collect();
        let bounded = portions.iter().all(|portion| *portion <= u64::from(rows_max));
        let all = portions.iter().sum::<u64>() == gone.len() as u64;
        holds(Rule::PurgeIsBounded, bounded && all, || {
            format!("{portions:?} of {rows_max} older than {older_than:?}; {self:?}")
        })?;
        if !gone.is_empty() {
            met.note("purged");
        }
        self.rows.retain(|key, _| !gone.contains(key));
        Ok(gone)
    }

    /// Compares the answer to a transaction, and takes it over if it was committed.
    pub(super) fn accepted(
        &mut self,
        key: &InboxKey,
        other_payload: bool,
        then: Then,
        answer: &Result<Accepted>,
        met: &Met,
    ) -> Result<(), Broken> {
        let now = self.now;
        let row = self.rows.get(key);
        let (rule, situation, expected) = match row {
            None => (Rule::FreeIsGiven, "accepted", Ok(Accepted::FirstTime)),
            Some(row) if row.other_payload != other_payload => {
                (Rule::OnePayload, "accepted with another payload", Err(ErrorKind::Conflict))
            }
            Some(row) => match row.state {
                State::Processed { .. } => {
                    (Rule::OneEffect, "accepted what was done", Ok(Accepted::Duplicate))
                }
                State::Claimed { ends, let_go: false } if ends > now => {
                    (Rule::OneHolder, "accepted what is leased", Err(ErrorKind::Busy))
                }
                State::Claimed { .. } => {
                    (Rule::FreeIsGiven, "accepted after a claim's end", Ok(Accepted::FirstTime))
                }
            },
        };
        met.note(situation);
        let answered = answer.as_ref().copied().map_err(postrider_core::Error::kind);
        holds(rule, answered == expected, || format!("{answer:?} for {row:?} at {now:?}"))?;
        if expected != Ok(Accepted::FirstTime) {
            return Ok(());
        }
        if then != Then::Commit {
            met.note("accepted and undone");
            return Ok(());
        }
        self.effects += 1;
        let state = State::Processed { result: Bytes::new(), at: now };
        let (token, steps) = (row.map_or(0, |row| row.token + 1), BTreeMap::new());
        self.rows.insert(key.clone(), Row { other_payload, token, state, steps });
        Ok(())
    }
}
