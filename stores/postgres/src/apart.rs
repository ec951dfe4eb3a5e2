//! Apart: how far apart saves of a cursor should be, by the versions of its row that nothing may clean away.
//!
//! A save updates the cursor's row in place, and what it leaves behind is pruned by one of the next, unless some snapshot is older:
//! a long report, a forgotten transaction, a replication slot, a prepared transaction. Then each save walks all versions before
//! its own and adds one, so an hour of saves makes the next one thirty times as dear. Who holds the snapshot need not be known,
//! and may be hidden: what counts is what could not be pruned, and that the server's statistics tell everybody.

use std::time::Duration;

use postrider_core::Result;

use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::params;

const VERSIONS: Sql = sql!("maintain/versions");

/// So many versions of a row cost a save next to nothing, and stand there for a while in any case: before they are
/// pruned, or while a backup begins.
const VERSIONS_CHEAP: u64 = 10;

/// What each version adds to the time between two saves. An hour beside a snapshot makes some 270 versions so, where a
/// save each second makes 3,600.
const APART_EACH: Duration = Duration::from_millis(100);

/// How far apart saves of a cursor should be whose row has so many dead versions; nothing while they are few. The relay
/// has a bound of its own above it.
pub fn saves_apart(versions: u64) -> Duration {
    if versions < VERSIONS_CHEAP {
        return Duration::ZERO;
    }
    APART_EACH.saturating_mul(u32::try_from(versions).unwrap_or(u32::MAX))
}

/// Asks for the dead versions of a cursor, on the average. Without statistics, as after a crash, there are none
/// until somebody vacuums.
pub(crate) async fn versions(session: &Session) -> Result<u64> {
    let row = session.row("maintain", &VERSIONS, params![]).await?;
    let (dead, live): (i64, i64) = (row.get(0), row.get(1));
    Ok(u64::try_from(dead).unwrap_or_default().checked_div(live.unsigned_abs()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saves_are_spread_as_versions_pile_up() {
        assert_eq!(saves_apart(0), Duration::ZERO);
        assert_eq!(saves_apart(9), Duration::ZERO);
        assert_eq!(saves_apart(10), Duration::from_secs(1));
        assert_eq!(saves_apart(300), Duration::from_secs(30));
        assert!(saves_apart(u64::MAX) > Duration::from_secs(3_600));
    }
}
