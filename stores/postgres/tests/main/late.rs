//! What is found by ranges and not by reading everything: transactions that were open for long, and moments.

use std::collections::BTreeSet;

use postrider_core::snapshot::SnapshotCursor;
use postrider_core::source::{DefinitionChange, OutboxSource};
use postrider_core::{Cursor, PartitionId, Start};
use postrider_postgres::{PostgresStore, Setup, init};
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::fetch::{after, beginning, numbers};
use crate::support::{Fresh, destination};

const PARTITIONS: u16 = 4;

/// What a page is asked by.
const TYPES: &str = "smallint[], bigint[], bigint[], text[], text[], bigint[], bigint[], bigint[], text[], \
                     bigint[], integer[], integer[], bigint, bigint, bigint, text[]";

/// So many events of as many keys.
fn insert(fresh: &Fresh, count: u32) -> String {
    fresh.sql(&format!(
        "insert into {{outbox}} (aggregate_type, aggregate_id, event_type, payload)
         select 'order', gen_random_uuid()::text, 'order.placed', n::text from generate_series(1, {count}) n;"
    ))
}

/// What the server's autovacuum does beside.
const SUMMARISE: &str = "select brin_summarize_new_values(i.indexrelid::regclass)
    from pg_inherits h join pg_index i on i.indrelid = h.inhrelid
    join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam
    where h.inhparent = {text:outbox}::regclass and a.amname = 'brin'";

/// Blocks that one fetch of all partitions touches, and the rows it finds.
async fn cost(
    fresh: &Fresh,
    client: &Client,
    cursor: &Cursor,
    behind_max: i64,
    mode: &str,
) -> (i64, i64) {
    let cursor = SnapshotCursor::decode(cursor).unwrap();
    let list = |numbers: Vec<u64>| format!("{numbers:?}").replace('[', "'{").replace(']', "}'");
    let each = |value: &str| format!("array[{}]", vec![value; usize::from(PARTITIONS)].join(","));
    let xids = list(cursor.pending().iter().map(|pending| pending.xid).collect());
    let floors = list(cursor.pending().iter().map(|pending| pending.floor).collect());
    let values = [
        "array[0,1,2,3]".to_owned(),
        each(&cursor.xmax().to_string()),
        each(&cursor.floor().to_string()),
        each(&xids),
        each(&floors),
        each("0"),
        each("null::bigint"),
        each("null::bigint"),
        each("null::text"),
        each("null::bigint"),
        each("200"),
        each("1024"),
        "0".to_owned(),
        i64::MAX.to_string(),
        "0".to_owned(),
        "'{a}'".to_owned(),
        behind_max.to_string(),
        each("null::bigint"),
    ];
    let statement = fresh.sql(include_str!("../../sql/fetch/page_late.sql"));
    let session = include_str!("../../sql/session/setup.sql");
    client
        .batch_execute(&format!(
            "{session}; set plan_cache_mode = {mode}; deallocate all;
             prepare page({TYPES}, bigint, bigint[]) as {statement}"
        ))
        .await
        .expect("a statement");
    let explain = format!(
        "explain (analyze, buffers, timing off, format json) execute page({})",
        values.join(", ")
    );
    let (blocks, rows) = explained(client, &explain).await;
    (blocks, rows - 1)
}

/// Blocks and rows of an `explain (analyze, buffers, format json)`.
async fn explained(client: &Client, explain: &str) -> (i64, i64) {
    let said = client.simple_query(explain).await.expect("a plan");
    let text = said.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan: serde_json::Value = serde_json::from_str(text.expect("a row")).expect("JSON");
    let plan = &plan[0]["Plan"];
    // From 18 on rows are an average over loops, with decimals.
    let number = |name: &str| plan[name].as_f64().expect("a number") as i64;
    (number("Shared Hit Blocks") + number("Shared Read Blocks"), number("Actual Rows"))
}

/// A cursor that is behind everything, and a transaction that was open all the while, with so many events at
/// its beginning. It has just committed.
async fn an_old_one_commits(fresh: &Fresh, events: u32) -> Cursor {
    let (store, old, other) = (fresh.store(), fresh.connect().await, fresh.connect().await);
    old.batch_execute(&format!("begin; {}", insert(fresh, events))).await.unwrap();
    let mut cursor = beginning();
    for _ in 0..6 {
        other.batch_execute(&insert(fresh, 10_000)).await.unwrap();
    }
    let mut found = 0;
    for partition in 0..PARTITIONS {
        cursor = beginning();
        loop {
            let mut request = after(&cursor, 1_000, 4 << 20);
            request.lease.partition = PartitionId(partition);
            let page = store.fetch(&request).await.expect("fetch");
            found += page.rows.len();
            cursor = page.end;
            if !page.more {
                break;
            }
        }
    }
    assert_eq!(found, 60_000, "the open one hinders nobody");
    // The floor rises with a tick, and ticks with what the sequence gives.
    other.batch_execute(&insert(fresh, 1)).await.unwrap();
    let mut last = cursor.clone();
    while SnapshotCursor::decode(&last).unwrap().floor() < 60_000 {
        let mut request = after(&last, 1_000, 4 << 20);
        request.lease.partition = PartitionId(PARTITIONS - 1);
        last = store.fetch(&request).await.expect("fetch").end;
        other.batch_execute(&insert(fresh, 1)).await.unwrap();
    }
    fresh.connect().await.batch_execute(&fresh.sql(SUMMARISE)).await.unwrap();
    old.batch_execute("commit").await.unwrap();
    last
}

/// F16, F17: after the end of a transaction that was open while 60,000 events were read and settled, the next
/// fetch touches what that transaction wrote, and little else. The control, the same statement that looks for
/// nothing by its number, reads all of it again.
#[tokio::test]
async fn the_end_of_an_old_transaction_costs_what_it_wrote() {
    let Some(fresh) = Fresh::read_for_a(PARTITIONS).await else { return };
    let cursor = an_old_one_commits(&fresh, 40).await;
    let decoded = SnapshotCursor::decode(&cursor).unwrap();
    assert!(decoded.pending().iter().any(|pending| pending.floor < 100), "{decoded:?}");
    let client = fresh.connect().await;
    for mode in ["force_custom_plan", "force_generic_plan"] {
        let (control, again) = cost(&fresh, &client, &cursor, i64::MAX, mode).await;
        let (blocks, rows) = cost(&fresh, &client, &cursor, 16_384, mode).await;
        eprintln!("{mode}: {blocks} blocks for {rows} rows; {control} without the index");
        assert_eq!(rows, again, "both find the same");
        assert!((40..60).contains(&rows), "{rows}");
        assert!(control > 2_500, "{mode}: the control must be seen to read much: {control}");
        // Another test's open transaction may widen what is looked through, to each block once.
        assert!(blocks < control / 3, "{mode}: {blocks}");
    }
}

/// Where a moment begins among 120,000 events is found without reading what was before it, and exactly,
/// though events that were scheduled have old times. The control reads everything.
#[tokio::test]
async fn a_moment_is_found_without_reading_what_was_before() {
    let Some(fresh) = Fresh::made(PARTITIONS).await else { return };
    let client = fresh.connect().await;
    let many =
        "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload, created_at)
        select 'order', n::text, 'order.placed', '1', '2026-01-01'::timestamptz
            + case when n % 7 = 0 then n / 2 else n end * interval '1 second'
        from generate_series(1, 120000) n";
    client.batch_execute(&fresh.sql(many)).await.unwrap();
    // A gap, as a raised sequence leaves it.
    client.batch_execute(&fresh.sql("select setval({text:outbox_seq}, 90000000)")).await.unwrap();
    client.batch_execute(&insert(&fresh, 1)).await.unwrap();
    client.batch_execute(&fresh.sql(SUMMARISE)).await.unwrap();
    let control = "select min(seq) from {outbox} where created_at >= ";
    let asked = "select {outbox_first_since}(1, 120000, ";
    for second in [0, 1, 41, 60_000, 99_998, 119_999] {
        let at = format!("'2026-01-01'::timestamptz + {second} * interval '1 second'");
        let exact = fresh.number(&format!("{control}{at}")).await;
        assert_eq!(fresh.number(&format!("{asked}{at})")).await, exact, "{second}");
    }
    let explain = "explain (analyze, buffers, timing off, format json) ";
    let at = "'2026-01-02T09:00:00Z'";
    let (all, _) = explained(&client, &fresh.sql(&format!("{explain}{control}{at}"))).await;
    let (blocks, _) = explained(&client, &fresh.sql(&format!("{explain}{asked}{at})"))).await;
    eprintln!("{blocks} blocks; {all} without the index");
    assert!(all > 2_000 && blocks < all / 2, "{blocks} of {all}");
    let store = fresh.store();
    for (name, time, owed) in
        [("late", "2026-01-02T09:19:59Z", 3), ("last", "2026-02-01T00:00:00Z", 1)]
    {
        let change = DefinitionChange {
            put: vec![(destination(name), Start::At(time.parse().unwrap()))],
            ..DefinitionChange::default()
        };
        store.apply(&change).await.unwrap();
        let from = format!(
            "select {owed} - count(*) from {{outbox}} o, {{outbox_cursor}} c \
            where c.destination = '{name}' and o.partition = c.partition \
            and not {{outbox_passed}}(c, o.xid, o.seq)"
        );
        assert_eq!(fresh.number(&from).await, 0, "{name}");
    }
}

/// F38: tables that all cursors of a statement have passed are not opened by it. The control, the same statement
/// without the number that says so, opens all of them.
#[tokio::test]
async fn tables_behind_every_cursor_are_not_opened() {
    let Some(fresh) = Fresh::empty() else { return };
    let setup = Setup { table_rows: Some(4_096), ..fresh.setup(PARTITIONS) };
    init(&fresh.url, &setup).await.expect("init");
    let (store, client) = (fresh.store(), fresh.connect().await);
    store.register(&[destination("a")]).await.expect("register");
    for _ in 0..6 {
        client.batch_execute(&insert(&fresh, 4_000)).await.unwrap();
        client.batch_execute(&fresh.sql("select {outbox_ahead}()")).await.unwrap();
    }
    let mut found = 0;
    for partition in 0..PARTITIONS {
        let (mut cursor, mut more) = (beginning(), true);
        while more {
            let mut request = after(&cursor, 1_000, 4 << 20);
            request.lease.partition = PartitionId(partition);
            let page = store.fetch(&request).await.expect("fetch");
            found += page.rows.len();
            (cursor, more) = (page.end, page.more);
        }
    }
    assert_eq!(found, 24_000, "nothing that is left out is missed");
    let of_page = |after: u32| {
        let (empty, none) = ("array['{}']", "array[null::bigint]");
        format!(
            "array[0::smallint], array[1], array[20000], {empty}, {empty}, array[0], {none}, {none}, array[null::text], \
             {none}, array[10], array[256], 0, 1, {after}, '{{a}}'"
        )
    };
    let of_late = |after: u32| format!("{}, 16384, array[null::bigint]", of_page(after));
    let of_next = |after: u32| format!("array[0::smallint], array[{after}::bigint], {after}");
    let late = format!("{TYPES}, bigint, bigint[]");
    let all: [Asked<'_>; 3] = [
        (include_str!("../../sql/fetch/page.sql"), TYPES, &of_page),
        (include_str!("../../sql/fetch/page_late.sql"), &late, &of_late),
        (include_str!("../../sql/fetch/next.sql"), "smallint[], bigint[], bigint", &of_next),
    ];
    for (statement, types, arguments) in all {
        let (begin, statement) =
            (include_str!("../../sql/session/setup_page.sql"), fresh.sql(statement));
        let prepare = format!("{begin}; deallocate all; prepare page({types}) as {statement}");
        client.batch_execute(&prepare).await.expect("a statement");
        let mut opened = Vec::new();
        for after in [0, 20_000] {
            let explain = format!("explain execute page({})", arguments(after));
            let rows = client.query(&explain, &[]).await.expect("a plan");
            let scans = rows.iter().filter(|row| row.get::<_, &str>(0).contains("Scan using"));
            opened.push(scans.count());
        }
        assert!(opened[0] >= opened[1] + 4 && opened[1] >= 1, "{opened:?}");
    }
}

/// A statement, the types of its parameters, and what they are behind a number.
type Asked<'a> = (&'a str, &'a str, &'a dyn Fn(u32) -> String);

/// Numbers for a test, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn small(&mut self, limit: u64) -> u32 {
        u32::try_from(self.below(limit)).unwrap()
    }
}

/// A reader that checks what it reads.
struct Reader {
    store: PostgresStore,
    cursor: Cursor,
    found: BTreeSet<u64>,
    /// Pages before which a transaction that was open for long had ended.
    late: u32,
}

impl Reader {
    async fn page(&mut self, rows_max: u32) -> bool {
        let stands = SnapshotCursor::decode(&self.cursor).unwrap();
        let page = self.store.fetch(&after(&self.cursor, rows_max, 4 << 20)).await.expect("a page");
        let seqs = numbers(&page);
        assert!(seqs.is_sorted_by(|a, b| a < b), "{seqs:?}");
        let ahead = SnapshotCursor::decode(&page.end).unwrap();
        let far = stands.pending().iter().filter(|one| one.floor + 16_384 < stands.floor());
        let seen = ahead.target().cloned().unwrap_or_else(|| ahead.base());
        let of_far = far.filter(|one| seen.sees(one.xid));
        self.late += u32::from(of_far.count() > 0);
        for seq in seqs {
            assert!(self.found.insert(seq), "{seq} twice");
        }
        self.cursor = page.end;
        page.more
    }
}

/// F16, INV-1: transactions that were open for long, with few events and with many, among others, and pages of
/// all sizes: everything that was committed is read once, and each page in order.
#[tokio::test]
async fn nothing_of_old_transactions_is_lost_or_read_twice() {
    let mut late = 0;
    for seed in 1..=4 {
        let Some(fresh) = Fresh::read_for_a(1).await else { return };
        let (mut dice, mut open) = (Dice(0x9e37_79b9_7f4a_7c15 ^ seed), vec![None; 4]);
        let other = fresh.connect().await;
        let mut clients = Vec::new();
        for _ in 0..open.len() {
            clients.push(fresh.connect().await);
        }
        let (store, found) = (fresh.store(), BTreeSet::new());
        let mut reader = Reader { store, cursor: beginning(), found, late: 0 };
        for _ in 0..150 {
            let one = usize::try_from(dice.below(4)).unwrap();
            let events = [1, 3, 40, 300][usize::try_from(dice.below(4)).unwrap()];
            match (dice.below(12), open[one]) {
                (0..=2, None) => {
                    let begin = format!("begin; {}", insert(&fresh, events));
                    clients[one].batch_execute(&begin).await.unwrap();
                    open[one] = Some(());
                }
                (0..=1, Some(())) => {
                    clients[one].batch_execute(&insert(&fresh, events)).await.unwrap();
                }
                (2, Some(())) => {
                    let end = if dice.below(4) == 0 { "rollback" } else { "commit" };
                    clients[one].batch_execute(end).await.unwrap();
                    open[one] = None;
                }
                (3..=5, _) => other.batch_execute(&insert(&fresh, events)).await.unwrap(),
                (6, _) => {
                    let many =
                        "select max(nextval({text:outbox_seq})) from generate_series(1, 20000)";
                    other.batch_execute(&fresh.sql(many)).await.unwrap();
                }
                (7, _) => other.batch_execute(&fresh.sql(SUMMARISE)).await.unwrap(),
                _ => {
                    let rows_max = 1 + dice.small(60);
                    for _ in 0..dice.below(20) {
                        reader.page(rows_max).await;
                    }
                }
            }
        }
        for client in clients {
            // What is not open only earns a warning.
            client.batch_execute("commit").await.unwrap();
        }
        for _ in 0..3 {
            while reader.page(50).await {}
        }
        let all = fresh.number("select count(*) from {outbox}").await;
        assert_eq!(reader.found.len(), usize::try_from(all).unwrap(), "seed {seed}");
        late += reader.late;
    }
    assert!(late > 50, "too tame: {late}");
}

/// Ranges that autovacuum has not come to are summed up by whoever makes tables; the last one, to which
/// producers write, is not, and a second time there is nothing to do.
#[tokio::test]
async fn ranges_without_a_sum_are_summed_up() {
    let Some(fresh) = Fresh::made(2).await else { return };
    let sums = "select {outbox_summarize}()::bigint";
    assert_eq!(fresh.number(sums).await, 0, "nothing is there");
    fresh
        .run(
            "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
             select 'order', n, 'order.placed', '{}' from generate_series(1, 20000) n",
        )
        .await;
    fresh.number(sums).await;
    assert_eq!(fresh.number(sums).await, 0, "a second time");
    let left = "select sum(brin_summarize_new_values(i.indexrelid))::bigint
        from pg_index i
        join pg_class c on c.oid = i.indexrelid
        join pg_am a on a.oid = c.relam
        where a.amname = 'brin' and i.indrelid = (
            select t.id::oid from {outbox_tables} t where t.lower = 0)";
    assert_eq!(fresh.number(left).await, 1, "the last range");
}
