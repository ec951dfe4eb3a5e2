//! Reading pages: limits, rows that are no events, and numbers that ran backwards.

use postrider_core::waiting::Reason;
use postrider_core::{Code, Cursor, ErrorKind, EventId, KeyHash, OutboxSource, Payload};

use crate::support::{Fresh, event, fetch, page_after};

/// A limit that cuts the page says that there is more; the end of what there is does not.
#[tokio::test]
async fn more_is_said_when_a_limit_cut_the_page() {
    let fresh = Fresh::new();
    fresh.commit(&(0..5).map(event).collect::<Vec<_>>());
    let (store, lease) = fresh.relay().await;
    let mut request = page_after(&lease, 0);
    for (rows_max, rows, more, end) in [(3, 3, true, 3), (5, 5, false, 5), (6, 5, false, 5)] {
        request.rows_max = rows_max;
        let page = store.fetch(&request).await.unwrap();
        assert_eq!((page.rows.len(), page.more, page.end.position()), (rows, more, end));
    }
    request.bytes_max = 1;
    let page = store.fetch(&request).await.unwrap();
    assert_eq!((page.rows.len(), page.more), (1, true), "at least one row");
}

/// Where rows were purged the page ends at the head, so that a drain comes to its end.
#[tokio::test]
async fn a_page_ends_beyond_what_was_purged() {
    let fresh = Fresh::new();
    fresh.commit(&(0..5).map(event).collect::<Vec<_>>());
    fresh.connect().execute("delete from outbox where seq > 3", ()).unwrap();
    let (store, lease) = fresh.relay().await;
    let head = store.head(&lease).await.unwrap();
    assert_eq!(head, Cursor::number(5));
    assert_eq!(fetch(&store, &lease, 0).await.end, head);
    let mut request = page_after(&lease, 0);
    request.until = Some(Cursor::number(2));
    let page = store.fetch(&request).await.unwrap();
    assert_eq!((page.rows.len(), page.end.position(), page.more), (2, 2, false));
}

/// Rows past the table's checks become dead letters with a reason; their neighbours are read.
#[tokio::test]
async fn rows_that_are_no_events_do_not_stop_the_page() {
    let fresh = Fresh::new();
    fresh.commit(&[event(0)]);
    let connection = fresh.connect();
    connection.execute_batch("pragma ignore_check_constraints = on").unwrap();
    let broken = [
        ("id", "'no uuid'", Reason::Malformed),
        ("format", "2", Reason::UnknownFormat),
        ("occurred_at", "'yesterday'", Reason::Malformed),
        ("event_version", "-1", Reason::Malformed),
        ("tenant", "cast(x'ff' as text)", Reason::Malformed),
        ("payload", "null", Reason::Malformed),
    ];
    for (column, value, _) in broken {
        let more = if column == "payload" { "" } else { ", payload" };
        let null = if column == "payload" { "" } else { ", '{}'" };
        let statement = format!(
            "insert into outbox (aggregate_type, aggregate_id, event_type, {column}{more})
            values ('order', '42', 't', {value}{null})"
        );
        connection.execute(&statement, ()).unwrap();
    }
    fresh.commit(&[event(9)]);
    let (store, lease) = fresh.relay().await;
    let page = fetch(&store, &lease, 0).await;
    assert_eq!(page.rows.len(), broken.len() + 2);
    assert!(page.rows[0].event.is_ok() && page.rows[broken.len() + 1].event.is_ok());
    for (row, (column, _, reason)) in page.rows[1..].iter().zip(broken) {
        let malformed = row.event.as_ref().expect_err(column);
        assert_eq!(malformed.reason, reason, "{column}");
        assert!(malformed.detail.contains(column), "{}", malformed.detail);
        assert_eq!(row.key_hash, KeyHash::of("order/42"));
    }
    assert_eq!(page.rows[1].row.id, EventId::from_u128(0));
}

/// What was erased is still an event, with nothing to deliver.
#[tokio::test]
async fn an_erased_event_is_read_without_its_payload() {
    let fresh = Fresh::new();
    fresh.commit(&[event(1)]);
    let erase = "update outbox set payload = null, erased_at = '2026-01-01T00:00:00Z'";
    fresh.connect().execute(erase, ()).unwrap();
    let (store, lease) = fresh.relay().await;
    let page = fetch(&store, &lease, 0).await;
    assert_eq!(page.rows[0].event.as_ref().unwrap().payload, Payload::Erased);
}

/// A restored database whose numbers lie behind the cursor stops the store with a code.
#[tokio::test]
async fn a_sequence_behind_the_cursor_stops_with_a_code() {
    let fresh = Fresh::new();
    fresh.commit(&[event(1), event(2)]);
    let (store, lease) = fresh.relay().await;
    assert!(store.fetch(&page_after(&lease, 2)).await.is_ok());
    fresh
        .connect()
        .execute("update sqlite_sequence set seq = 1 where name = 'outbox'", ())
        .unwrap();
    let refused = store.fetch(&page_after(&lease, 2)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Rewound);
    assert_eq!(refused.operator_code(), Some(Code::Rewound));
    // The way to a cursor that is ahead of it: the second event would be passed over as if it were not there (INV-1).
    let mut way = page_after(&lease, 0);
    way.until = Some(Cursor::number(2));
    let refused = store.fetch(&way).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Rewound);
}
