//! Retention where the outbox lies in many tables: they go whole, and are made ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider_core::source::{FetchRequest, OutboxSource, RetireRequest, Retired};
use postrider_core::waiting::{Passed, Settlement, SettlementPart};
use postrider_postgres::{Layout, Names};
use postrider_testkit::cluster::Cluster;
use tokio_postgres::Client;

use super::{Play, detached_at_last, gone};
use crate::relay::{read, stands};
use crate::support::{Fresh, connect, id};
use crate::undisturbed::Undisturbed;

/// A transaction that was prepared; rolled back with this value, also where a test fails.
struct Prepared {
    url: String,
    name: String,
}

impl Prepared {
    async fn new(fresh: &Fresh, statement: &str) -> Prepared {
        let prepared =
            Prepared { url: fresh.url.clone(), name: format!("p{}", fresh.names.schema()) };
        let text = format!("begin; {statement}; prepare transaction '{}'", prepared.name);
        fresh.connect().await.batch_execute(&text).await.expect("it is prepared");
        prepared
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let (url, text) = (self.url.clone(), format!("rollback prepared '{}'", self.name));
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| {
                runtime.block_on(async { connect(&url).await.batch_execute(&text).await })
            })
        });
        _ = cleaner.join();
    }
}

/// Commits one row after another until it is told to stop: how many they were, and the longest in milliseconds.
async fn produce(
    client: Client,
    insert: String,
    stop: Arc<AtomicBool>,
    longest: Arc<AtomicU64>,
) -> u64 {
    let mut committed = 0u64;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        client.batch_execute(&insert).await.expect("a producer goes on");
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        longest.fetch_max(took, Ordering::Relaxed);
        committed += 1;
        // waits: a producer that takes the whole server says less of how long one waits
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    committed
}

/// R101: with a producer's transaction and a prepared one open, whole tables go, no other producer waits a
/// second, and the empty tables leave when the transactions have ended. `POSTRIDER_TEST_OPEN=300` holds both open for
/// five minutes, while retention looks again and again.
#[tokio::test]
async fn whole_tables_go_and_no_producer_waits() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old_in_tables(13_000, "30 days").await;
    let insert = play.fresh.sql(
        "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
        values ('order', '1', 't', '{}')",
    );
    let open = play.fresh.connect().await;
    open.batch_execute(&format!("begin; {insert}")).await.expect("an open transaction");
    let prepared = Prepared::new(&play.fresh, &insert).await;
    let (held, began) = (open_for(), Instant::now());
    play.passed(13_000).await;
    let (stop, longest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let client = play.fresh.connect().await;
    let control = Undisturbed::start(&play.fresh).await;
    let producer =
        tokio::spawn(produce(client, insert.clone(), Arc::clone(&stop), Arc::clone(&longest)));
    assert_eq!(&*play.tables().await, "0* 4096* 8192* 12288* 16384 20480 rest");
    let mut rows = 0;
    loop {
        let retired = play.retire(100).await;
        rows += retired.rows;
        if !retired.more {
            break;
        }
    }
    // The last table is still being written to; its rows are old, and go by themselves.
    assert!(rows >= 12_288, "{rows}");
    let client = play.fresh.connect().await;
    let detach = play.fresh.sql("select {outbox_detach}()");
    loop {
        let refused = client.query_one(&detach, &[]).await.expect_err("somebody is in the way");
        assert_eq!(refused.code().map(|code| code.code().to_owned()).as_deref(), Some("55P03"));
        if began.elapsed() >= held {
            break;
        }
        // waits: both transactions are open for as long as was asked
        tokio::time::sleep(Duration::from_millis(100)).await;
        while play.retire(100).await.more {}
    }
    assert!(play.tables().await.starts_with("0 4096 8192 12288*"), "{}", play.tables().await);
    stop.store(true, Ordering::Relaxed);
    let committed = producer.await.expect("the producer");
    assert!(committed > 10, "the control: {committed}");
    let longest = Duration::from_millis(longest.load(Ordering::Relaxed));
    let control = control.end().await;
    eprintln!(
        "open for {:?}: {committed} committed, the longest took {longest:?}, and {control:?} where nobody was in its way",
        began.elapsed()
    );
    assert!(longest < Duration::from_secs(1) + control, "{longest:?}, and {control:?}");
    open.batch_execute("commit").await.expect("commit");
    drop(prepared);
    assert_eq!(detached_at_last(&client, &detach).await, 3);
    assert!(play.tables().await.starts_with("12288*"), "{}", play.tables().await);
    assert!(play.history_start().await >= 12_288);
    assert_eq!(
        play.fresh.number("select count(*) from {outbox} where seq > 13000").await as u64,
        committed + 1
    );
}

/// What each destination gets now, and passes: the numbers of `a`. Where nothing is left the cursor is saved where
/// the last page ended, as a relay does.
pub(super) async fn go_past(play: &Play) -> Vec<u64> {
    let mut numbers = Vec::new();
    for name in ["unrouted", "a"] {
        let mut from = stands(&play.store, &play.lease, name).await;
        numbers.clear();
        loop {
            let request = FetchRequest {
                lease: play.lease.clone(),
                destinations: vec![id(name)],
                after: from.clone(),
                until: None,
                rows_max: 1_000,
                bytes_max: 4 << 20,
            };
            let page = play.store.fetch(&request).await.expect("fetch");
            let mut part = SettlementPart::new(id(name));
            part.cursor = Some((from, page.end.clone()));
            part.passed = page.rows.iter().map(|row| (row.row, Passed::Acked)).collect();
            numbers.extend(page.rows.iter().map(|row| row.row.seq));
            let settlement = Settlement { lease: play.lease.clone(), parts: vec![part] };
            play.store.settle(&settlement).await.expect("settle");
            from = page.end;
            if !page.more {
                break;
            }
        }
    }
    numbers
}

/// R101, INV-1: a writer has a number in the first table and stays open, while everybody reads on past it and
/// retention looks again and again. Neither that table goes nor one behind it, also after the commit, until the late
/// event was delivered; then they go. So it is where rows go by themselves beside it, because they are old.
/// `POSTRIDER_TEST_OPEN=600` holds the writer open for ten minutes. On a server of its own: whatever else is open would
/// keep the tables as well.
#[tokio::test]
async fn a_table_waits_for_a_writer_that_is_open_in_it() {
    for rows_go in [false, true] {
        let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
        let fresh = Fresh::at(&cluster.url(), Names::default());
        let play = Play::at(fresh, Layout::Partitioned).await;
        let writer = play.fresh.connect().await;
        let insert =
            "begin; insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
            values ('order', '1', 't', '{}')";
        writer.batch_execute(&play.fresh.sql(insert)).await.expect("it has a number");
        play.old_in_tables(9_000, "30 days").await;
        let passed = go_past(&play).await;
        assert_eq!((passed.len(), passed.contains(&1)), (9_000, false), "the readers go past it");
        let first = if rows_go { 9_002 } else { 0 };
        let (open, began) = (open_for(), Instant::now());
        while began.elapsed() < open {
            assert!(go_past(&play).await.is_empty());
            retire_all(&play, rows_go).await;
            assert_eq!(play.history_start().await, first);
            // waits: retention looks for as long as the writer is open
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        writer.batch_execute("commit").await.expect("commit");
        retire_all(&play, rows_go).await;
        assert!(play.tables().await.starts_with("0* 4096"), "{}", play.tables().await);
        assert_eq!(go_past(&play).await, [1], "the late event");
        // A cursor that has nothing to read moves on with what the server says is over.
        for _ in 0..3 {
            go_past(&play).await;
            retire_all(&play, rows_go).await;
        }
        assert!(!play.tables().await.contains("4096*"), "{}", play.tables().await);
        assert_eq!(play.fresh.number("select count(*) from {outbox} where seq < 8192").await, 0);
    }
}

fn open_for() -> Duration {
    Duration::from_secs(
        std::env::var("POSTRIDER_TEST_OPEN").map_or(1, |text| text.parse().unwrap()),
    )
}

/// Retention of what was passed a moment ago, as far as it goes: with the rows that go by themselves, or tables alone.
async fn retire_all(play: &Play, rows_go: bool) {
    let of = "partition, owner, token";
    loop {
        if rows_go {
            if !retire_soon(play).await.more {
                return;
            }
            continue;
        }
        let to = format!("select {{outbox_retire_to}}({of}, 1000) from {{outbox_lease}}");
        let below = play.fresh.number(&to).await;
        let empty = format!(
            "select more::integer::bigint from {{outbox_lease}}, {{outbox_empty}}({of}, {below})"
        );
        if play.fresh.number(&empty).await == 0 {
            return;
        }
    }
}

/// Retention that lets go what was passed a moment ago.
async fn retire_soon(play: &Play) -> Retired {
    let request = RetireRequest { older_than: Duration::from_millis(1), ..play.request(10_000) };
    play.store.retire(&request).await.expect("retire")
}

/// F35: what begins in the middle of history stays whole. Whoever adds a destination or sets a cursor back
/// holds retention off until he is done, and a crash between the mark and the deletion is finished later.
#[tokio::test]
async fn the_beginning_of_history_is_said_before_anything_goes() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old_in_tables(9_000, "30 days").await;
    play.passed(9_000).await;
    let adder = play.fresh.connect().await;
    let asks = play.fresh.sql("begin; select {outbox_history_start}()");
    adder.batch_execute(&asks).await.expect("it asks");
    let tables = || async {
        let retired = play.store.retire(&play.request(1)).await;
        retired.map_or(0, |retired| retired.rows)
    };
    assert_eq!(tables().await, 0, "held off");
    assert_eq!(
        (play.history_start().await, &*play.tables().await),
        (0, "0* 4096* 8192* 12288 16384 rest")
    );
    adder.batch_execute("commit").await.expect("commit");
    let reader = play.fresh.connect().await;
    let reads = play.fresh.sql("begin; lock table only {outbox}_p0 in access share mode");
    reader.batch_execute(&reads.replace("\"_p0", "_p0\"")).await.expect("it reads");
    assert_eq!(play.retire(100).await, gone(0, false), "the reader is in its way");
    assert_eq!(play.history_start().await, 8_192, "but it is said already");
    assert_eq!(play.fresh.number("select count(*) from {outbox}").await, 9_000);
    reader.batch_execute("commit").await.expect("commit");
    assert_eq!(play.retire(100).await, gone(4_096, true));
    assert_eq!(play.retire(100).await, gone(4_096, true));
    assert!(play.tables().await.ends_with("8192* 12288 16384 rest"));
}

/// F35: a relay that is killed when the beginning of history has moved and no table is empty yet has taken nothing that
/// anybody is promised: who begins then begins behind the mark, with all that is there, and the next relay deletes the rest.
#[tokio::test]
async fn a_kill_between_the_mark_and_the_deletion_is_made_good() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old_in_tables(9_000, "30 days").await;
    play.passed(9_000).await;
    let reader = play.fresh.connect().await;
    let reads = play.fresh.sql("begin; lock table only {outbox}_p0 in access share mode");
    reader.batch_execute(&reads.replace("\"_p0", "_p0\"")).await.expect("it reads");
    let kill = play.fresh.sql(
        "select count(pg_terminate_backend(l.pid)) from pg_locks l
        where not l.granted and l.mode = 'AccessExclusiveLock' and l.relation = '{outbox}_p0'::regclass",
    );
    let kill = kill.replace("\"_p0'", "_p0\"'");
    let killer = async || while play.fresh.number(&kill).await == 0 {};
    let request = play.request(100);
    let (killed, ()) = tokio::join!(play.store.retire(&request), killer());
    assert!(killed.is_err(), "{killed:?}");
    let tables = play.tables().await;
    let said = (play.history_start().await, &*tables);
    assert_eq!(said, (8_192, "0* 4096* 8192* 12288 16384 rest"), "said, and nothing is gone");
    reader.batch_execute("commit").await.expect("commit");

    play.begins_beside_nobody("b").await;
    let begins = stands(&play.store, &play.lease, "b").await;
    let unread = || async {
        let rows = read(&play.store, &play.lease, &begins).await;
        (rows.len(), rows.first().map(|row| row.row.seq), rows.last().map(|row| row.row.seq))
    };
    let all = (809, Some(8_192), Some(9_000));
    assert_eq!(unread().await, all);
    assert_eq!(play.retire(100).await, gone(4_096, true));
    assert_eq!(play.retire(100).await, gone(4_096, true));
    let tables = play.tables().await;
    assert!(tables.ends_with("8192* 12288 16384 rest"), "{tables}");
    assert_eq!(unread().await, all, "what it was promised is there");
}

/// One cursor that has not passed all of it for good keeps a table.
#[tokio::test]
async fn a_table_waits_for_the_last_cursor() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old(5_000, "30 days").await;
    play.passed(5_000).await;
    play.fresh.run("update {outbox_cursor} set ground = 4094 where destination = 'unrouted'").await;
    let bound = "select {outbox_retire_to}(partition, owner, token, 1000000) from {outbox_lease}";
    assert_eq!(play.fresh.number(bound).await, 0);
    play.fresh.run("update {outbox_cursor} set ground = 4095 where destination = 'unrouted'").await;
    play.fresh.run("update {outbox_settled} set saved_at = now() where destination = 'a'").await;
    assert_eq!(play.fresh.number(bound).await, 0, "it was passed just now");
    play.fresh.run("update {outbox_settled} set saved_at = now() - interval '1 minute'").await;
    assert_eq!(play.fresh.number(bound).await, 4_096);
}

/// Tables are made ahead by whoever renews; what came before a table was made stands in the default one, and
/// nothing is refused.
#[tokio::test]
async fn tables_are_made_ahead() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    assert_eq!(&*play.tables().await, "0 4096 8192 rest");
    play.old(13_000, "1 day").await;
    assert_eq!(&*play.tables().await, "0* 4096* 8192* rest*");
    play.renew().await;
    let until = Instant::now() + Duration::from_secs(30);
    while play.tables().await.ends_with("8192* rest*") && Instant::now() < until {
        // waits: the tables are made in a task beside the renewal.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(&*play.tables().await, "0* 4096* 8192* 20480 24576 rest*");
    play.old(12_000, "1 day").await;
    assert_eq!(play.fresh.number("select count(*) from {outbox}").await, 25_000);
    assert_eq!(&*play.tables().await, "0* 4096* 8192* 20480* 24576* rest*");
    let ahead = "select {outbox_ahead}()::bigint";
    assert_eq!(play.fresh.number(ahead).await, 2);
    assert_eq!(play.fresh.number(ahead).await, 0, "enough");
}

/// R101: where no table can be made ahead, empty ones are taken away all the same.
#[tokio::test]
async fn empty_tables_go_where_none_can_be_made() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old_in_tables(8_000, "30 days").await;
    play.passed(8_000).await;
    while play.retire(1_000).await.more {}
    play.old(500, "1 hour").await;
    play.fresh.run("create table {schema}.outbox_p16384 ()").await;
    assert_eq!(&*play.tables().await, "0 4096* 8192* 12288 rest");
    play.renew().await;
    let until = Instant::now() + Duration::from_secs(30);
    while play.tables().await.starts_with("0 ") && Instant::now() < until {
        // waits: the tables are taken away in a task beside the renewal.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(&*play.tables().await, "4096* 8192* 12288 rest");
}

/// R101: a default table whose rows are no longer needed is emptied with the others.
#[tokio::test]
async fn the_default_table_is_emptied_as_the_others() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old(13_000, "30 days").await;
    assert_eq!(play.fresh.number("select {outbox_ahead}()::bigint").await, 2);
    play.old(15_000, "30 days").await;
    play.passed(28_000).await;
    let mut rows = 0;
    loop {
        let retired = play.retire(10_000).await;
        rows += retired.rows;
        if !retired.more {
            break;
        }
    }
    assert!(rows >= 24_000, "{rows}");
    let left = play.tables().await;
    assert!(left.ends_with("rest"), "{left}");
}
