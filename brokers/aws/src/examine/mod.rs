//! What in the present settings of queues, topics, and buses could lose, double, or hold up events.
//!
//! Invariant: every finding that is not good has a code and says what to set to what; nothing is changed.

mod bus;
mod queue;
mod topic;

use std::collections::BTreeSet;
use std::time::Duration;

use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Error, ErrorKind, Result, Route};
use tokio::time::{Instant, timeout_at};

pub(crate) use bus::buses;
pub use queue::queue;
pub(crate) use queue::queues;
pub(crate) use topic::topics;

/// How long all questions together may take, in deadlines of one.
const DEADLINES: u32 = 4;
/// What is looked at of one kind. Nobody reads more.
const LOOKED_AT: usize = 20;
/// The most pages that are read of one thing's rules or subscriptions, a hundred on each: a bus has 300 rules unless
/// its owner asked for more.
const PAGES_MAX: usize = 10;
/// A consumer may be away for as long without anything being lost.
const AWAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The topics that routes write to: the name, and whether it is only what their names begin with.
fn written(routes: &[Route]) -> BTreeSet<(String, bool)> {
    routes.iter().filter(|route| !route.drop).map(|route| route.topic.prefix()).collect()
}

/// For how long an event may be tried.
fn horizon(routes: &[Route]) -> Duration {
    let sending = routes.iter().filter(|route| !route.drop);
    sending.map(|route| route.retry.span()).max().unwrap_or_default()
}

/// Asks, for so long.
async fn within<F>(deadline: Duration, asked: F) -> Result<Vec<Finding>>
where
    F: Future<Output = Result<Vec<Finding>>>,
{
    let until = Instant::now() + deadline * DEADLINES;
    timeout_at(until, asked).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Timeout, "examine").message("AWS did not answer in time"))
    })
}

/// What an error says of one thing: that it is not there, or that we may not look; everything else is an error.
fn refused(subject: &str, error: Error, make: &str) -> Result<Finding> {
    match error.kind() {
        ErrorKind::Unroutable => Ok(findings::critical(
            subject,
            "it is not there: its events wait",
            make,
            Code::Unroutable,
        )),
        ErrorKind::Unauthorized => Ok(findings::coded(
            subject,
            format!("it cannot be looked at: {error}"),
            "grant the permission that is named to who we are, if doctor is to look",
            Code::Unauthorized,
        )),
        _ => Err(error),
    }
}

/// A thing whose name depends on the event: only what its names begin with is known.
fn unknown(subject: &str, what: &str) -> Finding {
    findings::good(subject, format!("its {what} depend on the event, and were not looked at"))
}

/// For a sentence.
fn shown(time: Duration) -> String {
    match time.as_secs() {
        days if days >= 86_400 && days % 86_400 == 0 => format!("{} d", days / 86_400),
        hours if hours >= 3_600 && hours % 3_600 == 0 => format!("{} h", hours / 3_600),
        seconds => format!("{seconds} s"),
    }
}
