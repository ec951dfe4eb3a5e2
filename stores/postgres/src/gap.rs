//! Numbers that nobody has: a sequence that leapt, by the split of a large table, a restore, or hand, leaves millions of
//! millions of them.
//!
//! A page of the way between two cursors reads a stretch of numbers. Where that is not full, the next row is looked for by the
//! index, or a gap would be walked through in stretches, for hours. Invariant (INV-1): what is passed so has no row that this
//! server sees now, so it has none that an older target saw; a row that comes there later is of a later target. The sequence is not
//! asked: where it was set back, rows have higher numbers than it says, and a page that stands behind it is refused.

use crate::answer::Found;
use crate::fetch::Asked;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, partition, signed, unsigned};
use postrider_core::Result;

const NEXT: Sql = sql!("fetch/next");

/// For each question the first number behind its stretch that may have a row; nothing, where there is none. Where nobody has to
/// look that is the next number.
pub(crate) async fn look<'a>(
    session: &Session,
    asked: impl Iterator<Item = (&'a Asked<'a>, &'a Vec<Found>)>,
) -> Result<Vec<Option<u64>>> {
    let mut nexts: Vec<Option<u64>> = Vec::new();
    let (mut places, mut partitions, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    for (asked, found) in asked {
        if let Some(through) = asked.stretch(found.len()) {
            places.push(nexts.len());
            partitions.push(partition(asked.request.lease.partition));
            behind.push(signed(through));
            nexts.push(None);
        } else {
            nexts.push(asked.through.map(|through| through.saturating_add(1)));
        }
    }
    if places.is_empty() {
        return Ok(nexts);
    }
    let least = behind.iter().min().copied();
    for row in session.rows("fetch", &NEXT, params![partitions, behind, least]).await? {
        let nth = usize::try_from(row.get::<_, i32>(0) - 1).ok().and_then(|nth| places.get(nth));
        if let Some(next) = nth.and_then(|place| nexts.get_mut(*place)) {
            *next = Some(unsigned(row.get(1)));
        }
    }
    Ok(nexts)
}
