//! What an inbox remembers, for how long, and whose clock it believes.

use std::time::Duration;

use postrider_core::{Error, ErrorKind, Result};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How an inbox works.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxOptions {
    /// How long what was done is remembered; then its item expires by the table's time to live. Default 35
    /// days, what is kept of events elsewhere.
    pub retention: Duration,
    /// The longest time after which a message may come again, dead letters included. Default 28 days: SQS
    /// keeps a message 14 days, and 14 more in a dead-letter queue. A purge leaves every row for as long, until
    /// consumers record other times.
    pub horizon: Duration,
    /// By how much the wall clocks of two workers differ at most, if a lease may end by them. Default none:
    /// wall clocks decide nothing, and a lease ends for a process that has watched it for its whole
    /// duration. Workers that live too short to watch, as Lambda's, need it: see
    /// `docs/internals/dynamodb-inbox.md`. **If clocks differ by more, a lease can be taken over while its
    /// owner works.**
    pub skew_max: Option<Duration>,
    /// Leases of others that are watched at once. Default 10,000, about 2 MiB. A lease beyond that is
    /// watched later, so its takeover is delayed.
    pub watched_max: usize,
    /// Calls of one inbox under way at once; others wait their turn, where no time limit runs. Default 64, as
    /// many as a consumer has handlers at work.
    pub calls_max: usize,
}

impl Default for InboxOptions {
    fn default() -> InboxOptions {
        InboxOptions {
            retention: 35 * DAY,
            horizon: 28 * DAY,
            skew_max: None,
            watched_max: 10_000,
            calls_max: 64,
        }
    }
}

impl InboxOptions {
    /// Checks that nothing is forgotten while it can still come again.
    ///
    /// # Errors
    /// `Config`, naming the values that contradict each other.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String| {
            Err(Error::new(ErrorKind::Config, "configure inbox").message(message))
        };
        if self.retention <= self.horizon {
            return refuse(format!(
                "the inbox forgets after {} days, and a message can come again after {}: its effect \
                 would happen twice; raise retention above horizon",
                self.retention.as_secs() / DAY.as_secs(),
                self.horizon.as_secs() / DAY.as_secs(),
            ));
        }
        if self.watched_max == 0 {
            return refuse(
                "watched_max must be at least 1, or no lease of a dead worker ever ends".to_owned(),
            );
        }
        if self.calls_max == 0 {
            return refuse("calls_max must be at least 1".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R087: what is remembered for less than a message may take is refused before it does harm.
    #[test]
    fn a_retention_within_the_horizon_is_refused() {
        assert!(InboxOptions::default().check().is_ok());
        let short = InboxOptions { retention: 14 * DAY, ..InboxOptions::default() };
        let error = short.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("after 14 days"), "{error}");
        let blind = InboxOptions { watched_max: 0, ..InboxOptions::default() };
        assert!(blind.check().is_err());
        let mute = InboxOptions { calls_max: 0, ..InboxOptions::default() };
        assert!(mute.check().is_err());
    }
}
