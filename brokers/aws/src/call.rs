//! A batch in calls of the service's size, and an outcome for each of its events.
//!
//! Invariant: an event counts as published by the answer that names it, and by no other; what a call without an
//! answer carried is unknown.

use std::future::Future;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use postrider_core::{Error, ErrorKind, Fault, Outcome, Result};
use tokio::time::{Instant, timeout_at};

use crate::answer::{Trouble, unknown};

/// Entries of one call: every one of these services takes ten.
pub(crate) const ENTRIES_MAX: usize = 10;
/// Calls of one batch under way at once.
const CALLS_MAX: usize = 5;
/// Events of a batch: as many as its calls carry at once.
pub(crate) const ROWS_MAX: usize = ENTRIES_MAX * CALLS_MAX;

/// An event that can be sent.
pub(crate) struct Prepared<E> {
    /// Its place in the batch.
    pub(crate) at: usize,
    /// What it weighs, as the service counts.
    pub(crate) bytes: usize,
    /// As the service takes it.
    pub(crate) entry: E,
}

/// Who carries entries to a service.
pub(crate) trait Carrier: Sync {
    /// As the service takes an event.
    type Entry: Sync + Send;

    /// One call. An outcome for each entry, in their order.
    fn call(
        &self,
        entries: &[&Self::Entry],
    ) -> impl Future<Output = std::result::Result<Vec<Outcome>, Trouble>> + Send;
}

/// Sends what can be sent, in calls of at most so many bytes.
///
/// # Errors
/// No call had an answer: what became of each event is unknown.
pub(crate) async fn carry<C: Carrier>(
    carrier: &C,
    batch: Vec<std::result::Result<Prepared<C::Entry>, Fault>>,
    bytes_max: usize,
    until: Instant,
) -> Result<Vec<Outcome>> {
    let mut outcomes = vec![Outcome::Skipped; batch.len()];
    let mut prepared = Vec::with_capacity(batch.len());
    for (at, checked) in batch.into_iter().enumerate() {
        match checked {
            Ok(one) => prepared.push(one),
            // The route's, not the event's.
            Err(fault) if fault.kind == ErrorKind::Unroutable => {
                outcomes[at] = Outcome::Unroutable(fault);
            }
            Err(fault) => outcomes[at] = Outcome::Rejected(fault),
        }
    }
    let calls = chunks(&prepared, bytes_max);
    let all = calls.len();
    let mut answers = Vec::with_capacity(all);
    let mut waiting = calls.into_iter();
    let mut under_way = FuturesUnordered::new();
    under_way.extend(waiting.by_ref().take(CALLS_MAX).map(|call| answer(carrier, call, until)));
    while let Some(answered) = under_way.next().await {
        answers.push(answered);
        under_way.extend(waiting.next().map(|call| answer(carrier, call, until)));
    }
    let silent = |(_, answer): &&(_, Answer)| matches!(answer, Answer::Silent(_));
    if all > 0 && answers.iter().filter(silent).count() == all {
        let fault = answers.into_iter().find_map(|(_, answer)| answer.silence());
        let fault = fault.unwrap_or_else(|| Fault::new(ErrorKind::Timeout, "no answer"));
        return Err(Error::new(fault.kind, "publish").message(fault.detail));
    }
    for (call, answer) in answers {
        match answer {
            Answer::Said(said) => {
                for (one, outcome) in call.iter().zip(said) {
                    outcomes[one.at] = outcome;
                }
            }
            Answer::Silent(fault) => {
                for one in call {
                    outcomes[one.at] = Outcome::Retry { fault: fault.clone(), after: None };
                }
            }
        }
    }
    Ok(outcomes)
}

enum Answer {
    Said(Vec<Outcome>),
    Silent(Fault),
}

impl Answer {
    fn silence(self) -> Option<Fault> {
        match self {
            Answer::Said(_) => None,
            Answer::Silent(fault) => Some(fault),
        }
    }
}

/// A call, and what became of it.
async fn answer<'a, C: Carrier>(
    carrier: &C,
    call: &'a [Prepared<C::Entry>],
    until: Instant,
) -> (&'a [Prepared<C::Entry>], Answer) {
    let answer = match attempt(carrier, call, until).await {
        Ok(outcomes) => Answer::Said(outcomes),
        Err(Trouble::Silent(fault)) => Answer::Silent(fault),
        Err(Trouble::Blames(_)) if call.len() > 1 => {
            // Each alone, so that it is known which: its neighbours go on.
            let mut outcomes = Vec::with_capacity(call.len());
            for one in call.chunks(1) {
                let alone = attempt(carrier, one, until).await;
                outcomes.extend(alone.unwrap_or_else(|trouble| vec![trouble.outcome()]));
            }
            Answer::Said(outcomes)
        }
        Err(trouble) => Answer::Said(vec![trouble.outcome(); call.len()]),
    };
    (call, answer)
}

async fn attempt<C: Carrier>(
    carrier: &C,
    call: &[Prepared<C::Entry>],
    until: Instant,
) -> std::result::Result<Vec<Outcome>, Trouble> {
    let entries: Vec<&C::Entry> = call.iter().map(|one| &one.entry).collect();
    let late =
        || Trouble::Silent(Fault::new(ErrorKind::Timeout, unknown("no answer came in time")));
    let mut outcomes = timeout_at(until, carrier.call(&entries)).await.map_err(|_| late())??;
    outcomes.resize_with(call.len(), nameless);
    Ok(outcomes)
}

/// What became of an event that an answer does not name.
pub(crate) fn nameless() -> Outcome {
    let detail = unknown("the answer does not name the event");
    Outcome::Retry { fault: Fault::new(ErrorKind::Unavailable, detail), after: None }
}

/// As few calls as carry all, in the order of the batch.
fn chunks<E>(prepared: &[Prepared<E>], bytes_max: usize) -> Vec<&[Prepared<E>]> {
    let mut chunks = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (at, one) in prepared.iter().enumerate() {
        if at > begin && (at - begin == ENTRIES_MAX || bytes + one.bytes > bytes_max) {
            chunks.push(&prepared[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += one.bytes;
    }
    if begin < prepared.len() {
        chunks.push(&prepared[begin..]);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(bytes: &[usize], bytes_max: usize) -> Vec<usize> {
        let prepared: Vec<_> =
            bytes.iter().map(|bytes| Prepared { at: 0, bytes: *bytes, entry: () }).collect();
        chunks(&prepared, bytes_max).iter().map(|chunk| chunk.len()).collect()
    }

    /// R056: calls are full, by number and by size, and no larger.
    #[test]
    fn calls_are_full_and_no_larger() {
        assert_eq!(lengths(&[1; 25], 100), [10, 10, 5]);
        assert_eq!(lengths(&[40, 60, 1, 99, 1], 100), [2, 2, 1]);
        assert_eq!(lengths(&[100, 100], 100), [1, 1]);
        assert_eq!(lengths(&[101, 1], 100), [1, 1], "who prepares refuses what is too large");
        assert!(lengths(&[], 100).is_empty());
    }
}
