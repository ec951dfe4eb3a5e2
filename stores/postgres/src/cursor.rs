//! A cursor as the columns of `outbox_cursor`.
//!
//! Invariant: the columns and the bytes beside them say the same. Relays go by the bytes; retirement,
//! operators, and the view `outbox_status` by the columns.

use postrider_core::snapshot::{Pending, SnapshotCursor};
use postrider_core::{Cursor, Result};

use crate::typed::signed;

/// A row's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns {
    pub(crate) base: Vec<u8>,
    pub(crate) position: i64,
    pub(crate) base_xmax: i64,
    pub(crate) floor: i64,
    pub(crate) pending_xids: Vec<i64>,
    pub(crate) pending_floors: Vec<i64>,
    pub(crate) target_xmin: Option<i64>,
    pub(crate) target_xmax: Option<i64>,
    pub(crate) target_xip: Vec<i64>,
    pub(crate) target_floor: i64,
    pub(crate) ground: i64,
}

impl Columns {
    /// The columns of a cursor as engines carry it.
    pub(crate) fn of(cursor: &Cursor) -> Result<Columns> {
        let decoded = SnapshotCursor::decode(cursor)?;
        let all = |pick: fn(&Pending) -> u64| -> Vec<i64> {
            decoded.pending().iter().map(|pending| signed(pick(pending))).collect()
        };
        let target = decoded.target();
        Ok(Columns {
            base: cursor.base().to_vec(),
            position: signed(cursor.position()),
            base_xmax: signed(decoded.xmax()),
            floor: signed(decoded.floor()),
            pending_xids: all(|pending| pending.xid),
            pending_floors: all(|pending| pending.floor),
            target_xmin: target.map(|target| signed(target.xmin())),
            target_xmax: target.map(|target| signed(target.xmax())),
            target_xip: target
                .map_or(Vec::new(), |target| target.xip().iter().map(|xid| signed(*xid)).collect()),
            target_floor: target.map_or(0, |_| signed(decoded.floor_ahead())),
            ground: signed(decoded.ground()),
        })
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::snapshot::Snapshot;

    use super::*;

    #[test]
    fn the_columns_say_what_the_bytes_say() {
        let base: Snapshot = "10:20:10,14".parse().unwrap();
        let target: Snapshot = "14:30:14,25".parse().unwrap();
        let cursor = SnapshotCursor::at(&base, 100, 7).toward(target, Some(200)).unwrap();
        let columns = Columns::of(&cursor.at_position(150).encode().unwrap()).unwrap();
        assert_eq!((columns.base_xmax, columns.floor, columns.ground), (20, 100, 7));
        assert_eq!((columns.pending_xids, columns.pending_floors), (vec![10, 14], vec![7, 7]));
        assert_eq!((columns.target_xmin, columns.target_xmax), (Some(14), Some(30)));
        assert_eq!((columns.target_xip, columns.target_floor), (vec![14, 25], 200));
        assert_eq!(columns.position, 150);
        let plain = Columns::of(&SnapshotCursor::above(9).encode().unwrap()).unwrap();
        assert_eq!((plain.target_xmin, plain.target_floor, plain.ground), (None, 0, 9));
    }
}
