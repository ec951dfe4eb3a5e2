//! Cursors as bytes: every cursor comes back, and nothing else is taken.

use std::sync::Arc;

use postrider_core::snapshot::{Snapshot, SnapshotCursor};
use postrider_core::{Cursor, ErrorKind};
use proptest::prelude::*;

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let running = proptest::collection::vec(0..2_000u64, 0..20);
    (1..2_000u64, running, 0..u64::MAX / 4).prop_map(|(xmax, running, base)| {
        Snapshot::with_running(base + xmax, running.into_iter().map(|xid| base + xid))
    })
}

fn cursors() -> impl Strategy<Value = SnapshotCursor> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (snapshots(), snapshots(), numbers, any::<bool>()).prop_map(
        |(base, target, (floor, pending_floor, ahead, position), rebased)| {
            let cursor = SnapshotCursor::at(&base, floor, pending_floor);
            let cursor = if rebased { cursor.rebased() } else { cursor };
            let cursor = cursor.toward(target, Some(ahead)).unwrap_or(cursor);
            cursor.at_position(position)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A cursor is what it was encoded from, in one way only.
    #[test]
    fn a_cursor_comes_back(cursor in cursors()) {
        let encoded = cursor.encode().unwrap();
        let decoded = SnapshotCursor::decode(&encoded).unwrap();
        prop_assert_eq!(&decoded, &cursor);
        prop_assert_eq!(decoded.encode().unwrap(), encoded);
    }

    /// Bytes that somebody made up, or damaged, are refused or are the encoding of what they decode to.
    #[test]
    fn hostile_bytes_are_refused(
        cursor in cursors(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        tail in proptest::collection::vec(any::<u8>(), 0..40),
        cut in any::<bool>(),
        position in any::<u64>(),
    ) {
        let encoded = cursor.encode().unwrap();
        let mut bytes = encoded.base().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
            bytes.extend(tail);
        }
        let hostile = Cursor::new(Arc::from(bytes), position);
        if let Ok(decoded) = SnapshotCursor::decode(&hostile) {
            prop_assert_eq!(decoded.encode().unwrap(), hostile);
        }
    }

    /// A snapshot's text comes back, and any other text is an error.
    #[test]
    fn a_snapshot_comes_back(snapshot in snapshots(), text in "[0-9:,+ -]{0,16}") {
        prop_assert_eq!(&snapshot.to_string().parse::<Snapshot>().unwrap(), &snapshot);
        if let Ok(parsed) = text.parse::<Snapshot>() {
            prop_assert!(parsed.xmin() <= parsed.xmax());
        }
    }
}

#[test]
fn what_is_no_snapshot_is_refused() {
    for text in ["", ":", "1:2", "2:1:", "1:3:3", "5:9:4", "5:9:7,6", "5:9:6,6", "1:2:,", "+1:2:"] {
        assert!(text.parse::<Snapshot>().is_err(), "{text}");
    }
}

#[test]
fn a_newer_cursor_is_named_as_such() {
    let newer = Cursor::new(Arc::from([2, 0, 0, 0, 0]), 0);
    assert_eq!(SnapshotCursor::decode(&newer).unwrap_err().kind(), ErrorKind::SchemaTooNew);
    let number = Cursor::number(4);
    assert_eq!(SnapshotCursor::decode(&number).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// INV-6: a cursor does not grow without limit, and a length that is a lie allocates nothing.
#[test]
fn a_cursor_is_bounded() {
    let many = Snapshot::with_running(40_000, (0..20_000).map(|n| n * 2));
    assert_eq!(SnapshotCursor::at(&many, 0, 0).encode().unwrap_err().kind(), ErrorKind::TooLarge);
    let lie = Cursor::new(Arc::from([1, 0, 9, 9, 0xff, 0x7f]), 0);
    assert!(SnapshotCursor::decode(&lie).is_err());
}
