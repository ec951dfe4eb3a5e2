//! That nothing is heard where something was asked, and what it says of a store's other sessions: where a server has left
//! its address without a word, each of them would be waited for in its turn.
//!
//! Invariant (INV-8): nothing is asked over a session of which nothing was heard since a question began that was waited for in
//! vain.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a question has to be open to say anything, if whoever asked does not wait for its answer: a question is given up
/// for many reasons.
const VAIN_MIN: Duration = Duration::from_secs(5);

/// When the last question began that was waited for in vain over a session that said nothing since; of all sessions of a
/// store.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    since: Mutex<Option<Instant>>,
}

/// One session's part of it.
#[derive(Debug)]
pub(crate) struct Ear {
    silence: Arc<Silence>,
    /// When something was heard last; at first, when it was made.
    heard: Mutex<Instant>,
}

/// A question that is open. Dropped without an answer, it was given up.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    ear: &'a Ear,
    begun: Instant,
}

impl Ear {
    /// Of a session that was just made.
    pub(crate) fn new(silence: &Arc<Silence>) -> Ear {
        Ear { silence: Arc::clone(silence), heard: Mutex::new(Instant::now()) }
    }

    /// Whether this session was made, and said something last, before a question began that was waited for in vain.
    pub(crate) fn is_deaf(&self) -> bool {
        let since = *lock(&self.silence.since);
        since.is_some_and(|since| *lock(&self.heard) < since)
    }

    /// Something is asked.
    pub(crate) fn ask(&self) -> Question<'_> {
        Question { ear: self, begun: Instant::now() }
    }
}

impl Question<'_> {
    /// It was answered, whatever the answer is.
    pub(crate) fn answered(self) {
        *lock(&self.ear.heard) = Instant::now();
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        // Others over the same session were answered meanwhile: it is the question that takes long.
        if *lock(&self.ear.heard) >= self.begun || self.begun.elapsed() < VAIN_MIN {
            return;
        }
        let mut since = lock(&self.ear.silence.since);
        *since = (*since).max(Some(self.begun));
    }
}

fn lock<T>(inner: &Mutex<T>) -> MutexGuard<'_, T> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// F36, INV-8: what waits in vain speaks for the sessions of before; not for those that were heard since or made since,
    /// nor where its own session answered others meanwhile, nor where it was given up at once.
    #[tokio::test(start_paused = true)]
    async fn silence_is_of_the_sessions_of_before() {
        let silence = Arc::<Silence>::default();
        let [asked, idle, heard] = std::array::from_fn(|_| Ear::new(&silence));
        let second = Duration::from_secs(1);
        let deaf = |made: &Ear| [&asked, &idle, &heard, made].map(Ear::is_deaf);
        advance(second).await;
        // Given up at once.
        drop(asked.ask());
        assert_eq!(deaf(&Ear::new(&silence)), [false; 4]);
        // The session answers others.
        let slow = asked.ask();
        advance(second).await;
        asked.ask().answered();
        advance(VAIN_MIN).await;
        drop(slow);
        assert_eq!(deaf(&Ear::new(&silence)), [false; 4]);
        advance(second).await;
        let vain = asked.ask();
        advance(second).await;
        heard.ask().answered();
        let made = Ear::new(&silence);
        advance(VAIN_MIN).await;
        drop(vain);
        assert_eq!(deaf(&made), [true, true, false, false]);
    }
}
