//! INV-7: what a range stands for waits, whoever asks: nobody says that it was published, or that it is missing.

use postrider_core::operate::{
    DeliveryView, Operator, Recounted, RowKey, Status, Submission, Verb,
};
use postrider_core::source::{DefinitionChange, OutboxSource};
use postrider_core::{Cursor, EventId, NewEvent, Start};

use super::*;
use crate::operator::{Play as Played, all, everything, note, only, page};

fn of(order: &str, event_type: &str) -> NewEvent {
    NewEvent::new("order", order, event_type).json(&1).expect("JSON")
}

/// A destination passes what is there in partition 0, each event so, with a range of the key that begins before one of
/// them. Returns where that stands.
async fn pass(play: &Played, destination: &str, passed: &[Passed], first: usize) -> Cursor {
    let rows = play.fetch(destination).await;
    assert_eq!(rows.len(), passed.len());
    let from = play.store.load(&play.lease, &id(destination)).await.expect("load").cursor;
    let before = first.checked_sub(1).map_or(&from, |last| &rows[last].cursor).clone();
    let mut part = SettlementPart::new(id(destination));
    part.cursor = Some((from, rows.last().expect("a row").cursor.clone()));
    part.passed = rows.iter().map(|row| row.row).zip(passed.iter().copied()).collect();
    part.ranges = vec![open(&before)];
    settle(play, part).await;
    before
}

async fn settle(play: &Played, part: SettlementPart) {
    let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
    play.store.settle(&settlement).await.expect("settle");
}

async fn end(play: &Played, destination: &str, at: &Cursor) {
    let part = SettlementPart { ranges: vec![close(at)], ..SettlementPart::new(id(destination)) };
    settle(play, part).await;
}

/// What an event's page says of it at a destination, and what the view says.
async fn told(play: &Played, destination: &str, seq: u64) -> (Option<DeliveryView>, String) {
    let ask = format!(
        "select id::text || ' ' || status from {{outbox_status}} where destination = '{destination}' and seq = {seq}"
    );
    let row = play.fresh.connect().await.query_one(&play.fresh.sql(&ask), &[]).await;
    let row: String = row.expect("the view").get(0);
    let (id, status) = row.split_once(' ').expect("two words");
    let detail = play.store.event(id.parse::<EventId>().expect("an id")).await.expect("the event");
    let mut deliveries = detail.deliveries.into_iter();
    (deliveries.find(|view| view.destination.as_str() == destination), status.to_owned())
}

async fn listed(play: &Played, status: Status) -> Vec<u64> {
    let mut filter = all();
    (filter.status, filter.destination) = (vec![status], Some(id("a")));
    let rows = play.store.events(&filter, &page(100, None)).await.expect("events").rows;
    rows.iter().rev().map(|row| row.seq).collect()
}

/// INV-7: the page of an event, the list by its state, and the view say that it waits behind its key, until the range ends.
/// Other keys, and what the range has passed, are none of its business.
#[tokio::test]
async fn what_a_range_stands_for_is_parked() {
    let Some(play) = Played::begin(&[everything("a"), everything("b")]).await else { return };
    play.commit(&[of("hot", "t"), of("hot", "t"), of("2", "t"), of("hot", "t")]).await;
    let begins = pass(&play, "a", &[Passed::Acked; 4], 1).await;
    play.settle_all("b", &[crate::operator::Act::Ack]).await;
    for (seq, status) in
        [(1, Status::Published), (2, Status::Parked), (3, Status::Published), (4, Status::Parked)]
    {
        let (view, in_sql) = told(&play, "a", seq).await;
        let view = view.expect("it concerns the destination");
        assert_eq!((view.status, in_sql.as_str()), (status, status.as_str()), "event {seq}");
        let reason = (status == Status::Parked).then_some("behind");
        assert_eq!(view.reason.as_deref(), reason, "event {seq}");
        let (view, in_sql) = told(&play, "b", seq).await;
        assert_eq!((view.unwrap().status, in_sql.as_str()), (Status::Published, "published"));
    }
    assert_eq!(listed(&play, Status::Parked).await, [2, 4]);
    assert_eq!(listed(&play, Status::Published).await, [1, 3]);
    let overview = play.store.overview().await.expect("an overview");
    let ranges = overview.destinations.iter().map(|view| (view.id.as_str(), view.ranges));
    assert_eq!(ranges.collect::<Vec<_>>(), [("a", 1), ("b", 0), ("unrouted", 0)]);
    end(&play, "a", &begins).await;
    let (view, in_sql) = told(&play, "a", 4).await;
    assert_eq!((view.unwrap().status, in_sql.as_str()), (Status::Published, "published"));
    assert_eq!(listed(&play, Status::Parked).await, [0; 0]);
}

/// INV-7: what was written early and committed late is on the side of the range on which it was read.
#[tokio::test]
async fn what_was_committed_late_waits_behind_a_range_that_stands_beyond_its_number() {
    let Some(play) = Played::begin(&[everything("a")]).await else { return };
    let open = play.fresh.connect().await;
    let insert = play.fresh.sql(
        "begin; insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
        values ('order', 'hot', 't', '{}')",
    );
    open.batch_execute(&insert).await.expect("an open transaction");
    play.commit(&[of("hot", "t"), of("hot", "t")]).await;
    let begins = pass(&play, "a", &[Passed::Acked; 2], 1).await;
    open.batch_execute("commit").await.expect("commit");
    let pending = told(&play, "a", 1).await;
    assert_eq!((pending.0.unwrap().status, pending.1.as_str()), (Status::Pending, "pending"));
    let rows = play.fetch("a").await;
    let from = play.store.load(&play.lease, &id("a")).await.expect("load").cursor;
    let mut part = SettlementPart::new(id("a"));
    part.cursor = Some((from, rows[0].cursor.clone()));
    part.passed = vec![(rows[0].row, Passed::Waiting)];
    settle(&play, part).await;
    for (seq, status) in [(1, Status::Parked), (2, Status::Published), (3, Status::Parked)] {
        let (view, in_sql) = told(&play, "a", seq).await;
        assert_eq!((view.unwrap().status, in_sql.as_str()), (status, status.as_str()), "{seq}");
    }
    end(&play, "a", &begins).await;
}

/// INV-7: what the routes passed by does not wait, for as long as they are the same; after a change nobody knows.
#[tokio::test]
async fn what_no_route_takes_waits_behind_no_range() {
    let Some(play) = Played::begin(&[only("a", "order.*")]).await else { return };
    let types = ["order.placed", "bill.sent", "order.sent"];
    play.commit(&types.map(|event_type| of("hot", event_type))).await;
    pass(&play, "a", &[Passed::Waiting, Passed::OtherRoute, Passed::Waiting], 0).await;
    assert_eq!(told(&play, "a", 2).await.0, None, "it is another's");
    assert_eq!(told(&play, "a", 3).await.0.unwrap().status, Status::Parked);
    let put = vec![(only("a", "*.sent"), Start::Now)];
    let change = DefinitionChange { put, ..Default::default() };
    OutboxSource::apply(&play.store, &change).await.expect("apply");
    for seq in 1..=3 {
        assert_eq!(told(&play, "a", seq).await.0.unwrap().status, Status::Parked, "{seq}");
    }
}

async fn requeue(play: &Played, seqs: &[u64]) -> (u64, u64) {
    let rows = seqs.iter().map(|seq| RowKey { destination: id("a"), seq: *seq });
    let submission = Submission { verb: Verb::Requeue(rows.collect()), note: note() };
    let request = play.store.submit(&submission).await.expect("a request");
    let carry =
        postrider_core::source::CarryOutRequest { leases: play.leases.clone(), rows_max: 100 };
    play.store.carry_out(&carry).await.expect("carry out");
    let state = play.store.request(request).await.expect("the request");
    (state.done, state.skipped)
}

async fn missing(play: &Played) -> Vec<u64> {
    let recounted: Recounted = play.store.recount(&id("a")).await.expect("a recount");
    recounted.differences.into_iter().flat_map(|difference| difference.requeue).collect()
}

/// INV-7, R105: where the log lost a bucket, a reconcile names what may be missing, and not what waits by a range: that is
/// copied, and would be sent twice. What is asked for nevertheless is skipped.
#[tokio::test]
async fn nothing_that_a_range_stands_for_is_missing_or_sent_again_by_hand() {
    let Some(play) = Played::begin(&[only("a", "order.*")]).await else { return };
    let types = ["order.placed", "order.placed", "bill.sent", "order.sent"];
    play.commit(&types.map(|event_type| of("hot", event_type))).await;
    let passed = [Passed::Acked, Passed::Waiting, Passed::OtherRoute, Passed::Waiting];
    let begins = pass(&play, "a", &passed, 1).await;
    assert_eq!(missing(&play).await, [0; 0], "what waits by a range is in the log");
    play.fresh.run("delete from {outbox_settled} where destination = 'a'").await;
    assert_eq!(missing(&play).await, [1]);
    assert_eq!(requeue(&play, &[1, 2, 4]).await, (1, 2));
    let waiting = "select coalesce(sum(seq), 0)::bigint from {outbox_waiting}";
    assert_eq!(play.fresh.number(waiting).await, 1);
    assert_eq!(missing(&play).await, [0; 0], "the log is whole again");
    let log = "select (count * 100 + waiting * 10 + other_route)::bigint from {outbox_settled} where destination = 'a'";
    assert_eq!(play.fresh.number(log).await, 431);
    end(&play, "a", &begins).await;
    play.fresh.run("delete from {outbox_settled} where destination = 'a'").await;
    assert_eq!(missing(&play).await, [2, 4], "without the range nobody has them");
}

/// Who is about to take the tables back is told of what only a range stands for.
#[tokio::test]
async fn what_would_go_with_the_tables_is_counted_with_what_ranges_stand_for() {
    let Some(play) = Played::begin(&[everything("a")]).await else { return };
    play.commit(&[of("hot", "t"), of("2", "t"), of("hot", "t")]).await;
    pass(&play, "a", &[Passed::Waiting, Passed::Acked, Passed::Waiting], 0).await;
    play.settle_all("unrouted", &[crate::operator::Act::Elsewhere]).await;
    let found = postrider_postgres::holdings(&play.fresh.url, &play.fresh.names).await;
    let found = found.expect("holdings");
    assert_eq!((found.events, found.undelivered, found.waiting), (3, 2, 0));
}
