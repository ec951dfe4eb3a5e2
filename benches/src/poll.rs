//! The baseline of latency: a loop that asks, and sleeps for 20 ms.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use postrider_sqlite::connect;

use crate::measure::now_nanos;
use crate::{Result, relay, sql};

/// How long it sleeps between two questions.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits for so many events with the aggregate ids 0, 1, …, and returns when each was seen.
pub(crate) fn watch(path: &Path, events: usize, longest: Duration) -> Result<Vec<u64>> {
    let deadline = Instant::now() + longest + relay::PATIENCE;
    let connection = connect(path)?;
    let mut statement = connection.prepare(sql::POLL_READ)?;
    let mut arrivals = vec![0; events];
    let (mut after, mut seen) = (0i64, 0);
    while seen < events {
        if Instant::now() > deadline {
            return Err(format!("the polling loop saw {seen} of {events} events").into());
        }
        let page: Vec<(i64, String, String, String)> =
            statement.query_map([after], |row| row.try_into())?.collect::<rusqlite::Result<_>>()?;
        let now = now_nanos();
        for (seq, number, event_type, payload) in page {
            black_box((event_type, payload));
            after = seq;
            arrivals[number.parse::<usize>()?] = now;
            seen += 1;
        }
        // waits: this is what a polling loop does
        std::thread::sleep(PAUSE);
    }
    Ok(arrivals)
}
