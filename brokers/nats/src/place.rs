//! How far a group has come for sure, as one of its instances knows: where it goes on when somebody deletes its consumer.
//!
//! Invariants (INV-1): up to a place everything is settled, by the server's own word; and nobody goes on behind a place in
//! another stream, nor in one that has lost its end and counts those numbers once more. So a place is a message of this
//! stream that was settled here, and the stream must still have it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use tokio::time::{Instant, timeout};

use crate::group::Member;

/// The server is asked so many times in a visibility, for each consumer that settles something: every 10 s by default, and
/// no more often than this. What was settled since comes again where a consumer is deleted; an answer costs as much as a message.
const LOOKS: u32 = 3;
const LOOK_MIN: Duration = Duration::from_secs(1);

/// How long its answer may take, which nobody waits for.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its number in the stream.
    pub(crate) sequence: u64,
    /// When the server took it, in nanoseconds since 1970: two streams, or two lives of one, do not agree on it.
    pub(crate) at: i128,
}

/// The places of a group, each of a consumer.
pub(crate) struct Places {
    look_every: Duration,
    inner: Mutex<HashMap<Option<u16>, Known>>,
}

/// What is known of one consumer.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The furthest that was settled here; others may have something in work before it.
    settled: Option<Place>,
    /// The furthest when the server was asked last, where it had not come so far.
    asked: Option<Place>,
    /// All up to here is settled.
    sure: Option<Place>,
    /// When it was asked.
    at: Option<Instant>,
}

impl Places {
    /// Of a group whose deliveries are hidden for so long.
    pub(crate) fn new(visibility: Duration) -> Places {
        Places { look_every: (visibility / LOOKS).max(LOOK_MIN), inner: Mutex::default() }
    }

    /// A message of a consumer's was settled. The server is asked now and then how far that consumer has come.
    pub(crate) fn settled(self: &Arc<Self>, member: &Member, place: Place) {
        let partition = member.partition;
        if !self.lock().entry(partition).or_default().settle(place, Instant::now(), self.look_every)
        {
            return;
        }
        let (places, consumer) = (Arc::clone(self), member.consumer.clone());
        tokio::spawn(async move {
            if let Ok(Ok(info)) = timeout(LOOK_MAX, consumer.get_info()).await {
                let mut known = places.lock();
                known.entry(partition).or_default().confirm(info.ack_floor.stream_sequence);
            }
        });
    }

    /// The number up to which a consumer's messages are settled for sure, if the stream is the one in which they were.
    pub(crate) async fn find(&self, stream: &Stream, partition: Option<u16>) -> Option<u64> {
        let sure = self.lock().get(&partition).and_then(|known| known.sure)?;
        // What cannot be looked at, or is gone, is believed by nobody.
        let kept = stream.get_raw_message(sure.sequence).await.ok()?;
        (kept.time.unix_timestamp_nanos() == sure.at).then_some(sure.sequence)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<u16>, Known>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Says whether it is time to ask.
    fn settle(&mut self, place: Place, now: Instant, look_every: Duration) -> bool {
        match self.settled {
            // A stream that was made anew begins anew.
            Some(settled) if settled.at > place.at => {}
            _ => self.settled = Some(place),
        }
        if self.at.is_some_and(|at| now < at + look_every) {
            return false;
        }
        self.at = Some(now);
        self.asked = self.asked.or(self.settled);
        true
    }

    /// All up to a number is settled.
    fn confirm(&mut self, floor: u64) {
        if let Some(asked) = self.asked.take_if(|asked| asked.sequence <= floor) {
            self.sure = Some(asked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    fn place(sequence: u64) -> Place {
        Place { sequence, at: i128::from(sequence) * 1_000 }
    }

    /// What others have in work before it holds it back, and it is sure as soon as they are through.
    #[test]
    fn a_place_is_sure_when_all_before_it_is_settled() {
        let (mut known, now) = (Known::default(), Instant::now());
        assert!(known.settle(place(7), now, EVERY), "at once");
        known.confirm(4);
        assert_eq!(known.sure, None);
        assert!(!known.settle(place(9), now, EVERY), "not so soon");
        let later = now + EVERY;
        assert!(known.settle(place(8), later, EVERY));
        known.confirm(7);
        assert_eq!(known.sure, Some(place(7)), "as it was asked for");
        assert!(known.settle(place(10), later + EVERY, EVERY));
        known.confirm(10);
        assert_eq!(known.sure, Some(place(10)));
    }

    /// A stream that is made anew counts from one, and its places are later.
    #[test]
    fn a_place_of_a_new_stream_replaces_that_of_the_old_one() {
        let (mut known, now) = (Known::default(), Instant::now());
        assert!(known.settle(place(700), now, EVERY));
        known.confirm(700);
        let anew = Place { sequence: 1, at: 900_000 };
        assert!(known.settle(anew, now + EVERY, EVERY));
        known.confirm(1);
        assert_eq!(known.sure, Some(anew));
    }
}
