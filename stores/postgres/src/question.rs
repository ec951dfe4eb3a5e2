//! The questions of a group of fetches, as the parameters of their statement.
//!
//! Invariant: the statement goes by nothing but what the cursors say, so that the arithmetic of
//! [`postrider_core::snapshot`] decides what belongs to a page.

use std::collections::BTreeSet;

use postrider_core::snapshot::{Pending, SequenceTick, SnapshotCursor};
use postrider_core::{DestinationId, Result};
use tokio_postgres::Row;

use crate::fetch::Asked;
use crate::room::Room;
use crate::session::Session;
use crate::sql::{Sql, sql};
use crate::typed::{params, partition, signed};

const PAGE: Sql = sql!("fetch/page");
const PAGE_LATE: Sql = sql!("fetch/page_late");

/// A transaction whose floor lies so many numbers behind the others' was open for long: its rows are found by
/// its number. So many numbers are read in some 20 ms, which is no more than an index by the numbers of
/// transactions costs where it is still without its last ranges.
const BEHIND_MAX: u64 = 16_384;

/// A list as an array's text.
fn array(numbers: impl Iterator<Item = u64>) -> String {
    let mut text = String::from("{");
    for number in numbers {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&number.to_string());
    }
    text.push('}');
    text
}

/// The columns of a group's questions.
#[derive(Default)]
struct Columns<'a> {
    partition: Vec<i16>,
    base_xmax: Vec<i64>,
    floor: Vec<i64>,
    pending_xids: Vec<String>,
    pending_floors: Vec<String>,
    position: Vec<i64>,
    target_xmin: Vec<Option<i64>>,
    target_xmax: Vec<Option<i64>>,
    target_xip: Vec<Option<String>>,
    target_floor: Vec<Option<i64>>,
    rows_max: Vec<i32>,
    payload_max: Vec<i32>,
    through: Vec<Option<i64>>,
    /// Each once, however many of the pages are its.
    destinations: BTreeSet<&'a str>,
    /// Where the first of the pages begins, or before.
    after: Option<u64>,
    /// Whether a transaction that was pending long ago may have ended, or a page is of the way between two cursors.
    is_late: bool,
}

impl<'a> Columns<'a> {
    fn push(&mut self, asked: &Asked<'a>, room: Room) {
        let (request, link) = (asked.request, asked.link.as_ref().unwrap_or(&asked.after));
        let target = link.target();
        self.is_late |= is_late(link) || asked.through.is_some();
        let after = link.ground().max(link.position());
        self.after = Some(self.after.map_or(after, |least| least.min(after)));
        self.partition.push(partition(request.lease.partition));
        self.base_xmax.push(signed(link.xmax()));
        self.floor.push(signed(link.floor()));
        self.pending_xids.push(array(link.pending().iter().map(|pending: &Pending| pending.xid)));
        self.pending_floors.push(array(link.pending().iter().map(|pending| pending.floor)));
        self.position.push(signed(link.position()));
        self.target_xmin.push(target.map(|target| signed(target.xmin())));
        self.target_xmax.push(target.map(|target| signed(target.xmax())));
        self.target_xip.push(target.map(|target| array(target.xip().iter().copied())));
        self.target_floor.push(target.map(|_| signed(link.floor_ahead())));
        self.rows_max.push(i32::try_from(asked.rows_max).unwrap_or(i32::MAX));
        self.payload_max.push(room.cut_above());
        self.through.push(asked.through.map(signed));
        self.destinations.extend(request.destinations.iter().map(DestinationId::as_str));
    }
}

/// Whether a transaction of a cursor was open for so long that its rows are looked for by its number.
fn is_late(cursor: &SnapshotCursor) -> bool {
    let is_far = |pending: &Pending| pending.floor.saturating_add(BEHIND_MAX) < cursor.floor();
    cursor.pending().iter().any(is_far)
}

/// Asks for the pages, and hands over each row as it comes. The first row of the answer is the server's.
pub(crate) async fn ask<'a>(
    session: &Session,
    asked: impl Iterator<Item = &'a Asked<'a>>,
    (room, tick): (Room, Option<SequenceTick>),
    take: impl FnMut(Row),
) -> Result<()> {
    let mut columns = Columns::default();
    asked.for_each(|asked| columns.push(asked, room));
    let (tick_floor, tick_xid) = tick.map_or((0, i64::MAX), |t| (signed(t.floor), signed(t.xid)));
    let (is_late, after) = (columns.is_late, signed(columns.after.unwrap_or_default()));
    let destinations: Vec<&str> = columns.destinations.into_iter().collect();
    let values = params![
        columns.partition,
        columns.base_xmax,
        columns.floor,
        columns.pending_xids,
        columns.pending_floors,
        columns.position,
        columns.target_xmin,
        columns.target_xmax,
        columns.target_xip,
        columns.target_floor,
        columns.rows_max,
        columns.payload_max,
        tick_floor,
        tick_xid,
        after,
        destinations,
    ];
    if !is_late {
        return session.each("fetch", &PAGE, values, take).await;
    }
    let behind_max = signed(BEHIND_MAX);
    let values = [values, params![behind_max, columns.through]].concat();
    session.each("fetch", &PAGE_LATE, &values, take).await
}
