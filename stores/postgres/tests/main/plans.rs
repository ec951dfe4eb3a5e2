//! Plans are made while the tables are empty, and kept when they have filled: what a settlement reads must not grow
//! with what lies there. Nobody analyzes these tables in between, as in the first minutes of an outbox.

use tokio_postgres::Client;

use crate::support::Fresh;

/// So many rows of one partition and destination come in between.
const ROWS: u32 = 20_000;

/// Blocks that a statement about one row may visit, whatever lies there: indexes of a few levels each. To read all
/// rows takes some hundreds.
const BLOCKS_MAX: i64 = 60;

const WAITING: &str = "insert into {outbox_waiting} (destination, partition, seq, key, key_hash, state,
        holds_key, next_at, reason, moved_at)
    select 'a', 0, n, 'k' || n, n, 'retrying', true, now(), 'unavailable', now() from generate_series(1, $rows) n";

const SETTLED: &str =
    "insert into {outbox_settled} (destination, partition, bucket, count, id_sum, acked,
        other_route, dropped, waiting, erased, floor, relay, saved_at)
    select 'a', 0, n, 1, 1, 1, 0, 0, 0, 0, 0, 'r', now() from generate_series(1, $rows) n";

/// What was delivered, or is tried later, of what waited.
const CHANGE: &str = r#"{outbox_change}(0::smallint, 'a', '[{"kind": "gone", "seq": 5},
    {"kind": "retry", "seq": 6, "delay": 1, "attempts": 1, "reason": "timeout", "detail": ""}]', now())"#;

/// What a cursor passed: a bucket that is there.
const LOG: &str = r#"{outbox_log}(0::smallint, 'a', '[{"bucket": 7, "count": 1, "id_sum": 1, "acked": 1,
    "other_route": 0, "dropped": 0, "waiting": 0, "erased": 0}]', 0, 'r', now())"#;

/// The same as a join, with the planner kept to loops.
const JOINED: &str = "pg_temp.joined('[{\"bucket\": 7, \"count\": 1}]')";
const JOIN: &str = "create function pg_temp.joined(p_buckets jsonb) returns void language plpgsql
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    begin
        update {outbox_settled} s set count = s.count + b.count
        from jsonb_to_recordset(p_buckets) b (bucket bigint, count integer)
        where s.destination = 'a' and s.partition = 0 and s.bucket = b.bucket;
    end $$";

/// Blocks that a call visits, in all statements of its own.
async fn blocks(client: &Client, call: &str) -> i64 {
    let explain = format!("explain (analyze, buffers, format json) select {call}");
    let told: serde_json::Value =
        serde_json::from_str(&text(client, &explain).await).expect("a plan");
    let count = |what: &str| told[0]["Plan"][what].as_i64().expect("blocks");
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

async fn text(client: &Client, statement: &str) -> String {
    let told = client.simple_query(statement).await.expect("an answer");
    let row = told.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    row.expect("a row").to_owned()
}

/// So many calls are looked at, and the one that visits least counts. A session that missed a message about somebody's
/// new table reads catalogs again, some hundreds of blocks, which are counted as the statement's own; a plan that reads
/// all rows does so in each call.
const CALLS: u32 = 10;

/// Calls it until its plans are kept, lets the tables fill, and says what it visits then at least.
async fn after_filling(fresh: &Fresh, call: &str, fill: &str) -> i64 {
    let client = fresh.connect().await;
    client.batch_execute(&fresh.sql(JOIN)).await.expect("the control");
    let call = fresh.sql(call);
    for _ in 0..8 {
        client.batch_execute(&format!("select {call}")).await.expect("a call");
    }
    fresh.run("delete from {outbox_settled}; delete from {outbox_waiting}").await;
    fresh.run(&fill.replace("$rows", &ROWS.to_string())).await;
    // The first visits what the filling left to be tidied up.
    let mut least = blocks(&client, &call).await;
    for _ in 1..CALLS {
        least = least.min(blocks(&client, &call).await);
    }
    least
}

/// A settlement visits the rows that it is about, and a join would visit all of them (the control).
#[tokio::test]
async fn a_settlement_reads_what_it_is_about() {
    // Not a borrowed one: rows that its last user deleted are read again while any transaction of another test may
    // still see them, 414 blocks for 20,000 of them.
    let Some(fresh) = Fresh::made(1).await else { return };
    fresh.run("alter table {outbox_settled} set (autovacuum_enabled = off)").await;
    fresh.run("alter table {outbox_waiting} set (autovacuum_enabled = off)").await;
    for (call, fill) in [(LOG, SETTLED), (CHANGE, WAITING)] {
        let visited = after_filling(&fresh, call, fill).await;
        assert!(visited <= BLOCKS_MAX, "{visited} blocks: {call}");
    }
    let visited = after_filling(&fresh, JOINED, SETTLED).await;
    assert!(visited > BLOCKS_MAX, "the checker finds a join: {visited} blocks");
}

/// What is due: two heads of 20,000.
const DUE: &str = "count(*) from {outbox_due}(0::smallint, 'a', '{}', 2, 1000000, now())";

/// When the next is due, at a place.
fn look() -> String {
    let look = include_str!("../../sql/due/look.sql").trim_end().trim_end_matches(';');
    let look = look.replace("$1", "array[0]").replace("$2", "array['r']");
    format!("count(*) from ({}) l", look.replace("$3", "array[1]").replace("$4", "array['a']"))
}

/// What is tried again and what is held is found by when it is due, without what waits besides being read.
#[tokio::test]
async fn what_is_due_is_read_by_its_time() {
    let Some(fresh) = Fresh::made(1).await else { return };
    fresh.run("alter table {outbox_waiting} set (autovacuum_enabled = off)").await;
    let all_held = WAITING.replace("'retrying'", "'held'");
    let some_held =
        WAITING.replace("'retrying'", "case n % 2 when 0 then 'held' else 'retrying' end");
    let all_parked = WAITING.replace("'retrying'", "'parked'");
    for fill in [WAITING, &all_held, &some_held, &all_parked] {
        for call in [DUE, &look()] {
            // What was deleted before is passed by as well, as long as nobody tidies up.
            fresh.run("truncate {outbox_waiting}").await;
            let visited = after_filling(&fresh, call, fill).await;
            assert!(visited <= BLOCKS_MAX, "{visited} blocks: {call} {fill}");
        }
    }
    let count = "count(detail) from {outbox_waiting} where state in ('retrying', 'held')";
    let visited = after_filling(&fresh, count, &some_held).await;
    assert!(visited > BLOCKS_MAX, "the checker finds a reading of all: {visited} blocks");
}

/// What fills `waiting` and reads it is planned before anything is known of the table, and kept: a plan that compares each row that
/// enters with all that wait took seconds for one settlement, with the lease locked meanwhile.
#[tokio::test]
async fn nothing_that_waits_is_compared_with_all_that_waits() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let off = "select count(*) from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname = '{schema}' and p.proname in ('outbox_enter', 'outbox_promote', 'outbox_due')
            and p.proconfig @> '{enable_material=off,enable_hashjoin=off,enable_mergejoin=off,enable_seqscan=off}'";
    let off = off.replace("'{schema}'", &format!("'{}'", fresh.names.schema()));
    let client = fresh.session().await;
    let row = client.query_one(&off, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 3);
    fresh.keep(client);
}
