//! The cursor of PostgreSQL's reader as it stands in the store, and the server's snapshots.

use std::sync::Arc;

use postrider_core::Cursor;
use postrider_core::snapshot::{Drawn, Snapshot, SnapshotCursor};

/// A position of eight bytes and the bytes of a cursor, or a snapshot as text.
pub fn snapshot(input: &[u8]) {
    if let Some(seen) = std::str::from_utf8(input).ok().and_then(|text| text.parse().ok()) {
        read(&seen);
    }
    let Some((position, base)) = input.split_first_chunk::<8>() else { return };
    let stored = Cursor::new(Arc::from(base), u64::from_be_bytes(*position));
    if let Ok(cursor) = SnapshotCursor::decode(&stored) {
        let written = cursor.encode().expect("what was read can be written");
        assert_eq!(written, stored, "one cursor has one encoding");
        moved(&cursor);
    }
}

fn read(seen: &Snapshot) {
    let again: Snapshot = seen.to_string().parse().expect("what was written can be read");
    assert_eq!(again, *seen);
    assert!(seen.xip().iter().all(|xid| !seen.sees(*xid)));
    assert!(!seen.sees(seen.xmax()));
    assert!(seen.xmin() == 0 || seen.sees(seen.xmin() - 1));
    moved(&SnapshotCursor::at(seen, 7, 3));
}

/// What is done with a cursor can be saved and read, and what was new is not new any more when it was passed.
fn moved(cursor: &SnapshotCursor) {
    let drained = cursor.drained();
    for cursor in [drained.clone(), cursor.rebased(), cursor.at_position(u64::MAX)] {
        let saved = cursor.encode().expect("it can be saved");
        let again = SnapshotCursor::decode(&saved).expect("it can be read");
        assert_eq!(again.encode().expect("it can be saved"), saved);
    }
    let Some(target) = cursor.target() else { return };
    let mut rows = Vec::new();
    let around = |number: u64| [number.saturating_sub(1), number, number.saturating_add(1)];
    let xids = target.xip().iter().chain(cursor.pending().iter().map(|pending| &pending.xid));
    let xids = xids.take(16).copied().chain([target.xmin(), target.xmax(), cursor.xmax()]);
    let floors = cursor.pending().iter().map(|pending| pending.floor).take(8);
    let seqs: Vec<u64> =
        floors.chain([cursor.floor(), cursor.floor_ahead()]).flat_map(around).collect();
    for xid in xids.flat_map(around) {
        rows.extend(seqs.iter().map(|seq| Drawn { xid, seq: *seq }));
    }
    let floor = cursor.floor_ahead();
    for row in rows {
        let was_new = cursor.is_new(target, floor, row);
        let is_new = drained.is_new(target, floor, row);
        assert!(!is_new, "{row:?} comes again (new before: {was_new}): {cursor:?}");
        if was_new {
            assert!(row.seq >= cursor.lo(target), "{row:?} is below what is read: {cursor:?}");
        }
    }
}
