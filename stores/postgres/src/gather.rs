//! Questions of many partitions in one statement.
//!
//! The engine asks for each partition by itself, often for all of them at the same moment. Whoever comes
//! first waits until the tasks that are ready have had their turn, and takes along what they asked.
//! After a rest, when all partitions look at the same beat, a moment more is waited for those that came last time.
//! Invariant: bounded. At most [`FLIGHTS_MAX`] statements are on their way, each with at most
//! [`GROUP_MAX`] questions; what comes meanwhile waits for the next, and so does what a statement had no
//! room for.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postrider_core::{BoxFuture, Error, ErrorKind, Result};
use tokio::sync::oneshot;

/// One statement is read by the server while the answer to the other is read by us.
const FLIGHTS_MAX: usize = 2;

/// So many questions in one statement: more than the default number of partitions.
const GROUP_MAX: usize = 64;

/// How often the ready tasks have their turn before a group leaves.
const TURNS: usize = 10;

/// Without a statement for so long, questions come on a beat: all partitions' at once.
const REST: Duration = Duration::from_millis(50);

/// So often, and each time so long, those are waited for that came together on the last beat. Another thread
/// may be about to ask for them.
const WAITS: usize = 2;
const WAIT: Duration = Duration::from_millis(1);

/// What becomes of a question.
pub(crate) enum Reply<Q, A> {
    /// It is answered.
    Is(Result<A>),
    /// There was no room for it: it comes first in the next group. Some other question of each group must
    /// have been answered, or the next group must fare better.
    Again(Q),
}

/// Answers a group of questions, each for itself, in their order.
type Answer<Q, A> = Arc<dyn Fn(Vec<Q>) -> BoxFuture<'static, Vec<Reply<Q, A>>> + Send + Sync>;

/// Where questions gather.
pub(crate) struct Gather<Q, A> {
    shared: Arc<Mutex<Waiting<Q, A>>>,
}

struct Waiting<Q, A> {
    questions: Vec<(Q, oneshot::Sender<Result<A>>)>,
    /// Somebody is about to take them.
    gathering: bool,
    /// Statements on their way.
    flights: usize,
    /// When the last of them landed.
    landed: Option<Instant>,
    /// How many came on the last beat, together or one after the other.
    usual: usize,
}

impl<Q, A> Clone for Gather<Q, A> {
    fn clone(&self) -> Gather<Q, A> {
        Gather { shared: Arc::clone(&self.shared) }
    }
}

impl<Q, A> Default for Gather<Q, A> {
    fn default() -> Gather<Q, A> {
        let waiting =
            Waiting { questions: Vec::new(), gathering: false, flights: 0, landed: None, usual: 0 };
        Gather { shared: Arc::new(Mutex::new(waiting)) }
    }
}

impl<Q, A> std::fmt::Debug for Gather<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

impl<Q: Send + 'static, A: Send + 'static> Gather<Q, A> {
    /// Asks, together with whoever asks at the same moment.
    pub(crate) async fn ask<F, R>(
        &self,
        operation: &'static str,
        question: Q,
        answer: F,
    ) -> Result<A>
    where
        F: Fn(Vec<Q>) -> R + Send + Sync + 'static,
        R: Future<Output = Vec<Reply<Q, A>>> + Send + 'static,
    {
        let (told, hears) = oneshot::channel();
        let leads = {
            let mut waiting = lock(&self.shared);
            waiting.questions.push((question, told));
            waiting.begins()
        };
        if leads {
            let answer: Answer<Q, A> = Arc::new(move |group| Box::pin(answer(group)));
            // On its own: whoever asked first may be given up while others still wait.
            tokio::spawn(lead(Arc::clone(&self.shared), answer));
        }
        hears.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Closed, operation).message("the program is stopping"))
        })
    }
}

impl<Q, A> Waiting<Q, A> {
    /// Whether a group is to be led from here on.
    fn begins(&mut self) -> bool {
        let begins = !self.gathering && self.flights < FLIGHTS_MAX && !self.questions.is_empty();
        self.gathering |= begins;
        begins
    }

    /// Whether questions come on a beat.
    fn rests(&self) -> bool {
        self.flights == 0 && self.landed.is_none_or(|landed| landed.elapsed() >= REST)
    }
}

/// A statement on its way. Landed when it is dropped, whatever became of it: one that was lost must not
/// take its place for ever.
struct Flight<'a, Q, A>(&'a Mutex<Waiting<Q, A>>);

impl<Q, A> Drop for Flight<'_, Q, A> {
    fn drop(&mut self) {
        let mut waiting = lock(self.0);
        waiting.flights -= 1;
        waiting.landed = Some(Instant::now());
    }
}

async fn lead<Q, A>(shared: Arc<Mutex<Waiting<Q, A>>>, answer: Answer<Q, A>) {
    loop {
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
        let rests = lock(&shared).rests();
        for _ in 0..WAITS {
            if !rests || is_complete(&shared) {
                break;
            }
            // waits: for tasks that another thread has not begun yet
            tokio::time::sleep(WAIT).await;
        }
        let group: Vec<_> = {
            let mut waiting = lock(&shared);
            waiting.gathering = false;
            // Who has stopped listening needs no answer.
            waiting.questions.retain(|(_, told)| !told.is_closed());
            let count = waiting.questions.len().min(GROUP_MAX);
            // Those who came too late for the first group of a beat belong to it as well.
            let before = if rests { 0 } else { waiting.usual };
            waiting.usual = (before + count).min(GROUP_MAX);
            waiting.flights += 1;
            waiting.questions.drain(..count).collect()
        };
        let flight = Flight(&shared);
        let (questions, listeners): (Vec<Q>, Vec<_>) = group.into_iter().unzip();
        let answers = match questions.is_empty() {
            true => Vec::new(),
            false => answer(questions).await,
        };
        let mut again = Vec::new();
        for (listener, answer) in listeners.into_iter().zip(answers) {
            match answer {
                Reply::Is(answer) => _ = listener.send(answer),
                Reply::Again(question) => again.push((question, listener)),
            }
        }
        lock(&shared).questions.splice(..0, again);
        drop(flight);
        if !lock(&shared).begins() {
            return;
        }
    }
}

/// Whether as many ask as on the last beat.
fn is_complete<Q, A>(shared: &Mutex<Waiting<Q, A>>) -> bool {
    let waiting = lock(shared);
    waiting.questions.len() >= waiting.usual
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// R034: whoever asks at the same moment shares a statement, and each has his own answer.
    #[tokio::test]
    async fn questions_of_one_moment_share_a_statement() {
        let (gather, statements) = (Gather::default(), Arc::new(AtomicUsize::new(0)));
        let ask = |question: u32| {
            let statements = Arc::clone(&statements);
            gather.ask("ask", question, move |group: Vec<u32>| {
                statements.fetch_add(1, Ordering::Relaxed);
                let answer = |question| Reply::Is(Ok(question * 2));
                async move { group.into_iter().map(answer).collect() }
            })
        };
        let answers = futures_util::future::join_all((0..100).map(ask)).await;
        let answers: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, (0..100).map(|question| question * 2).collect::<Vec<u32>>());
        assert!(statements.load(Ordering::Relaxed) <= 3);
    }

    /// INV-8: a statement that was lost takes no place from those that follow.
    #[tokio::test]
    async fn a_lost_statement_blocks_nobody() {
        let gather: Gather<u32, u32> = Gather::default();
        for _ in 0..=FLIGHTS_MAX {
            let lost = gather.ask("ask", 0, |group: Vec<u32>| async move {
                assert_eq!(group, [1], "lost on purpose");
                Vec::new()
            });
            assert_eq!(lost.await.unwrap_err().kind(), ErrorKind::Closed);
        }
        let answered = gather.ask("ask", 1, |_| async { vec![Reply::Is(Ok(2))] });
        assert_eq!(answered.await.unwrap(), 2);
    }

    /// INV-6: what a statement had no room for is asked by the next, and nobody's answer is another's.
    #[tokio::test]
    async fn what_had_no_room_comes_with_the_next() {
        let (gather, statements) = (Gather::default(), Arc::new(AtomicUsize::new(0)));
        let ask = |question: u32| {
            let statements = Arc::clone(&statements);
            gather.ask("ask", question, move |group: Vec<u32>| {
                statements.fetch_add(1, Ordering::Relaxed);
                let reply = |(place, question)| match place {
                    0..7 => Reply::Is(Ok(question * 2)),
                    _ => Reply::Again(question),
                };
                async move { group.into_iter().enumerate().map(reply).collect() }
            })
        };
        let answers = futures_util::future::join_all((0..32).map(ask)).await;
        let answers: Vec<u32> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, (0..32).map(|question| question * 2).collect::<Vec<u32>>());
        assert_eq!(statements.load(Ordering::Relaxed), 5);
    }
}
