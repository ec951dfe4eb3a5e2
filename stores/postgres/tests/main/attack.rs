//! Holes that a hostile review found, each with the history that shows it.

use std::time::Duration;

use postrider_core::snapshot::SnapshotCursor;
use postrider_core::source::{FetchRequest, OutboxSource};
use postrider_core::waiting::{Passed, Placement};
use postrider_core::{Cursor, ErrorKind, Lease, Operator, PartitionId, RelayId, Result};
use tokio_postgres::Client;

use crate::relay::{failed, pass, waits};
use crate::support::{Fresh, LONG, id};

const INSERT: &str = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload) \
                      values ('order', '42', 'order.placed', '{\"a\": 1}')";

fn after(lease: &Lease, cursor: &Cursor) -> FetchRequest {
    FetchRequest {
        lease: lease.clone(),
        destinations: vec![id("a")],
        after: cursor.clone(),
        until: None,
        rows_max: 1_000,
        bytes_max: 4 << 20,
    }
}

fn any_lease() -> Lease {
    Lease { partition: PartitionId(0), owner: RelayId::mint(), token: 1 }
}

/// Waits until so many sessions stand in line for a table.
async fn in_line(fresh: &Fresh, table: &str, sessions: i64) {
    let waiting = format!(
        "select count(*) from pg_locks where not granted and relation = '{table}'::regclass"
    );
    while fresh.number(&waiting).await < sessions {
        tokio::time::sleep(Duration::from_millis(2)).await; // waits: the server does not tell
    }
}

/// INV-1: after a restore, a row of a transaction number that this server has yet to reach is found by
/// whoever reads first, also where another reading's tick is still under way.
#[tokio::test]
async fn an_old_number_is_found_beside_another_readings_tick() {
    let Some(fresh) = Fresh::read_for_a(1).await else { return };
    let old = INSERT.replace("(aggregate_type", "(xid, aggregate_type");
    fresh.run(&old.replace("values (", "values (1099511627776, ")).await;
    let beginning = SnapshotCursor::beginning().encode().unwrap();
    for turns in 0..30 {
        let (store, lease) = (fresh.store(), any_lease());
        store.open().await.expect("open");
        // The read line is connected and nothing was read yet.
        _ = store.load(&lease, &id("nobody")).await;
        let later = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            store.fetch(&after(&lease, &beginning)).await
        };
        let request = after(&lease, &beginning);
        let (first, second) = futures_util::future::join(store.fetch(&request), later).await;
        for page in [first.expect("fetch"), second.expect("fetch")] {
            assert_eq!(page.rows.len(), 1, "{turns}: the row is passed unread: {:?}", page.end);
        }
    }
}

async fn writes_at_ease(client: &Client, insert: &str) {
    client.batch_execute("set synchronous_commit = off").await.expect("at ease");
    loop {
        client.batch_execute(insert).await.expect("insert");
    }
}

/// INV-2, F1: what was visible and not durable when the server crashed is not handed out, though the server
/// that came back says that all of its log is flushed.
#[tokio::test]
async fn what_a_crash_took_between_reading_and_flushing_is_not_handed_out() {
    /// Readings that may find nothing new: a busy machine keeps the writer from writing.
    const TRIES: usize = 20;
    for _ in 0..TRIES {
        let Some(fresh) = Fresh::made(1).await else { return };
        match read_before_a_crash(&fresh).await {
            Ok(0) => {}
            Ok(rows) => panic!("it may never have happened: {rows}"),
            Err(refused) => return assert_eq!(refused.kind(), ErrorKind::Conflict),
        }
    }
    panic!("never was there anything to read");
}

/// Reads what somebody commits without waiting for the disk, while the server crashes before that is flushed: how many rows
/// are handed out.
async fn read_before_a_crash(fresh: &Fresh) -> Result<usize> {
    let (store, lease) = fresh.relay().await;
    let mut cursor = store.load(&lease, &id("a")).await.expect("load").cursor;
    let (writer, mut first, second) =
        (fresh.connect().await, fresh.connect().await, fresh.connect().await);
    let insert = fresh.sql(INSERT);
    let writing = tokio::spawn(async move { writes_at_ease(&writer, &insert).await });
    let life = fresh.sql("{outbox_life}");
    for _ in 0..10 {
        cursor = store.fetch(&after(&lease, &cursor)).await.expect("fetch").end;
    }
    // The reading gets the table after the first, and the crash comes before the flush does.
    let lock = format!("lock table {life} in access exclusive mode");
    let holds = first.transaction().await.unwrap();
    holds.batch_execute(&lock).await.unwrap();
    let reading = {
        let (store, request) = (store.clone(), after(&lease, &cursor));
        tokio::spawn(async move { store.fetch(&request).await })
    };
    in_line(fresh, &life, 1).await;
    let crash = format!(
        "begin; {lock}; delete from {life}; insert into {life} values (true, gen_random_uuid()); commit"
    );
    let crashing = tokio::spawn(async move { second.batch_execute(&crash).await });
    in_line(fresh, &life, 2).await;
    holds.rollback().await.unwrap();
    crashing.await.unwrap().expect("it crashes");
    let read = reading.await.unwrap();
    writing.abort();
    read.map(|page| page.rows.len())
}

/// Waits until a statement that names something waits for a lock.
async fn wait_for_lock(fresh: &Fresh, name: &str, is_over: impl Fn() -> bool) {
    let stands = format!(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%{name}%'"
    );
    let stands = fresh.sql(&stands);
    while fresh.number(&stands).await < 1 && !is_over() {
        tokio::time::sleep(Duration::from_millis(2)).await; // waits: the server does not tell
    }
}

/// A copy that a settlement makes while its event is erased is erased as well.
#[tokio::test]
async fn a_copy_made_during_an_erasure_is_erased() {
    let Some(fresh) = Fresh::made(1).await else { return };
    let (store, lease) = fresh.relay().await;
    fresh.run(INSERT).await;
    let cursor = store.load(&lease, &id("a")).await.expect("load").cursor;
    let page = store.fetch(&after(&lease, &cursor)).await.expect("fetch");
    let mut settlement = pass(&lease, &cursor, &page.rows, Passed::Waiting);
    let later = Placement::Retry { delay: LONG, attempted: failed() };
    settlement.parts[0].waiting = vec![waits(&page.rows[0], later)];
    // The last that a settlement writes is the log: it stands there with the copy made.
    let mut other = fresh.connect().await;
    let holds = other.transaction().await.unwrap();
    let log = "insert into {outbox_settled} (destination, partition, bucket, count, id_sum, acked, \
               other_route, dropped, waiting, erased, floor, relay, saved_at) \
               values ('a', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'r', now())";
    holds.batch_execute(&fresh.sql(log)).await.unwrap();
    let settling = {
        let (store, settlement) = (store.clone(), settlement.clone());
        tokio::spawn(async move { store.settle(&settlement).await })
    };
    wait_for_lock(&fresh, "{outbox_settle}", || settling.is_finished()).await;
    let erasing = {
        let store = fresh.store();
        let note = crate::operator::note();
        tokio::spawn(async move { store.erase("order/42", &note).await })
    };
    // It stands behind the settlement, at the cursor.
    wait_for_lock(&fresh, "{outbox_cursor}", || erasing.is_finished()).await;
    holds.rollback().await.unwrap();
    if let Err(late) = settling.await.unwrap() {
        // On a slow machine it gave up before, and makes its copy now, beside the erasure.
        assert_eq!(late.kind(), ErrorKind::Busy);
        store.settle(&settlement).await.expect("settle");
    }
    erasing.await.unwrap().expect("erase");
    let left = "select count(*) from {outbox_waiting} where payload is not null";
    assert_eq!(fresh.number("select count(*) from {outbox_waiting}").await, 1);
    assert_eq!(fresh.number(left).await, 0);
}

/// INV-8: a payload that was forced past the table's rules is read like any other, and not asked for for ever.
#[tokio::test]
async fn a_payload_past_the_rules_stops_nobody() {
    let Some(fresh) = Fresh::read_for_a(1).await else { return };
    fresh.run("alter table {outbox} disable trigger all").await;
    let forced = INSERT.replace("(aggregate_type", "(partition, aggregate_type");
    let large = format!("values (0, 'order', '1', 't', '\"{}\"')", "x".repeat(3 << 20));
    fresh.run(&format!("{}{large}", forced.split("values").next().unwrap())).await;
    let (store, lease) = (fresh.store(), any_lease());
    let beginning = SnapshotCursor::beginning().encode().unwrap();
    let request = after(&lease, &beginning);
    let page = tokio::time::timeout(Duration::from_secs(60), store.fetch(&request)).await;
    assert_eq!(page.expect("an answer").expect("fetch").rows.len(), 1);
}

/// INV-1, INV-3: what policies of row security hide from the relay's user is not passed. A page says it, and an open; without
/// them, what was committed meanwhile is there.
#[tokio::test]
async fn what_row_security_hides_is_not_passed() {
    let Some(mut fresh) = Fresh::read_for_a(1).await else { return };
    let role = format!("hidden_{}", fresh.names.schema());
    let grants = "create role ROLE login;
        grant usage on schema {schema} to ROLE;
        grant select, insert, update, delete on all tables in schema {schema} to ROLE;
        grant usage, select on all sequences in schema {schema} to ROLE;
        grant execute on all functions in schema {schema} to ROLE";
    fresh.run(&grants.replace("ROLE", &role)).await;
    fresh.store_url = fresh.url.replace("postgres@", &format!("{role}@"));
    let (store, lease) = (fresh.store(), any_lease());
    store.open().await.expect("nothing is hidden");
    let beginning = SnapshotCursor::beginning().encode().unwrap();
    let end = store.fetch(&after(&lease, &beginning)).await.expect("nothing is there").end;
    for table in ["outbox", "outbox_waiting", "outbox_scheduled"] {
        fresh.run(&format!("alter table {{{table}}} enable row level security")).await;
        fresh.run(INSERT).await;
        let refusals = [
            store.fetch(&after(&lease, &end)).await.map(drop).unwrap_err(),
            fresh.store().open().await.map(drop).unwrap_err(),
        ];
        for refused in refusals {
            assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused:?}");
            let named = fresh.sql(&format!("alter table {{{table}}} disable row level security"));
            assert!(refused.to_string().contains(&named), "{refused}");
        }
        fresh.run(&format!("alter table {{{table}}} disable row level security")).await;
    }
    let page = store.fetch(&after(&lease, &end)).await.expect("all is seen again");
    assert_eq!(page.rows.len(), 3);
    let shown = "alter table {outbox} enable row level security;
        create policy shown on {outbox} to ROLE using (true)";
    fresh.run(&shown.replace("ROLE", &role)).await;
    let page = store.fetch(&after(&lease, &end)).await.expect("a policy that hides nothing");
    assert_eq!(page.rows.len(), 3);
    fresh.store().open().await.expect("the same");
    fresh.run("create policy fewer on {outbox} as restrictive using (tenant is null)").await;
    let refused = store.fetch(&after(&lease, &end)).await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused:?}");
    drop(store);
    fresh.run(&format!("drop owned by {role}; drop role {role}")).await;
}
