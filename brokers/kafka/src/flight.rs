//! The answers of one batch, as they come in from the client's own thread.
//!
//! Invariant: each record has one answer; whoever waits is told when the last is there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::error::RDKafkaErrorCode;
use tokio::sync::Notify;

/// What the client says of one record: stored, or why not.
pub(crate) type Answer = Result<(), RDKafkaErrorCode>;

/// See the module.
pub(crate) struct Flight {
    answers: Mutex<Vec<Option<Answer>>>,
    open: AtomicUsize,
    done: Notify,
}

/// Goes with a record through the client, and comes back with its answer.
pub(crate) struct Ticket {
    flight: Arc<Flight>,
    index: usize,
}

impl Flight {
    pub(crate) fn new(records: usize) -> Arc<Flight> {
        Arc::new(Flight {
            answers: Mutex::new(vec![None; records]),
            open: AtomicUsize::new(0),
            done: Notify::new(),
        })
    }

    /// A record is about to be given to the client.
    pub(crate) fn board(self: &Arc<Self>, index: usize) -> Box<Ticket> {
        self.open.fetch_add(1, Ordering::AcqRel);
        Box::new(Ticket { flight: Arc::clone(self), index })
    }

    /// Returns when no answer is missing.
    pub(crate) async fn landed(&self) {
        loop {
            let told = self.done.notified();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            told.await;
        }
    }

    /// The answers so far.
    pub(crate) fn answers(&self) -> Vec<Option<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Ticket {
    /// What became of its record.
    pub(crate) fn answer(self, answer: Answer) {
        let flight = &*self.flight;
        let mut answers = flight.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = answers.get_mut(self.index) {
            *slot = Some(answer);
        }
        drop(answers);
        if flight.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            flight.done.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_answer_wakes_who_waits() {
        let flight = Flight::new(2);
        let tickets = [flight.board(0), flight.board(1)];
        let waiting = tokio::spawn({
            let flight = Arc::clone(&flight);
            async move { flight.landed().await }
        });
        let [first, second] = tickets;
        first.answer(Ok(()));
        assert_eq!(flight.answers(), [Some(Ok(())), None]);
        second.answer(Err(RDKafkaErrorCode::QueueFull));
        waiting.await.unwrap();
        assert_eq!(flight.answers()[1], Some(Err(RDKafkaErrorCode::QueueFull)));
    }
}
