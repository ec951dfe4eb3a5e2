//! A default table that grew while no relay made tables ahead: it is split off, and nobody waits for that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider_core::operate::{Level, Operator};
use postrider_core::source::{OutboxSource, RetireRequest};
use postrider_core::{Code, Timestamp};
use postrider_postgres::Layout;
use tokio::task::JoinHandle;

use super::Play;
use crate::relay::{read, stands};
use crate::support::id;
use crate::undisturbed::Undisturbed;

/// What the sequence leaps over.
const LEAP: i64 = 1 << 40;

const INSERT: &str = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
    values ('order', '1', 't', '{}')";

/// Takes one step, on a connection of its own: as after a crash.
async fn step(play: &Play) -> Result<String, String> {
    let client = play.fresh.connect().await;
    match client.query_one(&play.fresh.sql("select {outbox_split}(8192)"), &[]).await {
        Ok(row) => Ok(row.get(0)),
        Err(error) => Err(error.code().map(|code| code.code().to_owned()).unwrap_or_default()),
    }
}

/// Takes a step that others may be in the way of for a moment.
async fn step_at_last(play: &Play) -> String {
    for _ in 0..50 {
        match step(play).await {
            Ok(taken) => return taken,
            Err(state) => assert_eq!(state, "55P03", "nothing but a lock that is not free"),
        }
    }
    panic!("somebody was in the way each time");
}

/// Producers that commit one event after the other until they are told to stop.
struct Producers {
    stop: Arc<AtomicBool>,
    longest: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<u64>>,
    control: Undisturbed,
}

impl Producers {
    async fn start(play: &Play, count: usize) -> Producers {
        let (stop, longest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = Vec::new();
        for number in 0..count {
            let (client, insert) = (play.fresh.connect().await, play.fresh.sql(INSERT));
            let (stop, longest) = (Arc::clone(&stop), Arc::clone(&longest));
            let end = if number % 3 == 2 { "rollback" } else { "commit" };
            let text = format!("begin; {insert}; {end}");
            tasks.push(tokio::spawn(async move {
                let mut committed = 0;
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    client.batch_execute(&text).await.expect("no producer is refused");
                    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    longest.fetch_max(took, Ordering::Relaxed);
                    committed += u64::from(end == "commit");
                    // waits: producers that take the whole server say less of how long one waits
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                committed
            }));
        }
        Producers { stop, longest, tasks, control: Undisturbed::start(&play.fresh).await }
    }

    /// How many events were committed.
    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut committed = 0;
        for task in self.tasks {
            committed += task.await.expect("a producer");
        }
        let longest = Duration::from_millis(self.longest.load(Ordering::Relaxed));
        let control = self.control.end().await;
        assert!(
            longest < Duration::from_secs(1) + control,
            "a producer waited {longest:?}, and {control:?} where nobody was in its way"
        );
        committed
    }
}

/// Everything is passed; what is retired is whatever is there now.
async fn retire_all(play: &Play) {
    play.fresh
        .run(
            "update {outbox_cursor} set floor = coalesce(l.seq, floor), ground = coalesce(l.seq, ground)
            from (select max(seq) as seq from {outbox}) l",
        )
        .await;
    let request = RetireRequest { older_than: Duration::ZERO, ..play.request(10_000) };
    for _ in 0..100 {
        if !play.store.retire(&request).await.expect("retire").more {
            return;
        }
    }
    panic!("it does not end");
}

/// R101: producers commit, and a relay reads, while the default table becomes a table as the others; none is
/// refused, none waits a second, none of the events is lost or read twice. Each step is taken by somebody else.
#[tokio::test]
async fn a_default_table_that_grew_is_split_off_while_producers_go_on() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old(20_000, "30 days").await;
    let open = play.fresh.connect().await;
    let begin = format!("begin; {}", play.fresh.sql(INSERT));
    open.batch_execute(&begin).await.expect("an open transaction");
    let producers = Producers::start(&play, 6).await;
    assert_eq!(step(&play).await, Err("55P03".to_owned()), "somebody has written there");
    open.batch_execute("commit").await.expect("commit");
    let mut after = stands(&play.store, &play.lease, "a").await;
    let mut seen = Vec::new();
    let mut steps = Vec::new();
    for _ in 0..5 {
        let rows = read(&play.store, &play.lease, &after).await;
        after = rows.last().map_or(after, |row| row.cursor.clone());
        seen.extend(rows.iter().map(|row| row.row.seq));
        steps.push(step_at_last(&play).await);
    }
    assert_eq!(steps, ["bounded", "proven", "split", "leapt", "none"]);
    let given = play.fresh.number("select last_value from {outbox_seq}").await;
    // So that some are written behind the leap in any case.
    while play.fresh.number("select last_value from {outbox_seq}").await < given + 50 {
        // waits: for the producers, who are told nothing.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let committed = producers.end().await;
    let rows = read(&play.store, &play.lease, &after).await;
    seen.extend(rows.iter().map(|row| row.row.seq));
    let all = i64::try_from(committed).expect("few") + 20_001;
    assert_eq!(play.fresh.number("select count(*) from {outbox}").await, all);
    let different: BTreeSet<u64> = seen.iter().copied().collect();
    assert_eq!((seen.len(), different.len()), (all as usize, all as usize));
    let upper = play.fresh.number("select max(lower) from {outbox_tables}").await - 2 * 4_096;
    assert!(upper > LEAP);
    let tables = play.tables().await;
    assert!(tables.starts_with(&format!("0* 4096* 8192* 12288* {upper}*")), "{tables}");
    assert!(tables.ends_with("rest"), "{tables}");
    super::published::all_can_be_published(&play).await;
    // The gap counts nowhere.
    let overview = play.store.overview().await.expect("overview");
    assert!(overview.kept < 1_000_000 && overview.enqueued < 1_000_000, "{overview:?}");
    let pending: Vec<u64> = overview.destinations.iter().map(|of| of.pending).collect();
    assert!(pending.iter().all(|pending| *pending < 1_000_000), "{pending:?}");
    // Retention empties it whole, as any other.
    retire_all(&play).await;
    assert_eq!(play.history_start().await, upper.max(play.history_start().await));
    let tables = play.tables().await;
    assert!(tables.contains(&format!("12288 {upper}")), "{tables}");
}

/// The recount crosses the gap, and finds what nobody counted behind it.
#[tokio::test]
async fn the_recount_leaps_too() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old(13_000, "1 day").await;
    for taken in ["bounded", "proven", "split", "leapt"] {
        assert_eq!(step_at_last(&play).await, taken);
    }
    play.old(10, "1 day").await;
    play.fresh
        .run(
            "update {outbox_cursor} set floor = coalesce(l.seq, floor), ground = coalesce(l.seq, ground)
            from (select max(seq) as seq from {outbox}) l",
        )
        .await;
    let differences = play.store.recount(&id("a")).await.expect("recount").differences;
    let last = differences.last().expect("nobody counted them");
    assert!(last.first > LEAP as u64 && last.found > 0, "{last:?}");
    let found: u64 = differences.iter().map(|of| of.found).sum();
    assert_eq!(found, 13_010);
}

/// R104: a producer's watermark counts no number that the sequence leapt over, whether or not somebody reads.
#[tokio::test]
async fn the_backlog_leaps_too() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old(13_000, "1 day").await;
    for taken in ["bounded", "proven", "split", "leapt"] {
        assert_eq!(step_at_last(&play).await, taken);
    }
    let backlog = async || play.fresh.number("select {outbox_backlog}()").await;
    assert_eq!(backlog().await, 13_000, "nobody has written behind the leap");
    play.old(10, "1 day").await;
    assert_eq!(backlog().await, 13_010);
    // Before the leap, in what it left out, and behind it.
    for (passed, left) in [("min(seq) + 12989", 20), ("max(seq) - 1000", 10), ("max(seq) - 3", 3)] {
        let floor =
            format!("update {{outbox_cursor}} set floor = (select {passed} from {{outbox}})");
        play.fresh.run(&floor).await;
        assert_eq!(backlog().await, left, "{passed}");
    }
    play.fresh.run("delete from {outbox_destination}").await;
    assert_eq!(backlog().await, 13_010, "nobody has read anything");
}

/// Where older numbers stand in the default table as well, retention has to take them first; and a mark that
/// was left behind does no harm.
#[tokio::test]
async fn what_cannot_be_split_yet_is_left_as_it_is() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old(13_000, "30 days").await;
    assert_eq!(play.fresh.number("select {outbox_ahead}()::bigint").await, 2);
    play.old(16_000, "30 days").await;
    assert_eq!(play.tables().await, "0* 4096* 8192* 20480* 24576* rest*");
    assert_eq!(step(&play).await.as_deref(), Ok("mixed"));
    // First its rows go, one by one; then the empty file.
    retire_all(&play).await;
    retire_all(&play).await;
    assert_eq!(step(&play).await.as_deref(), Ok("none"));
    let ahead = "select {outbox_ahead}()::bigint";
    assert!(play.fresh.number(ahead).await > 0);
    let top = play.fresh.number("select max(upper) from {outbox_tables}").await;
    play.old(20_000, "30 days").await;
    assert_eq!(step(&play).await.as_deref(), Ok("bounded"));
    let bound = "alter table {outbox_default} drop constraint postrider_split;
        alter table {outbox_default} add constraint postrider_split check (seq >= 5) not valid";
    play.fresh.run(bound).await;
    assert_eq!(step(&play).await.as_deref(), Ok("bounded"), "it was said of another time");
    for taken in ["proven", "split", "leapt", "none"] {
        assert_eq!(step(&play).await.as_deref(), Ok(taken));
    }
    assert!(play.tables().await.contains(&format!("{top}*")), "{}", play.tables().await);
}

/// A relay does it by itself, and the doctor says so before.
#[tokio::test]
async fn a_relay_splits_what_grew_and_the_doctor_says_it() {
    let Some(play) = Play::new(Layout::Partitioned).await else { return };
    play.old(13_000, "1 day").await;
    let filled = "insert into {outbox} (aggregate_type, aggregate_id, event_type, payload)
        select 'order', i % 100, 't', '\"' || repeat('x', 1700) || '\"' from generate_series(1, 40000) i";
    play.fresh.run(filled).await;
    let findings = play.store.doctor(Timestamp::now()).await.expect("an examination");
    let found = findings.iter().find(|finding| finding.subject == "default table").unwrap();
    assert_eq!((found.level, found.code), (Level::Warning, Some(Code::DefaultTableGrew)));
    assert!(found.advice.is_some(), "{found:?}");
    play.renew().await;
    let until = Instant::now() + Duration::from_secs(60);
    let given = "select last_value from {outbox_seq}";
    while play.fresh.number(given).await < LEAP && Instant::now() < until {
        // waits: it is done in a task beside the renewal.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    play.old(1, "1 day").await;
    assert!(play.fresh.number(given).await > LEAP, "{}", play.tables().await);
    let findings = play.store.doctor(Timestamp::now()).await.expect("an examination");
    for subject in ["default table", "tables ahead"] {
        let found = findings.iter().find(|finding| finding.subject == subject).unwrap();
        assert_eq!(found.level, Level::Good, "{found:?}");
    }
}
