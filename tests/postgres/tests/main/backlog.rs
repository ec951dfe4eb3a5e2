//! Load of a kind that hurts: one hot key, a long backlog, a stranger's transaction that does not end.
//!
//! The gate plays them for seconds; `POSTRIDER_TEST_BACKLOG` and `POSTRIDER_TEST_OPEN` ask for more.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::stage::{PATIENCE, Stage, TRIES_MAX, asked, peak_memory, quantile};

/// What a relay may have of memory, with any backlog, in MiB.
const MEMORY_MAX: u64 = 256;

/// Events of a long backlog in the gate.
const BACKLOG: u32 = 60_000;

/// Bytes of all its payloads together, which are 5,000 of each event in the gate: 286 MiB, so that a relay that loads all of it
/// has more than [`MEMORY_MAX`] by them alone, whatever else it keeps of an event; and twelve times what windows hold. Tables
/// have them compressed.
const PAYLOADS: u32 = 300_000_000;

/// The largest payload, where somebody asks for a short backlog: an event takes 1 MiB.
const PAYLOAD_MAX: u32 = 1_000_000;

const SECOND: i64 = 1_000_000;

/// The lines of a record that grows, each byte of it read once.
struct Lines {
    record: PathBuf,
    read: u64,
    count: usize,
}

impl Lines {
    fn of(record: PathBuf) -> Lines {
        Lines { record, read: 0, count: 0 }
    }

    /// How many there are by now.
    fn count(&mut self) -> usize {
        let mut record = File::open(&self.record).expect("a record");
        record.seek(SeekFrom::Start(self.read)).expect("what was read is there");
        let mut piece = vec![0; 1 << 20];
        loop {
            let length = record.read(&mut piece).expect("it can be read");
            if length == 0 {
                return self.count;
            }
            self.read += length as u64;
            self.count += piece[..length].iter().filter(|byte| **byte == b'\n').count();
        }
    }
}

/// Commits a hundred events ten times a second.
async fn a_thousand_a_second(stage: &mut Stage, span: Duration, key: &str) {
    let mut clock = tokio::time::interval(Duration::from_millis(100));
    let began = Instant::now();
    while began.elapsed() < span {
        clock.tick().await;
        stage.write_by(100, key).await.expect("producers are not held up");
    }
}

/// F37: nine of ten events are of one key, a thousand a second. Nothing is lost, and the other keys are a second
/// late at most, for 99 of 100 events.
#[tokio::test]
async fn one_key_may_be_hot() {
    let key = "case when n % 10 = 0 then 'k' || (n / 10 % 50) else 'hot' end";
    for attempt in 1..=TRIES_MAX {
        let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
        let relay = stage.relay(&stage.cluster.url(), &[]);
        stage.write(100).await;
        stage.all_arrive().await;
        a_thousand_a_second(&mut stage, Duration::from_secs(5), key).await;
        stage.all_arrive().await;
        let (committed, arrived) = stage.judge().await;
        let others = stage.lags(|row| row.key.starts_with('k')).await;
        let (half, most) = (quantile(&others, 0.5), quantile(&others, 0.99));
        let memory = peak_memory(&relay);
        eprintln!(
            "{committed} committed, {arrived} arrived; {} of other keys: p50 {} ms, p99 {} ms; {memory} MiB",
            others.len(),
            half / 1_000,
            most / 1_000,
        );
        assert!(others.len() > 300 && memory < MEMORY_MAX);
        if most < SECOND {
            return;
        }
        assert!(attempt < TRIES_MAX, "a hot key makes others late");
    }
}

/// F38: a relay starts before a long backlog. The first event is out within 5 s, memory keeps to its bound, and
/// everything arrives in order.
#[tokio::test]
async fn a_backlog_may_be_long() {
    for attempt in 1..=TRIES_MAX {
        let Some(first) = drained().await else { return };
        if first < Duration::from_secs(5) {
            return;
        }
        assert!(attempt < TRIES_MAX, "the first is out after {first:?}");
    }
}

/// Drains a long backlog, and says after how long the first of it was out.
async fn drained() -> Option<Duration> {
    let size = asked("POSTRIDER_TEST_BACKLOG", BACKLOG);
    let length = PAYLOADS.div_ceil(size).min(PAYLOAD_MAX);
    let payload = format!("'\"' || repeat('x', {length}) || '\"'");
    let mut stage = Stage::open(&["fsync = off", "max_wal_size = '4GB'"]).await?;
    let written = Instant::now();
    for from in (0..size).step_by(50_000) {
        let count = 50_000.min(size - from);
        let said = stage.write_with(count, "(n % 10000)::text", &payload).await;
        said.expect("it is written");
    }
    let written = written.elapsed();
    let began = Instant::now();
    let mut relay = stage.relay(&stage.cluster.url(), &[]);
    while !stage.has_arrivals() {
        assert!(began.elapsed() < PATIENCE, "nothing arrives");
        // waits: another process writes the record
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let first = began.elapsed();
    let mut lines = Lines::of(stage.record());
    while lines.count() < size as usize {
        assert_eq!(relay.try_wait().unwrap(), None, "it goes on");
        assert!(
            began.elapsed() < PATIENCE.max(Duration::from_millis(u64::from(size))),
            "it is slow"
        );
        // waits: another process writes the record
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (all, memory) = (began.elapsed(), peak_memory(&relay));
    let (committed, arrived) = stage.judge().await;
    eprintln!(
        "{committed} committed in {written:?}; the first after {first:?}, all {arrived} after {all:?}; {memory} MiB"
    );
    assert!(memory < MEMORY_MAX);
    Some(first)
}

/// F16: a stranger's transaction that has written, and another that holds a snapshot, stay open while a
/// thousand events a second are written. Nobody waits for them: what is delivered at the end is no later than
/// at the beginning, by a second at most. `POSTRIDER_TEST_OPEN=600` holds them for ten minutes.
#[tokio::test]
async fn a_strangers_transaction_may_be_long() {
    let span = Duration::from_secs(asked("POSTRIDER_TEST_OPEN", 6).into());
    for attempt in 1..=TRIES_MAX {
        let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
        let relay = stage.relay(&stage.cluster.url(), &[]);
        stage.write(100).await;
        stage.all_arrive().await;
        let writes = stage.session("create table stranger (n integer)").await;
        writes.batch_execute("begin; insert into stranger values (1)").await.unwrap();
        let looks = stage
            .session("begin isolation level repeatable read; select count(*) from {outbox}")
            .await;
        a_thousand_a_second(&mut stage, span, "(n % 500)::text").await;
        stage.all_arrive().await;
        for stranger in [writes, looks] {
            stranger.batch_execute("commit").await.expect("it was open all the time");
        }
        let (committed, arrived) = stage.judge().await;
        let quarter = committed / 4;
        let late = i32::try_from(committed - quarter).unwrap();
        let early = stage.lags(|row| row.n <= i32::try_from(quarter).unwrap()).await;
        let at_the_end = stage.lags(|row| row.n > late).await;
        let (begins, ends) = (quantile(&early, 0.99), quantile(&at_the_end, 0.99));
        eprintln!(
            "open for {span:?}: {committed} committed, {arrived} arrived; p50 {} ms and p99 {} ms in the first \
             quarter, p50 {} ms and p99 {} ms in the last; {} MiB",
            quantile(&early, 0.5) / 1_000,
            begins / 1_000,
            quantile(&at_the_end, 0.5) / 1_000,
            ends / 1_000,
            peak_memory(&relay)
        );
        if ends < begins + SECOND {
            return;
        }
        assert!(attempt < TRIES_MAX, "it grows late");
    }
}

/// F17, R118: a producer's transaction stays open with an event that is not committed. Whatever others commit behind it
/// arrives meanwhile, also by relays that follow one that was killed and know of the hole by its saved cursor alone; the
/// event itself arrives when it is committed, once, and no earlier.
#[tokio::test]
async fn a_producer_may_hold_its_event_for_long() {
    let Some(mut stage) = Stage::open(&["fsync = off"]).await else { return };
    let mut relay = stage.relay(&stage.cluster.url(), &[]);
    stage.write(100).await;
    stage.all_arrive().await;
    let hold = "begin; insert into {outbox}
        (aggregate_type, aggregate_id, event_type, event_version, payload)
        values ('account', 'held', 'account.moved', 1000000, '1')";
    let holder = stage.session(hold).await;
    for _ in 0..3 {
        stage.write(500).await;
        // All that anybody else can see: of every key, and with higher numbers.
        stage.all_arrive().await;
        stage.all_settled().await;
        relay.kill().await.unwrap();
        relay = stage.relay(&stage.cluster.url(), &[]);
    }
    holder.batch_execute("commit").await.expect("it was open all the time");
    stage.all_arrive().await;
    let (committed, arrived) = stage.judge().await;
    eprintln!("{committed} committed, {arrived} arrived");
    // What was saved was saved beside the hole: no relay sends it again.
    assert_eq!((committed, arrived), (1_601, 1_601));
    drop(relay);
}
