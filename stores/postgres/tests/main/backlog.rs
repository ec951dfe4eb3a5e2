//! Many partitions before a backlog: read in pages that share statements, whole and in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use postrider_core::source::{FetchRequest, OutboxSource, Page};
use postrider_core::{Cursor, ErrorKind, PartitionId};
use postrider_postgres::PostgresStore;
use tokio::sync::Semaphore;
use tokio_postgres::Client;

use crate::fetch::{after, beginning, numbers};
use crate::support::Fresh;

const PARTITIONS: u16 = 16;

/// Each partition's cursor, and what was read of it.
struct Readers {
    cursors: Vec<Cursor>,
    read: Vec<Vec<u64>>,
    /// The first partition is read when so much was.
    first: usize,
}

impl Readers {
    fn new() -> Readers {
        let all = usize::from(PARTITIONS);
        Readers { cursors: vec![beginning(); all], read: vec![Vec::new(); all], first: 0 }
    }

    /// Pages of all partitions at once, until none has more.
    async fn read(&mut self, store: &PostgresStore, rows_max: u32) {
        self.read_until(store, rows_max, None).await;
    }

    /// The same, and the first partition begins when the others have read so much.
    async fn read_with_a_laggard(&mut self, store: &PostgresStore, rows_max: u32, after: usize) {
        self.first = after;
        self.read(store, rows_max).await;
    }

    /// The same of what is committed before a head.
    async fn read_until(&mut self, store: &PostgresStore, rows_max: u32, head: Option<&Cursor>) {
        let late = usize::from(self.first > 0);
        let mut open: Vec<usize> = (late..self.cursors.len()).collect();
        while !open.is_empty() {
            if self.first > 0 && self.read.iter().map(Vec::len).sum::<usize>() >= self.first {
                self.first = 0;
                open.push(0);
            }
            let asked = open.iter().map(|partition| {
                let mut request = after(&self.cursors[*partition], rows_max, 4 << 20);
                request.lease.partition = PartitionId(u16::try_from(*partition).unwrap());
                request.until = head.cloned();
                async move { fetch(store, &request).await }
            });
            let pages = join_all(asked).await;
            let mut more = Vec::new();
            for (partition, page) in open.into_iter().zip(pages) {
                assert!(page.rows.len() <= rows_max as usize, "a page keeps its limit");
                assert!(numbers(&page).is_sorted(), "a page is in the order of its numbers");
                self.read[partition].extend(numbers(&page));
                if page.more {
                    more.push(partition);
                }
                self.cursors[partition] = page.end;
            }
            open = more;
        }
    }
}

/// One page. A server with too much to do is asked once more, as a relay does.
async fn fetch(store: &PostgresStore, request: &FetchRequest) -> Page {
    match store.fetch(request).await {
        Err(error) if error.kind() == ErrorKind::Timeout => {
            eprintln!("asked once more: {error}");
            store.fetch(request).await.expect("a page, if late")
        }
        page => page.expect("a page"),
    }
}

/// What is committed, by partition, in order.
async fn committed(fresh: &Fresh) -> Vec<Vec<u64>> {
    let all = fresh.sql("select partition, seq from {outbox} order by seq");
    let rows = fresh.connect().await.query(&all, &[]).await.unwrap();
    let mut found: BTreeMap<i16, Vec<u64>> = (0..16).map(|at| (at, Vec::new())).collect();
    for row in rows {
        found.get_mut(&row.get(0)).unwrap().push(u64::try_from(row.get::<_, i64>(1)).unwrap());
    }
    found.into_values().collect()
}

fn insert(rows: u32, payload: u32) -> String {
    format!(
        "insert into {{outbox}} (aggregate_type, aggregate_id, event_type, payload)
        select 'order', n::text, 'order.placed', to_json(repeat('x', {payload}))::text
        from generate_series(1, {rows}) as n"
    )
}

/// R034, R118: a backlog before many partitions is read whole, each partition in order, nothing twice; what was open
/// meanwhile comes when it commits, what was rolled back never.
#[tokio::test]
async fn a_backlog_before_many_partitions_is_read_whole() {
    let Some(fresh) = Fresh::read_for_a(PARTITIONS).await else { return };
    let (store, mut open, mut gone) = (fresh.store(), fresh.connect().await, fresh.connect().await);
    let (open, gone) = (open.transaction().await.unwrap(), gone.transaction().await.unwrap());
    for _ in 0..20 {
        fresh.run(&insert(600, 10)).await;
        open.batch_execute(&fresh.sql(&insert(40, 10))).await.unwrap();
        gone.batch_execute(&fresh.sql(&insert(40, 10))).await.unwrap();
    }
    let mut readers = Readers::new();
    readers.read(&store, 150).await;
    assert_eq!(readers.read, committed(&fresh).await);
    gone.rollback().await.unwrap();
    open.commit().await.unwrap();
    readers.read(&store, 150).await;
    let mut all = committed(&fresh).await;
    assert_eq!(all.iter().map(Vec::len).sum::<usize>(), 20 * 640);
    for (partition, read) in readers.read.iter_mut().enumerate() {
        read.sort_unstable();
        all[partition].sort_unstable();
        assert_eq!(*read, all[partition], "partition {partition}");
    }
}

/// So many events are written ahead of a look at most: else a reader that is slower than eight writers never has all, and is
/// judged by what the machine does.
const AHEAD: usize = 8_000;

/// Writes transactions of up to 160 events, some of them for nothing, some long, as many as are ordered, until no more will
/// be.
async fn write(client: Client, insert: impl Fn(u32) -> String, seed: u32, ordered: &Semaphore) {
    let mut dice = seed;
    let mut below = |end: u32| {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (dice >> 8) % end
    };
    loop {
        let inserts: Vec<u32> = (0..=below(3)).map(|_| 1 + below(40)).collect();
        match ordered.acquire_many(inserts.iter().sum()).await {
            Ok(these) => these.forget(),
            Err(_) => return,
        }
        client.batch_execute("begin; select pg_current_xact_id()").await.unwrap();
        for rows in inserts {
            client.batch_execute(&insert(rows)).await.unwrap();
            if below(20) == 0 {
                // waits: a transaction that is open while others draw higher numbers and commit
                tokio::time::sleep(Duration::from_millis(u64::from(below(400)))).await;
            }
        }
        let end = if below(5) == 0 { "rollback" } else { "commit" };
        client.batch_execute(end).await.unwrap();
    }
}

/// How many numbers the sequence has given.
async fn given(fresh: &Fresh) -> i64 {
    let given = "select coalesce(pg_sequence_last_value({text:outbox_seq}::regclass), 0)";
    fresh.number(given).await
}

/// R118, INV-1: while writers commit out of order, roll back, and stay open, what gathers between two looks is read: all of
/// it, and nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_others_write() {
    const LOOKS: usize = 12;
    let Some(fresh) = Fresh::read_for_a(PARTITIONS).await else { return };
    let store = fresh.store();
    let ordered = Arc::new(Semaphore::new(0));
    let mut writers = tokio::task::JoinSet::new();
    for seed in 1..=8 {
        let (client, ordered) = (fresh.connect().await, Arc::clone(&ordered));
        let text = fresh.sql(&insert(987_654, 10));
        let of = move |rows: u32| text.replace("987654", &rows.to_string());
        writers.spawn(async move { write(client, of, seed, &ordered).await });
    }
    let lease = after(&beginning(), 1, 1).lease;
    let mut readers = Readers::new();
    for look in 0..LOOKS {
        let before = given(&fresh).await;
        ordered.add_permits(AHEAD - ordered.available_permits());
        while given(&fresh).await < before + 3_000 {
            if let Some(writer) = writers.try_join_next() {
                writer.expect("they write until they are told to end");
            }
            // waits: for a backlog, by its size
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Every other time what is there now, and nothing later.
        let head =
            if look % 2 == 0 { None } else { Some(store.head(&lease).await.expect("a head")) };
        readers.read_until(&store, 60, head.as_ref()).await;
    }
    ordered.close();
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    readers.read(&store, 60).await;
    let late: usize =
        readers.read.iter().map(|read| read.windows(2).filter(|two| two[0] > two[1]).count()).sum();
    assert!(late > 0, "something committed after a higher number was read");
    for (partition, all) in committed(&fresh).await.into_iter().enumerate() {
        readers.read[partition].sort_unstable();
        assert_eq!(readers.read[partition], all, "partition {partition}");
    }
}

/// INV-6: where rows become larger than expected, and back, none is passed over; nor for one who begins late.
#[tokio::test]
async fn rows_that_become_larger_are_read_whole() {
    let Some(fresh) = Fresh::read_for_a(PARTITIONS).await else { return };
    let store = fresh.store();
    // Across the end of a table as well.
    fresh.run("select setval({text:outbox_seq}, 1048576 - 4000)").await;
    for payload in [10, 10, 3_000, 10] {
        fresh.run(&insert(6_000, payload)).await;
    }
    let all = committed(&fresh).await;
    for late in [0, 4_000, 9_000] {
        let mut readers = Readers::new();
        readers.read_with_a_laggard(&store, 1_000, late).await;
        assert_eq!(readers.read, all);
    }
}

/// One partition with nearly all events does not keep the others' pages, nor its own, from their limits.
#[tokio::test]
async fn a_partition_may_have_most_of_a_backlog() {
    let Some(fresh) = Fresh::read_for_a(PARTITIONS).await else { return };
    let store = fresh.store();
    for _ in 0..10 {
        fresh.run(&insert(500, 10)).await;
        fresh.run(&insert(1_500, 10).replace("n::text", "'hot'")).await;
    }
    for rows_max in [20, 100, 1_000] {
        let mut readers = Readers::new();
        readers.read(&store, rows_max).await;
        assert_eq!(readers.read, committed(&fresh).await, "{rows_max} rows a page");
    }
}
