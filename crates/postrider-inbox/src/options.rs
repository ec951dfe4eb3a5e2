//! The consumer engine's limits, each with its default and the reason for it.
//!
//! Invariant: nothing in the engine grows without one of these.

use std::time::Duration;

use postrider_core::inbox::DELIVERIES_MAX;
use postrider_core::{Error, ErrorKind, Result, RetryPolicy};

/// What one consumer may hold, how long it waits, and when it gives up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConsumerOptions {
    /// Handlers at work at once. Default 64: enough to keep a handler that waits 50 ms for a network
    /// answer above 1,000 events a second, and few enough for a default connection pool to queue
    /// rather than fail.
    pub in_flight_max: usize,
    /// Deliveries that wait for a handler, beyond those in work. Default 64, one more round: the
    /// next delivery is here when a handler gets free, and a crash returns no more than two rounds.
    pub prefetch_max: usize,
    /// Deliveries asked for at once. Default 32: with the largest payload that a store takes (1 MiB)
    /// an answer still fits in 32 MiB.
    pub receive_max: usize,
    /// Bytes of all deliveries held, above which nothing more is asked for. Default 16 MiB, so that
    /// a consumer fits in a small container; exceeded by one answer at most.
    pub held_bytes_max: u64,
    /// Deliveries of one key that wait for a handler. Default 16: a hot key must not fill the
    /// prefetch and starve the others. Those beyond go back to the broker, uncounted.
    pub lane_max: usize,
    /// Returned deliveries whose place in their key's order is remembered. Default 10,000, about
    /// 1 MiB. Beyond that a key's order is no longer remembered (and counted in the statistics).
    pub away_max: usize,
    /// When a failed delivery is tried again, and when it becomes a dead letter.
    pub retry: RetryPolicy,
    /// Deliveries of one message, after which it is refused without asking the handler, where the receiver does not
    /// [count tries](postrider_core::inbox::Receiver::counts_tries) itself. [`DELIVERIES_MAX`] by default.
    pub deliveries_max: u32,
    /// How long one handler may work. Default 10 min, longer than any chain of calls that somebody
    /// waits for; then it is told to stop, and the try counts.
    pub handler_time_max: Duration,
    /// How long a handler that was told to stop has to do so before it is dropped. Default 5 s, a
    /// request's usual timeout.
    pub cancel_grace: Duration,
    /// How long one answer of the broker to ack, nack, reject, or extend may take. Default 5 s, the
    /// relay's publish deadline; what is not answered comes again.
    pub settle_timeout: Duration,
    /// The shortest delay of a return, so that a message that nobody can take yet does not spin.
    /// Default 50 ms.
    pub return_delay_min: Duration,
    /// The delay of deliveries that go back because their key has too many here. Default 1 s.
    pub return_delay: Duration,
    /// Consecutive failures of the inbox's store after which the engine stops asking it. Default 3:
    /// one may be a lock or a lost connection.
    pub store_failures_max: u32,
    /// The longest pause between two questions to a store or a broker that is down. Default 30 s:
    /// what a person accepts between repair and recovery.
    pub pause_max: Duration,
}

impl Default for ConsumerOptions {
    fn default() -> ConsumerOptions {
        ConsumerOptions {
            in_flight_max: 64,
            prefetch_max: 64,
            receive_max: 32,
            held_bytes_max: 16 * 1024 * 1024,
            lane_max: 16,
            away_max: 10_000,
            retry: RetryPolicy::default(),
            deliveries_max: DELIVERIES_MAX,
            handler_time_max: Duration::from_secs(600),
            cancel_grace: Duration::from_secs(5),
            settle_timeout: Duration::from_secs(5),
            return_delay_min: Duration::from_millis(50),
            return_delay: Duration::from_secs(1),
            store_failures_max: 3,
            pause_max: Duration::from_secs(30),
        }
    }
}

impl ConsumerOptions {
    /// Checks that the limits leave room to work.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], naming the value.
    pub fn check(&self) -> Result<()> {
        let at_least_one = [
            ("in_flight_max", self.in_flight_max),
            ("receive_max", self.receive_max),
            ("lane_max", self.lane_max),
            ("retry.attempts_max", self.retry.attempts_max as usize),
            ("deliveries_max", self.deliveries_max as usize),
            ("store_failures_max", self.store_failures_max as usize),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(config(format!("{name} must be at least 1")));
            }
        }
        let not_zero = [
            ("handler_time_max", self.handler_time_max),
            ("settle_timeout", self.settle_timeout),
            ("return_delay_min", self.return_delay_min),
        ];
        for (name, value) in not_zero {
            if value.is_zero() {
                return Err(config(format!("{name} must be longer than nothing")));
            }
        }
        Ok(())
    }

    /// The pauses between two questions to something that is down: never given up.
    pub(crate) fn pause(&self) -> RetryPolicy {
        RetryPolicy { attempts_max: u32::MAX, delay_max: self.pause_max, ..self.retry }
    }
}

/// An error about the configuration of a consumer.
pub(crate) fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, "configure consumer").message(message)
}
