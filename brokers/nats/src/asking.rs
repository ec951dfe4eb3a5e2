//! The questions of a group to its members: which are under way, and whose turn it is.
//!
//! Invariant: no more is asked for than whoever receives has said it takes, so that nothing waits here in an instance
//! that is busy while another one is idle.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::connection::Up;
use crate::group::Member;
use crate::question::{Arrived, Books, Question, Times, WAIT};

/// How long a member is asked where not all can be asked at once: at first, and when nothing came for long.
const TURN_MIN: Duration = Duration::from_millis(5);
const TURN_MAX: Duration = Duration::from_millis(250);

/// How long the server has to answer a question that somebody's last settlement made room for: some round trips.
const LAST_ANSWER: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Asking {
    /// One of each member at most.
    questions: Vec<Option<Question>>,
    /// Whose answer is taken first: each in its turn.
    first: usize,
    /// Who is asked first.
    next: usize,
    /// How long, where they take turns.
    turn: Duration,
}

/// What a question needs besides.
pub(crate) struct With<'a> {
    pub(crate) members: &'a [Member],
    pub(crate) up: &'a Up,
    /// How long what came waits for somebody who takes it.
    pub(crate) patience: Duration,
    pub(crate) books: &'a Books,
    /// Notified when an answer comes.
    pub(crate) told: &'a Arc<Notify>,
}

impl Asking {
    /// Of so many members, and none of them is asked yet.
    pub(crate) fn of(members: usize) -> Asking {
        let questions = (0..members).map(|_| None).collect();
        Asking { questions, first: 0, next: 0, turn: TURN_MIN }
    }

    /// Takes all questions back, and gives back what came to them. What was settled last lets the server answer one
    /// more, so that is waited for.
    pub(crate) async fn withdraw(&mut self) {
        let open: Vec<Question> = self.questions.iter_mut().filter_map(Option::take).collect();
        if open.is_empty() {
            return;
        }
        // waits: the server does not say that it will send nothing
        tokio::time::sleep(LAST_ANSWER).await;
        for question in open {
            question.withdraw().await;
        }
    }

    /// Whether somebody could be asked.
    pub(crate) fn is_idle(&self) -> bool {
        self.questions.iter().any(Option::is_none)
    }

    /// What came, each with its member, up to so many messages.
    pub(crate) fn take(&mut self, max: usize) -> Vec<(usize, Arrived)> {
        let (count, first) = (self.questions.len(), self.first);
        let (mut taken, mut messages) = (Vec::new(), 0);
        for at in (first..first + count).map(|at| at % count) {
            if messages == max {
                self.first = at;
                break;
            }
            let Some(arrived) = self.questions[at].as_ref().and_then(Question::take) else {
                continue;
            };
            self.questions[at] = None;
            messages += usize::from(matches!(arrived, Ok(Some(_))));
            taken.push((at, arrived));
        }
        if messages > 0 {
            self.turn = TURN_MIN;
        }
        taken
    }

    /// Asks for up to so many messages, those that are asked for already included. Where that is not one of each
    /// member, they take turns.
    pub(crate) fn ask(&mut self, max: usize, with: &With<'_>) {
        let count = self.questions.len();
        let wait = if max < count { self.turn } else { WAIT };
        let times = Times { wait, patience: with.patience };
        let mut room = max.saturating_sub(self.questions.iter().flatten().count());
        let next = self.next;
        for at in (next..next + count).map(|at| at % count) {
            if room == 0 {
                break;
            }
            if self.questions[at].is_none() {
                let (books, told) = (with.books.clone(), Arc::clone(with.told));
                let consumer = with.members[at].consumer.clone();
                self.questions[at] =
                    Some(Question::ask(consumer, with.up.clone(), times, books, told));
                room -= 1;
                self.next = (at + 1) % count;
                if self.next == 0 {
                    // A round without a message makes the next one slower.
                    self.turn = (self.turn * 2).min(TURN_MAX);
                }
            }
        }
    }
}
