//! Ranges: what one stands for stays, is told as waiting, and is sent again by a rewind.

use postrider_core::operate::{DeliveryView, Level, Operator, Status};
use postrider_core::range::{Range, RangeChange};
use postrider_core::source::DefinitionChange;
use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_core::{
    Cursor, Destination, KeyHash, Lease, Match, NewEvent, OutboxSource, Route, Start, Timestamp,
};
use postrider_sqlite::SqliteStore;

use crate::play::Play;
use crate::support::{Fresh, LONG, acquire, event, fetch, id, number, pass};

fn of(key: &str, event_type: &str) -> NewEvent {
    NewEvent::new("order", key, event_type).json(&1).expect("JSON")
}

fn range(key: &str, position: u64) -> Range {
    Range {
        key_hash: KeyHash::of(key),
        key: key.into(),
        cursor: Cursor::number(position),
        version: 1,
    }
}

/// Passes everything as acknowledged, and says that a range stands for what of a key comes behind a number.
async fn pass_all(store: &SqliteStore, lease: &Lease, range: Range) {
    let mut at = 0;
    let mut opens = Some(range);
    loop {
        let rows = fetch(store, lease, at).await.rows;
        let Some(last) = rows.last() else { return };
        let mut settlement = pass(lease, at, &rows, Passed::Waiting);
        settlement.parts[0].ranges.extend(opens.take().map(RangeChange::Open));
        store.settle(&settlement).await.expect("settle");
        at = last.row.seq;
    }
}

/// What is known of one event at `a`, and what the view says of it.
async fn told(fresh: &Fresh, store: &SqliteStore, seq: u64) -> (Option<DeliveryView>, String) {
    let connection = fresh.connect();
    let (id, status): (String, String) = connection
        .query_row(
            "select id, status from outbox_status where destination = 'a' and seq = ?1",
            [seq.cast_signed()],
            |row| row.try_into(),
        )
        .expect("the view");
    let detail = store.event(id.parse().expect("an id")).await.expect("the event");
    let ours = |view: &DeliveryView| view.destination == crate::support::id("a");
    (detail.deliveries.into_iter().find(ours), status)
}

/// INV-7: nothing that a range stands for is said to be published: it waits behind its key. Other keys, and what the range has
/// passed, are none of its business.
#[tokio::test]
async fn what_a_range_stands_for_is_parked() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&[of("1", "t"), of("1", "t"), of("2", "t"), of("1", "t")]);
    let rows = fetch(&store, &lease, 0).await.rows;
    let mut settlement = pass(&lease, 0, &rows, Passed::Acked);
    settlement.parts[0].ranges.push(RangeChange::Open(range("order/1", 1)));
    store.settle(&settlement).await.unwrap();
    for (seq, status, text) in [
        (1, Status::Published, "published"),
        (2, Status::Parked, "parked"),
        (3, Status::Published, "published"),
        (4, Status::Parked, "parked"),
    ] {
        let (view, in_sql) = told(&fresh, &store, seq).await;
        assert_eq!((view.unwrap().status, in_sql.as_str()), (status, text), "event {seq}");
    }
    let (view, _) = told(&fresh, &store, 4).await;
    assert_eq!(view.unwrap().reason.as_deref(), Some("behind"));
    let key_hash = KeyHash::of("order/1");
    let close = RangeChange::Close { key_hash, from: Cursor::number(1) };
    let part = SettlementPart { ranges: vec![close], ..SettlementPart::new(id("a")) };
    store.settle(&Settlement { lease, parts: vec![part] }).await.unwrap();
    let (view, in_sql) = told(&fresh, &store, 4).await;
    assert_eq!((view.unwrap().status, in_sql.as_str()), (Status::Published, "published"));
}

/// INV-7, R105: where the log lost a bucket, a reconcile names what may be missing, and not what waits by a range.
#[tokio::test]
async fn nothing_that_a_range_stands_for_is_missing() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&[of("1", "t"), of("1", "t"), of("2", "t"), of("1", "t")]);
    let rows = fetch(&store, &lease, 0).await.rows;
    let mut settlement = pass(&lease, 0, &rows, Passed::Acked);
    settlement.parts[0].ranges.push(RangeChange::Open(range("order/1", 1)));
    store.settle(&settlement).await.unwrap();
    fresh.connect().execute("delete from outbox_settled where destination = 'a'", ()).unwrap();
    let missing = async || {
        let differences = store.recount(&id("a")).await.unwrap().differences.into_iter();
        differences.flat_map(|difference| difference.requeue).collect::<Vec<u64>>()
    };
    assert_eq!(missing().await, [1, 3]);
    fresh.connect().execute("delete from outbox_range", ()).unwrap();
    assert_eq!(missing().await, [1, 2, 3, 4], "without the range nobody has them");
}

/// INV-7: what the routes passed by does not wait, for as long as they are the same; after a change nobody knows.
#[tokio::test]
async fn what_no_route_takes_waits_behind_no_range() {
    let fresh = Fresh::new();
    let store = fresh.store();
    store.open().await.unwrap();
    let taking = |pattern: &str| {
        let route = Route::all("orders".parse().unwrap()).only(Match::event_type(pattern));
        Destination::new(id("a"), "local", vec![route])
    };
    store.register(&[taking("order.*")]).await.unwrap();
    let lease = acquire(&store, LONG).await.unwrap().lease;
    fresh.commit(&[of("1", "order.placed"), of("1", "bill.sent"), of("1", "order.sent")]);
    let rows = fetch(&store, &lease, 0).await.rows;
    let mut settlement = pass(&lease, 0, &rows, Passed::Waiting);
    settlement.parts[0].passed[1].1 = Passed::OtherRoute;
    settlement.parts[0].ranges.push(RangeChange::Open(range("order/1", 0)));
    store.settle(&settlement).await.unwrap();
    assert_eq!(told(&fresh, &store, 2).await.0, None, "it is another's");
    assert_eq!(told(&fresh, &store, 3).await.0.unwrap().status, Status::Parked);
    let change =
        DefinitionChange { put: vec![(taking("*.sent"), Start::Now)], ..Default::default() };
    OutboxSource::apply(&store, &change).await.unwrap();
    for seq in 1..=3 {
        assert_eq!(told(&fresh, &store, seq).await.0.unwrap().status, Status::Parked, "{seq}");
    }
}

/// INV-1: a rewind goes back before all that the destination's ranges stand for, wherever its target lies, also into an
/// earlier bucket of the settled log; and they end with it.
#[tokio::test]
async fn a_rewind_goes_back_before_the_first_range() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    fresh.commit(&(0..10_000).map(event).collect::<Vec<_>>());
    pass_all(&store, &lease, range("order/42", 5_000)).await;
    let play = Play { fresh, store, lease, rows: Vec::new() };
    let request = play.ask_of("rewind", &[0], None, Some(9_000));
    play.carry_out(100).await;
    assert_eq!(play.request(request), (1, 0, true));
    let lease = acquire(&play.store, LONG).await.expect("it is free").lease;
    let loaded = play.store.load(&lease, &id("a")).await.unwrap();
    assert_eq!((loaded.cursor, loaded.ranges), (Cursor::number(4_095), Some(Vec::new())));
    assert_eq!(
        play.number("select max(bucket) from outbox_settled"),
        0,
        "the log above is forgotten"
    );
}

/// A rewind to what the cursor has not passed ends nothing, whatever ranges there are; one that is carried out ends those of its
/// own destination.
#[tokio::test]
async fn a_rewind_that_does_nothing_leaves_the_ranges() {
    let play = Play::of(&[("1", None), ("2", None)]).await;
    let open = "insert into outbox_range values ('a', 0, 7, 'k', 1, 1, 0), ('unrouted', 0, 7, 'k', 0, 1, 0)";
    play.fresh.connect().execute(open, ()).unwrap();
    let nothing = play.ask_of("rewind", &[0], None, Some(9));
    play.carry_out(100).await;
    assert_eq!(play.request(nothing), (0, 1, true));
    assert_eq!(play.number("select count(*) from outbox_range"), 2);
    let back = play.ask_of("rewind", &[0], None, Some(2));
    play.carry_out(100).await;
    assert_eq!(play.request(back), (1, 0, true));
    assert_eq!(play.number("select position from outbox_cursor where destination = 'a'"), 0);
    let left = "select count(*) from outbox_range where destination = 'unrouted'";
    assert_eq!(play.number(left), 1, "another destination's");
    assert_eq!(play.number("select count(*) from outbox_range"), 1);
}

/// The owner is told of ranges as the relay told of them, whatever the numbers.
#[tokio::test]
async fn ranges_are_kept_as_they_were_told() {
    let fresh = Fresh::new();
    let (store, lease) = fresh.relay().await;
    let first = Range { key_hash: KeyHash(u64::MAX), version: 1 << 40, ..range("order/ü", 0) };
    let ranges = [first, range("order/1", 1 << 40)];
    let mut part = SettlementPart::new(id("a"));
    part.ranges = ranges.iter().cloned().map(RangeChange::Open).collect();
    store.settle(&Settlement { lease: lease.clone(), parts: vec![part] }).await.unwrap();
    let older = "update outbox_range set opened_at = 5 where version > 1";
    fresh.connect().execute(older, ()).unwrap();
    let loaded = store.load(&lease, &id("a")).await.unwrap();
    assert_eq!(loaded.ranges.unwrap(), ranges, "oldest first");
}

/// The doctor names the keys of which so much waits, and escapes what would act on a terminal.
#[tokio::test]
async fn the_doctor_tells_of_ranges() {
    let fresh = Fresh::new();
    let (store, _) = fresh.relay().await;
    let found = async || {
        let findings = store.doctor(Timestamp::now()).await.unwrap();
        findings.into_iter().find(|finding| finding.subject == "ranges").unwrap()
    };
    assert_eq!(found().await.level, Level::Good);
    let open = "insert into outbox_range values
        ('a', 0, 7, 'order/1', 0, 1, 1700000000000),
        ('a', 0, 8, char(27) || '[2J', 0, 1, 1800000000000)";
    fresh.connect().execute(open, ()).unwrap();
    let finding = found().await;
    assert_eq!(finding.level, Level::Warning);
    for part in
        ["2 keys", "since 2023-11-14T22:13:20", "`order/1` of destination a", "`\\u{1b}[2J`"]
    {
        assert!(finding.message.contains(part), "{part}: {}", finding.message);
    }
    assert_eq!(number(&fresh.connect(), "select count(*) from outbox_range"), 2);
}
