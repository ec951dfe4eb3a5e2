//! Settling and waiting, where the database's own tables show what happened.

use std::time::Duration;

use postrider_core::source::{
    DefinitionChange, DueRequest, FetchRequest, FetchedRow, OutboxSource,
};
use postrider_core::waiting::{
    Attempted, NewWaiting, Passed, Placement, Reason, Settlement, SettlementPart, WaitingChange,
};
use postrider_core::{Cursor, ErrorKind, Lease, Start};
use postrider_postgres::PostgresStore;

use crate::support::{Fresh, LONG, acquire, destination, id};

/// So many events of one key, committed.
pub(crate) async fn events(fresh: &Fresh, count: u32) {
    fresh
        .run(&format!(
            "insert into {{outbox}} (aggregate_type, aggregate_id, event_type, payload)
             select 'order', '42', 'order.placed', n::text from generate_series(1, {count}) n"
        ))
        .await;
}

/// Where a destination stands.
pub(crate) async fn stands(store: &PostgresStore, lease: &Lease, name: &str) -> Cursor {
    store.load(lease, &id(name)).await.expect("load").cursor
}

/// Everything behind a cursor, in pages.
pub(crate) async fn read(store: &PostgresStore, lease: &Lease, after: &Cursor) -> Vec<FetchedRow> {
    let (mut after, mut rows) = (after.clone(), Vec::new());
    loop {
        let request = FetchRequest {
            lease: lease.clone(),
            destinations: vec![id("a")],
            after,
            until: None,
            rows_max: 1_000,
            bytes_max: 4 << 20,
        };
        let page = store.fetch(&request).await.expect("fetch");
        rows.extend(page.rows);
        if !page.more {
            return rows;
        }
        after = page.end;
    }
}

/// A settlement that passes rows from one cursor to the last of them.
pub(crate) fn pass(
    lease: &Lease,
    from: &Cursor,
    rows: &[FetchedRow],
    passed: Passed,
) -> Settlement {
    let mut part = SettlementPart::new(id("a"));
    part.cursor = Some((from.clone(), rows.last().expect("rows").cursor.clone()));
    part.passed = rows.iter().map(|row| (row.row, passed)).collect();
    Settlement { lease: lease.clone(), parts: vec![part] }
}

pub(crate) fn waits(row: &FetchedRow, placement: Placement) -> NewWaiting {
    NewWaiting { row: row.row, key_hash: row.key_hash, event: None, placement }
}

pub(crate) fn failed() -> Attempted {
    Attempted { attempts: 1, reason: Reason::Failed, detail: "no answer\0".to_owned() }
}

async fn change(store: &PostgresStore, lease: &Lease, changes: Vec<WaitingChange>) {
    let mut part = SettlementPart::new(id("a"));
    part.changes = changes;
    let settlement = Settlement { lease: lease.clone(), parts: vec![part] };
    store.settle(&settlement).await.expect("settle");
}

async fn due(store: &PostgresStore, lease: &Lease) -> Vec<u64> {
    let request = DueRequest {
        lease: lease.clone(),
        destination: id("a"),
        except: Vec::new(),
        rows_max: 100,
        bytes_max: u64::MAX,
    };
    store.due(&request).await.expect("due").rows.iter().map(|row| row.row.seq).collect()
}

/// Has everything behind the cursor wait, as placed, entered in reverse order.
async fn park(
    store: &PostgresStore,
    lease: &Lease,
    place: impl Fn(&FetchedRow) -> Placement,
) -> (Settlement, Vec<FetchedRow>) {
    let from = stands(store, lease, "a").await;
    let rows = read(store, lease, &from).await;
    let mut settlement = pass(lease, &from, &rows, Passed::Waiting);
    settlement.parts[0].waiting = rows.iter().rev().map(|row| waits(row, place(row))).collect();
    store.settle(&settlement).await.expect("settle");
    (settlement, rows)
}

/// A settlement that is sent again is counted once, and one from another position is refused whole: the
/// part that could have been written is not.
#[tokio::test]
async fn the_settled_log_counts_each_event_once() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 5_000).await;
    let from = stands(&store, &lease, "a").await;
    let rows = read(&store, &lease, &from).await;
    let settlement = pass(&lease, &from, &rows, Passed::Acked);
    for _ in 0..2 {
        store.settle(&settlement).await.unwrap();
    }
    let sums =
        "select (sum(count) * 10 + count(*))::bigint from {outbox_settled} where acked = count";
    assert_eq!(fresh.number(sums).await, 50_002, "5,000 events in two buckets");
    let sum = rows
        .iter()
        .filter(|row| row.row.seq < 4_096)
        .fold(0u64, |sum, row| sum.wrapping_add(row.row.id.digest()));
    let stored = fresh.number("select id_sum from {outbox_settled} where bucket = 0").await;
    assert_eq!(stored, sum.cast_signed());
    // `unrouted` stands where it says, `a` does not.
    let mut elsewhere = settlement.clone();
    elsewhere.parts[0].cursor = Some((from.clone(), rows[9].cursor.clone()));
    let unrouted = SettlementPart { destination: id("unrouted"), ..settlement.parts[0].clone() };
    elsewhere.parts.push(unrouted);
    let refused = store.settle(&elsewhere).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(stands(&store, &lease, "unrouted").await, from, "nothing of it was written");
    assert_eq!(fresh.number(sums).await, 50_002);
}

/// R017: what the view says was published was acknowledged, and nothing else is called so.
#[tokio::test]
async fn the_view_says_what_became_of_each_event() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 5).await;
    let from = stands(&store, &lease, "a").await;
    let rows = read(&store, &lease, &from).await;
    let mut settlement = pass(&lease, &from, &rows[..3], Passed::Acked);
    settlement.parts[0].passed[1].1 = Passed::Waiting;
    settlement.parts[0].passed[2].1 = Passed::Waiting;
    let dead = Placement::Dead { attempted: failed(), holds_key: true };
    settlement.parts[0].waiting =
        vec![waits(&rows[1], dead), waits(&rows[2], Placement::Behind(Reason::Behind))];
    store.settle(&settlement).await.unwrap();
    let client = fresh.connect().await;
    let view = "select status from {outbox_status} where destination = 'a' order by seq";
    let found = client.query(&fresh.sql(view), &[]).await.unwrap();
    let statuses: Vec<String> = found.iter().map(|row| row.get(0)).collect();
    assert_eq!(statuses, ["published", "dead", "parked", "pending", "pending"]);
    let elsewhere = "select count(*) from {outbox_status}
        where destination = 'unrouted' and status = 'published'";
    assert_eq!(fresh.number(elsewhere).await, 0);
}

/// R122: the next of a key is promoted when the one before it leaves, one after the other, also when they
/// entered in another order.
#[tokio::test]
async fn a_key_drains_one_after_the_other() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 4).await;
    let (_, rows) = park(&store, &lease, |_| Placement::Behind(Reason::Behind)).await;
    assert_eq!(due(&store, &lease).await, [1, 2, 3, 4]);
    change(&store, &lease, vec![WaitingChange::Delivered(rows[0].row)]).await;
    assert_eq!(due(&store, &lease).await, [2, 3, 4]);
    let buried =
        |holds_key| WaitingChange::Dead { row: rows[1].row, attempted: failed(), holds_key };
    change(&store, &lease, vec![buried(true)]).await;
    assert_eq!(due(&store, &lease).await, [] as [u64; 0], "parked behind the dead letter");
    change(&store, &lease, vec![buried(false)]).await;
    assert_eq!(due(&store, &lease).await, [3, 4], "it lets its key go");
    let later = WaitingChange::Postpone { row: rows[2].row, delay: Duration::from_secs(60) };
    change(&store, &lease, vec![later]).await;
    assert_eq!(due(&store, &lease).await, [] as [u64; 0], "4 waits behind 3");
    // 3 goes, and what is said of 4 in the same write stands: it is not due at once.
    let later = WaitingChange::Postpone { row: rows[3].row, delay: Duration::from_secs(60) };
    change(&store, &lease, vec![later, WaitingChange::Delivered(rows[2].row)]).await;
    assert_eq!(due(&store, &lease).await, [] as [u64; 0]);
    assert_eq!(store.counts(&id("a")).await.unwrap().retrying, 1);
}

/// An operator's `discarded` stays: neither a late answer nor entering again brings the event back, and
/// the next of its key flows.
#[tokio::test]
async fn a_discarded_event_does_not_come_back() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 1).await;
    let retry = |_: &FetchedRow| Placement::Retry { delay: Duration::ZERO, attempted: failed() };
    let (settlement, rows) = park(&store, &lease, retry).await;
    fresh.run("update {outbox_waiting} set state = 'discarded'").await;
    let row = rows[0].row;
    let again = WaitingChange::Retry { row, delay: Duration::ZERO, attempted: failed() };
    change(&store, &lease, vec![again, WaitingChange::Delivered(row)]).await;
    store.settle(&settlement).await.unwrap();
    assert_eq!(due(&store, &lease).await, [] as [u64; 0]);
    let loaded = store.load(&lease, &id("a")).await.unwrap();
    assert_eq!((loaded.waiting_ahead, loaded.waiting_keys.len()), (vec![], 0));
    assert_eq!(fresh.number("select count(*) from {outbox_waiting}").await, 1, "it stays");
}

/// Waiting events that cannot be read, however they got to be due, are put back among the dead, and what can
/// be read of other keys is handed out by the same question.
#[tokio::test]
async fn a_redriven_row_that_is_no_event_is_dead_again() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 2).await;
    fresh
        .run(
            "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
             values ('order', '43', 'order.placed', '1')",
        )
        .await;
    park(&store, &lease, |_| Placement::Behind(Reason::Behind)).await;
    fresh.run("update {outbox_waiting} set format = 9 where seq = 1").await;
    assert_eq!(due(&store, &lease).await, [3], "2 waits behind the dead letter");
    let counts = store.counts(&id("a")).await.unwrap();
    assert_eq!((counts.dead, counts.parked, counts.retrying), (1, 1, 1));
}

/// INV-5: what is settled for a destination that was removed meanwhile is left out, and what is settled
/// for the others is written.
#[tokio::test]
async fn a_removed_destination_takes_nothing() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 1).await;
    let from = stands(&store, &lease, "a").await;
    let rows = read(&store, &lease, &from).await;
    let mut settlement = pass(&lease, &from, &rows, Passed::Acked);
    let mut gone = SettlementPart { destination: id("gone"), ..settlement.parts[0].clone() };
    gone.waiting = vec![waits(&rows[0], Placement::Behind(Reason::Behind))];
    settlement.parts.insert(0, gone);
    store.settle(&settlement).await.unwrap();
    assert_eq!(stands(&store, &lease, "a").await, rows[0].cursor);
    assert_eq!(store.load(&lease, &id("gone")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.counts(&id("gone")).await.unwrap().total(), 0);
}

/// INV-5: settling beside the removal of its destination leaves nothing behind, whoever is first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_leaves_nothing_of_a_settlement_beside_it() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 50).await;
    let operator = fresh.store();
    let add = DefinitionChange {
        put: vec![(destination("b"), Start::Beginning)],
        ..DefinitionChange::default()
    };
    let remove = DefinitionChange { remove: vec![id("b")], ..DefinitionChange::default() };
    let left = "select (select count(*) from {outbox_waiting} where destination = 'b')
        + (select count(*) from {outbox_settled} where destination = 'b')
        + (select count(*) from {outbox_cursor} where destination = 'b')";
    for _ in 0..10 {
        operator.apply(&add).await.unwrap();
        let from = stands(&store, &lease, "b").await;
        let rows = read(&store, &lease, &from).await;
        let mut settlement = pass(&lease, &from, &rows, Passed::Waiting);
        settlement.parts[0].destination = id("b");
        settlement.parts[0].waiting =
            rows.iter().map(|row| waits(row, Placement::Behind(Reason::Behind))).collect();
        let (settled, removed) = tokio::join!(store.settle(&settlement), operator.apply(&remove));
        settled.unwrap();
        removed.unwrap();
        assert_eq!(fresh.number(left).await, 0);
    }
}

/// A window of events can wait at once: the whole of it in one write, each behind the one before.
#[tokio::test]
async fn a_whole_window_can_wait() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 8_192).await;
    park(&store, &lease, |_| Placement::Behind(Reason::Behind)).await;
    let counts = store.counts(&id("a")).await.unwrap();
    assert_eq!((counts.retrying, counts.parked), (1, 8_191));
    let run = due(&store, &lease).await;
    assert_eq!(run, (1..=100).collect::<Vec<u64>>(), "as much of the only key as was asked for");
}

/// Settles as a store would whose statement was on its way for long: with the number that it had then.
async fn settle_late(
    fresh: &Fresh,
    lease: &Lease,
    part: &str,
    number: &str,
) -> Result<(), tokio_postgres::Error> {
    let statement = fresh.sql(&format!(
        "select {{outbox_settle}}({}::smallint, '{}', {}, null, true, '[{part}]', {number})",
        lease.partition.0,
        lease.owner.as_str(),
        lease.token
    ));
    fresh.connect().await.batch_execute(&statement).await
}

/// INV-1, INV-7: a settlement that only changes what waits, was sent again, and arrives after all when an operator
/// has had the event sent once more, takes nothing away. Without its number (the control) it does.
#[tokio::test]
async fn a_settlement_that_arrives_late_undoes_nothing() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    events(&fresh, 1).await;
    let (_, rows) = park(&store, &lease, |_| Placement::Behind(Reason::Behind)).await;
    let gone = r#"{"destination": "a", "cursor": null, "buckets": [], "waiting": [], "disabled": [],
        "changes": [{"kind": "gone", "seq": 1}]}"#;
    let waiting = "select count(*) from {outbox_waiting}";
    let settled = "select settled from {outbox_renewal}";
    let requeue = fresh.sql(
        "select {outbox_requeue}(0::smallint, 'a', 1, w.key_hash, now())
         from (select 1::bigint as key_hash) w",
    );
    // In doubt, and sent again: the second is written.
    let late = fresh.number(settled).await + 1;
    change(&store, &lease, vec![WaitingChange::Delivered(rows[0].row)]).await;
    assert_eq!(fresh.number(waiting).await, 0);
    fresh.connect().await.batch_execute(&requeue).await.unwrap();
    assert_eq!(fresh.number(waiting).await, 1, "once more");
    let refused = settle_late(&fresh, &lease, gone, &late.to_string()).await.unwrap_err();
    assert_eq!(refused.code().map(|code| code.code().to_owned()).as_deref(), Some("PRC01"));
    assert_eq!(fresh.number(waiting).await, 1);
    // The one that was written says so when it comes a second time, and does nothing.
    let last = fresh.number(settled).await.to_string();
    settle_late(&fresh, &lease, gone, &last).await.unwrap();
    assert_eq!(fresh.number(waiting).await, 1);
    settle_late(&fresh, &lease, gone, "null").await.unwrap();
    assert_eq!(fresh.number(waiting).await, 0, "the control: without a number the copy is lost");
    // A handle whose clock is behind is refused under no lease but the one it had.
    let stale = Lease { token: lease.token - 1, ..lease.clone() };
    let fenced = settle_late(&fresh, &stale, gone, "9000000000000000000").await.unwrap_err();
    assert_eq!(fenced.code().map(|code| code.code().to_owned()).as_deref(), Some("PRF01"));
    fresh
        .run("update {outbox_renewal} set settled = 9000000000000000000, expires_at = 'epoch'")
        .await;
    let next = acquire(&store, LONG).await.expect("it has expired").lease;
    fresh.connect().await.batch_execute(&requeue).await.unwrap();
    change(&store, &next, vec![WaitingChange::Delivered(rows[0].row)]).await;
    assert_eq!(fresh.number(waiting).await, 0, "numbers are a lease's own");
}
