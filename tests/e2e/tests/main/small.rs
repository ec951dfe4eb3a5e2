//! A small machine, and small promises: little memory, a tenth of a processor, a broker that hangs,
//! two outboxes in one process.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, EventId, NewEvent, Outcome, Outgoing, Result,
};
use postrider_e2e::{PLACED, destination};
use postrider_local::LocalBroker;
use postrider_relay::{Ending, Relay, RelayHandle, Target};
use postrider_sqlite::{Outbox, SqliteStore};
use rusqlite::Connection;
use tokio::sync::Notify;

use crate::evidence::{OF_A_RELAY, Witness, assert_holds};
use crate::process::{Ended, Process};
use crate::stage::{Stage, number};

/// How long a throttled relay may take without any progress.
#[cfg(target_os = "linux")]
const STANDS_STILL_MAX: Duration = Duration::from_secs(120);

/// What waits for the relay of a small machine.
const BACKLOG: u32 = 20_000;

/// Commits orders with their events, all in one transaction.
fn place(stage: &Stage, orders: u32) {
    let mut shop = stage.shop();
    let tx = shop.transaction().expect("a transaction");
    for n in 0..orders {
        let key = (n % 500).to_string();
        let event = NewEvent::new("order", &key, PLACED).json(&"x".repeat(200)).expect("an event");
        let id = event.event().id.to_string();
        tx.prepare_cached(include_str!("../../sql/place_order.sql"))
            .and_then(|mut statement| statement.execute((format!("order/{key}"), id)))
            .expect("an order");
        Outbox::new().enqueue(&tx, &event).expect("an event");
    }
    tx.commit().expect("the orders");
}

/// Lets a process have so much memory for its data.
#[cfg(target_os = "linux")]
fn limit_memory(process: &Process, bytes: u64) {
    use rustix::process::{Resource, Rlimit, prlimit};
    let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
    prlimit(Some(process.pid()), Resource::Data, limit).expect("the limit");
}

/// How long the threads of a process have had a processor, in all.
#[cfg(target_os = "linux")]
fn had_a_processor(process: &Process) -> Duration {
    let tasks = format!("/proc/{}/task", process.pid().as_raw_nonzero());
    let had = |task: std::fs::DirEntry| {
        // A thread that has ended meanwhile has no file, and needs no more of the time.
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
    };
    let tasks = std::fs::read_dir(tasks).into_iter().flatten().flatten();
    Duration::from_nanos(tasks.map(had).sum())
}

/// Lets a process have a tenth of a processor until it ends, as a quota does: a share of what the machine gives it, however
/// slow that is. It has to get on.
#[cfg(target_os = "linux")]
async fn throttle(process: &mut Process, stage: &Stage) {
    const RUN: Duration = Duration::from_millis(10);
    let (mut since, mut before) = (Instant::now(), 0);
    loop {
        let had = had_a_processor(process);
        process.resume();
        let mut ended = false;
        let until = Instant::now() + 20 * RUN;
        while Instant::now() < until && had_a_processor(process).saturating_sub(had) < RUN {
            // waits: its share of the time, or its last word
            let word = process.listen(RUN / 4).await;
            ended |= word.is_some_and(|word| word.starts_with("ended"));
        }
        if ended {
            return;
        }
        process.pause();
        if since.elapsed() > STANDS_STILL_MAX / 8 {
            let position = stage.position();
            if position > before {
                (since, before) = (Instant::now(), position);
            }
            let stands = since.elapsed();
            assert!(stands < STANDS_STILL_MAX, "at {position}: {:?}", process.heard.last());
        }
        // waits: the other nine tenths
        tokio::time::sleep(9 * RUN).await;
    }
}

/// F40: with 256 MiB and a tenth of a processor a relay delivers a backlog of 20,000 events, keeps
/// its lease beside another relay that would take it, and ends as it should.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_small_machine_drains_its_backlog() {
    let stage = Stage::new();
    place(&stage, BACKLOG);
    // The defaults' lease.
    let args = ["--lease-ms", "15000", "--heartbeat-ms", "3000"];
    let once = [&args[..], &["--once", "yes", "--hold", "after_acquire:1"]].concat();
    let mut small = stage.play("relay", &once).await;
    small.reached().await;
    limit_memory(&small, 256 << 20);
    let mut rival = stage.play("relay", &args).await;
    rival.hear("that it stands by", |line| line.starts_with("health Standby")).await;
    small.release().await;
    throttle(&mut small, &stage).await;
    let ended = small.ended().await;
    assert_eq!(ended.code, Some(0), "{:?}", ended.heard.last());
    let health = ended.all("health").pop().expect("a last word on its health");
    assert!(health.contains("lost=0 fenced=0"), "{health}");
    assert!(health.contains(&format!("delivered={BACKLOG}")), "{health}");
    let taken = number(&stage.shop(), "select token from outbox_lease");
    assert!((1..=2).contains(&taken), "the lease was taken {taken} times");
    assert_eq!(rival.finish().await.code, Some(0));
    assert_eq!(stage.position(), u64::from(BACKLOG));
    assert_eq!(stage.log().await.len() as u32, BACKLOG);
    assert_holds(&Witness::default().judge(&stage).await.1, &OF_A_RELAY);
}

/// The control of the test before: a limit below what it needs ends it, and a relay with more
/// delivers what is left.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn too_little_memory_is_noticed_and_loses_nothing() {
    let stage = Stage::new();
    place(&stage, 2_000);
    let mut small = stage.play("relay", &["--hold", "after_acquire:1", "--once", "yes"]).await;
    small.reached().await;
    limit_memory(&small, 1 << 20);
    small.release().await;
    let Ended { code, heard } = small.ended().await;
    assert_ne!(code, Some(0), "{heard:#?}");
    stage.drain().await;
    assert_holds(&Witness::default().judge(&stage).await.1, &OF_A_RELAY);
}

/// A broker that takes a batch and does not answer until it is told to.
struct Hanging {
    inner: LocalBroker,
    asked: Notify,
    answer: Notify,
}

impl Broker for Hanging {
    fn capabilities(&self) -> BrokerCapabilities {
        self.inner.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async move {
            self.asked.notify_one();
            self.answer.notified().await;
            self.answer.notify_one();
            self.inner.publish(batch).await
        })
    }
}

/// Writes, and empties the log of writes: refused at once while anybody writes, or reads an old
/// state.
fn write_at_once(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::ZERO)?;
    connection.execute_batch(
        "begin immediate;
        insert into orders (key, event_id) values ('order/0', 'none');
        delete from orders where event_id = 'none';
        commit",
    )?;
    let busy: bool =
        connection.query_row("pragma wal_checkpoint(truncate)", (), |row| row.get(0))?;
    match busy {
        true => Err(rusqlite::Error::QueryReturnedNoRows),
        false => Ok(()),
    }
}

async fn embedded(shop: &Path, broker: Arc<dyn Broker>, target: Target) -> RelayHandle {
    let source = Arc::new(SqliteStore::new(shop).expect("a store"));
    let relay = Relay::builder(source).destination(destination().expect("a definition"), broker);
    relay.target(target).start().await.expect("a relay")
}

/// R116: while a publish hangs, neither a write nor an old state of the database is held: another
/// connection writes and truncates the log without waiting.
#[tokio::test]
async fn a_publish_that_hangs_holds_no_transaction() {
    let stage = Stage::new();
    place(&stage, 50);
    let hanging =
        Arc::new(Hanging { inner: stage.queue(), asked: Notify::new(), answer: Notify::new() });
    let broker: Arc<dyn Broker> = Arc::clone(&hanging) as Arc<dyn Broker>;
    let relay = embedded(&stage.files.shop, broker, Target::Once).await;
    hanging.asked.notified().await;
    let shop = stage.shop();
    let mut tries = 0;
    // A heartbeat or the search for due events may write in this very moment.
    while let Err(error) = write_at_once(&shop) {
        tries += 1;
        assert!(tries < 50, "somebody holds the database: {error}");
        // waits: a short statement of the relay gives no signal
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(stage.log().await.len(), 0, "it hangs still");
    for control in ["begin immediate", "begin; select count(*) from orders"] {
        let other = stage.shop();
        other.execute_batch(control).expect("a transaction");
        // Something behind the other's state, so that it is an old one.
        let _ = shop.execute("insert into orders (key, event_id) values ('order/0', 'none')", ());
        write_at_once(&shop).expect_err(control);
        other.execute_batch("rollback").expect("the end of it");
        let _ = shop.execute("delete from orders where event_id = 'none'", ());
    }
    hanging.answer.notify_one();
    assert_eq!(relay.stopped().await.ending, Some(Ending::Done));
    assert_eq!(stage.log().await.len(), 50);
}

/// R021: one process serves two outboxes, each a database with a relay of its own, and neither sees
/// the other's events.
#[tokio::test]
async fn two_outboxes_in_one_process_keep_apart() {
    let stages = [Stage::new(), Stage::new()];
    let mut relays = Vec::new();
    for (stage, orders) in stages.iter().zip([30, 50]) {
        place(stage, orders);
        let broker = Arc::new(stage.queue());
        relays.push(embedded(&stage.files.shop, broker, Target::Once).await);
    }
    for relay in relays {
        assert_eq!(relay.stopped().await.ending, Some(Ending::Done));
    }
    for stage in &stages {
        let ids: BTreeSet<EventId> = stage.log().await.iter().map(|one| one.event.id).collect();
        assert_eq!(ids, crate::evidence::placed(stage));
        assert_holds(&Witness::default().judge(stage).await.1, &OF_A_RELAY);
    }
}
