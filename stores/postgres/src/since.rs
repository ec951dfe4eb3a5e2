//! The first event since a moment: where a destination that starts at a time begins, and a rewind to one.
//!
//! Invariant: exact, whatever the clock did and however long an event was scheduled: no later number is taken
//! for the first. What lies before costs next to nothing: the index on ranges knows their latest times.

use postrider_core::Result;

use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{Moment, params, signed, unsigned};

const FIRST: Sql = sql!("since/first");
const NEXT: Sql = sql!("since/next");

/// Numbers that one statement looks through: six tables, and far below what its deadline allows.
const STRETCH: u64 = 6_400_000;

/// The number of the first event from a number on that was created at or after a moment.
pub(crate) async fn first_since(
    session: &Session,
    operation: &'static str,
    from: u64,
    moment: Moment,
) -> Result<Option<u64>> {
    let mut from = from;
    loop {
        // Numbers may have gaps of any length.
        let next: Option<i64> = session.row(operation, &NEXT, params![signed(from)]).await?.get(0);
        let Some(next) = next else { return Ok(None) };
        let through = signed(unsigned(next).saturating_add(STRETCH - 1));
        let found: Option<i64> =
            session.row(operation, &FIRST, params![next, through, moment]).await?.get(0);
        if let Some(found) = found {
            return Ok(Some(unsigned(found)));
        }
        from = unsigned(through).saturating_add(1);
    }
}
