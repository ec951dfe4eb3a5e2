//! The whole way: a transaction, the relay, a broker, a consumer with its inbox in PostgreSQL, and the effect, while
//! everything is killed and stopped.
//!
//! `POSTRIDER_TEST_MINUTES=10` goes on for so long, and `POSTRIDER_TEST_SEED` repeats the order of the faults. Each
//! run prints its seed and its ledger.

mod of_kafka;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use postrider_core::{EventId, Invariant};
use postrider_history::{History, Verdict, check};
use postrider_testkit::cluster::Cluster;
use postrider_testkit::dice::{Dice, seconds_to_go_on};
use postrider_testkit::wall_clock::WallClock;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::fault::Fault;
use crate::kafka::Kafka;
use crate::nats::Nats;
use crate::outbox::{Outbox, Store, connect};
use crate::server::Server;
use crate::stage::{LEASE, PATIENCE, signal};

/// Events of one round. Enough that a fault finds some under way.
const ROUND: u32 = 200;
/// Events of a round that had their effect when the fault strikes.
const BEFORE: usize = 30;

/// By how much the wall clock of relays and consumers is wrong.
const STEPS: [&str; 2] = ["-60m", "+10m"];

/// Where relays and consumers write.
const RELAYS: &str = "relays";
const CONSUMERS: &str = "consumers";
/// Lines of each in the message of a test that waited in vain.
const LINES: usize = 30;

struct WholeWay<S> {
    store: Store,
    outbox: Outbox,
    cluster: Cluster,
    server: S,
    folder: TempDir,
    /// What relays and consumers take for the time.
    clock: Option<WallClock>,
    relays: Vec<Child>,
    consumers: Vec<Child>,
    /// What consumers are told besides.
    words: Vec<String>,
    /// Processes that ended and were not told to.
    fallen: u32,
}

impl<S: Server> WholeWay<S> {
    async fn open(store: Store) -> Option<WholeWay<S>> {
        let server = S::start().await?;
        let cluster = Cluster::start(&["fsync = off"]).await?;
        let folder = TempDir::with_prefix("postrider-way-").unwrap();
        let file = folder.path().join("shop.db");
        let outbox = Outbox::make(store, &cluster.url(), file).await;
        // No constraint keeps a second effect out: that is the inbox's work.
        let table = "create table effects (n bigserial, event_id text not null)";
        connect(&cluster.url()).await.batch_execute(table).await.unwrap();
        let clock = WallClock::new(folder.path(), "clock");
        Some(WholeWay {
            store,
            outbox,
            cluster,
            server,
            folder,
            clock,
            relays: Vec::new(),
            consumers: Vec::new(),
            words: Vec::new(),
            fallen: 0,
        })
    }

    fn process(&self, program: &str, name: &str, args: &[&str]) -> Child {
        let log = self.folder.path().join(name);
        let log = std::fs::File::options().append(true).create(true).open(log).unwrap();
        Command::new(program)
            .args(args)
            // Proofs of life are of this test alone.
            .env("TMPDIR", self.folder.path())
            .envs(self.clock.iter().flat_map(WallClock::variables))
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    fn relay(&self) -> Child {
        let lease = LEASE.as_millis().to_string();
        let args = [&*self.outbox.address(), &*self.server.url(), &*lease];
        self.process(env!("CARGO_BIN_EXE_broker-relay"), RELAYS, &args)
    }

    fn consumer(&self) -> Child {
        let (database, server) = (self.cluster.url(), self.server.url());
        let mut args = vec![&*database, &*server];
        args.extend(self.words.iter().map(String::as_str));
        self.process(env!("CARGO_BIN_EXE_broker-consumer"), CONSUMERS, &args)
    }

    /// The last that the processes wrote, and whether they run.
    fn log(&mut self) -> String {
        let mut said = String::new();
        for (name, children) in [(RELAYS, &mut self.relays), (CONSUMERS, &mut self.consumers)] {
            let ended: Vec<_> = children.iter_mut().map(|child| child.try_wait()).collect();
            let text = std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(LINES).collect();
            let last: Vec<&str> = lines.into_iter().rev().collect();
            said += &format!("{name}: {ended:?}\n{}\n", last.join("\n"));
        }
        said
    }

    async fn effects(&self) -> Vec<EventId> {
        let all = "select event_id from effects order by n";
        let rows = connect(&self.cluster.url()).await.query(all, &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0).parse().unwrap()).collect()
    }

    /// Waits until so many different events had their effect.
    async fn acted(&mut self, least: usize) {
        let begun = Instant::now();
        let count = "select count(distinct event_id) from effects";
        let database = connect(&self.cluster.url()).await;
        loop {
            let acted: i64 = database.query_one(count, &[]).await.unwrap().get(0);
            if usize::try_from(acted).unwrap() >= least {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let standing = self.server.standing().await;
                panic!("{acted} of {least} effects\n{standing}\n{}", self.log());
            }
            self.revive();
            // waits: another process acts
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the group has nothing left.
    async fn settled(&mut self) {
        let begun = Instant::now();
        while !self.server.is_settled().await {
            if begun.elapsed() > PATIENCE {
                let standing = self.server.standing().await;
                panic!("the group does not come to rest\n{standing}\n{}", self.log());
            }
            self.revive();
            // waits: the server tells nobody what is settled
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts again what ended by itself, as whoever supervises them does.
    fn revive(&mut self) {
        let fell = |child: &mut Child| child.try_wait().unwrap().is_some();
        for at in 0..self.relays.len() {
            if fell(&mut self.relays[at]) {
                self.relays[at] = self.relay();
                self.fallen += 1;
            }
        }
        for at in 0..self.consumers.len() {
            if fell(&mut self.consumers[at]) {
                self.consumers[at] = self.consumer();
                self.fallen += 1;
            }
        }
    }

    async fn strike(&mut self, fault: Fault, which: usize) {
        match fault {
            Fault::RelayKilled => {
                self.relays[which].kill().await.unwrap();
                self.relays[which] = self.relay();
            }
            Fault::ConsumerKilled => {
                self.consumers[which].kill().await.unwrap();
                self.consumers[which] = self.consumer();
            }
            Fault::ServerKilled => self.server.crash().await,
            Fault::DatabaseKilled => self.cluster.crash().await,
            Fault::Copied => self.server.copy(20).await,
            Fault::ClockStepped => self.step_clock(STEPS[which]),
            Fault::RelayStopped => pause(|name| signal(&self.relays[which], name)).await,
            Fault::ConsumerStopped => pause(|name| signal(&self.consumers[which], name)).await,
            Fault::DatabaseStopped => pause(|name| self.cluster.signal(name)).await,
            Fault::ServerStopped => pause(|name| self.server.signal(name)).await,
        }
    }

    /// Sets the clock of all processes: all of them must go by it.
    fn step_clock(&self, step: &str) {
        let Some(clock) = &self.clock else { return };
        for child in self.relays.iter().chain(&self.consumers) {
            assert!(child.id().is_none_or(WallClock::is_of), "it has another clock");
        }
        clock.set(step);
    }

    /// What was committed against what had its effect.
    async fn judge(&self) -> Verdict {
        let mut history = History::new();
        for event in self.outbox.committed().await {
            history.commit_for(event.id, &event.key, &["ledger"]);
        }
        for id in &self.outbox.rolled_back {
            history.roll_back(*id);
        }
        for id in self.effects().await {
            history.deliver("ledger", id);
            history.effect("", id, "ledger");
        }
        check(&history)
    }
}

/// Something stands still for longer than a lease, and than a delivery is hidden.
async fn pause(tell: impl Fn(&str)) {
    tell("-STOP");
    // waits: that is what standing still means
    tokio::time::sleep(LEASE + LEASE / 2).await;
    tell("-CONT");
}

/// Everything that the promise is about, judged on something.
const PROMISE: [Invariant; 4] =
    [Invariant::NoLoss, Invariant::NoGhost, Invariant::KeyOrder, Invariant::OneEffect];

/// Two relays and two consumers carry events, round after round with a fault in the middle, until each fault was
/// struck and the time is over.
async fn survive<S: Server>(store: Store) {
    let Some(mut way) = WholeWay::<S>::open(store).await else { return };
    let (mut dice, seed) = Dice::from_environment();
    eprintln!("{store} to {}: POSTRIDER_TEST_SEED={seed}", S::NAME);
    way.relays = vec![way.relay(), way.relay()];
    way.consumers = vec![way.consumer(), way.consumer()];
    let mut faults = Fault::of(store).to_vec();
    faults.retain(|fault| *fault != Fault::ClockStepped || S::WRONG_CLOCKS_ARE_BORNE);
    let (begun, mut plan) = (Instant::now(), dice.plan(&faults));
    let going_on = seconds_to_go_on();
    let mut struck: BTreeMap<Fault, u32> = BTreeMap::new();
    let mut in_the_middle = 0;
    while !plan.is_empty() || begun.elapsed().as_secs_f64() < going_on {
        let fault = plan.pop().unwrap_or_else(|| faults[dice.below(faults.len())]);
        let before = way.outbox.written();
        way.outbox.write(ROUND).await;
        way.acted(before + BEFORE).await;
        in_the_middle += u32::from(way.effects().await.len() < before + ROUND as usize);
        way.strike(fault, dice.below(2)).await;
        *struck.entry(fault).or_default() += 1;
    }
    way.acted(way.outbox.written()).await;
    way.server.copy(20).await;
    way.settled().await;
    let (rounds, arrived) = (struck.values().sum::<u32>(), way.server.arrived().await.len());
    let effects = way.effects().await.len();
    eprintln!(
        "{{\"outbox\":\"{}\",\"broker\":\"{}\",\"seed\":{seed},\"seconds\":{},\"rounds\":{rounds},\
         \"in_the_middle\":{in_the_middle},\"faults\":\"{struck:?}\",\"committed\":{},\
         \"rolled_back\":{},\"arrived\":{arrived},\"effects\":{effects},\"fallen\":{}}}",
        way.store,
        S::NAME,
        begun.elapsed().as_secs(),
        way.outbox.written(),
        way.outbox.rolled_back.len(),
        way.fallen
    );
    let verdict = way.judge().await;
    assert!(verdict.holds(), "{verdict}");
    // What nothing happened to proves nothing.
    for invariant in PROMISE {
        assert!(verdict.judged(invariant) > 0, "{invariant} was judged on nothing");
    }
    assert_eq!(struck.len(), faults.len(), "{struck:?}");
    assert!(in_the_middle * 2 >= rounds, "only {in_the_middle} of {rounds} faults had work to hit");
    assert!(arrived > effects, "no duplicate arrived");
    // How many times more is not asserted: what is sent to a server that stands still is there as often as it was tried,
    // and how long that goes on is for the server's client to say. Nor how long a round takes: it ends with the lease of
    // a claim, or with a delivery that comes back. `killing.rs` asserts both where the relay alone decides.
    assert_eq!(effects, way.outbox.written());
}

/// F1, F3, F5, F6, F10 to F12, INV-1 to INV-4: everything is killed and stopped in turn, and messages are there
/// twice; what was committed has its effect once, in its key's order, and nothing else has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_postgres_to_nats_whatever_is_killed() {
    survive::<Nats>(Store::Postgres).await;
}

/// The same from SQLite, with the faults that concern an outbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_sqlite_to_nats_whatever_is_killed() {
    survive::<Nats>(Store::Sqlite).await;
}

/// The same over Kafka: F1, F3, F5, F6, F10, F11, INV-1 to INV-4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_postgres_to_kafka_whatever_is_killed() {
    survive::<Kafka>(Store::Postgres).await;
}

/// The same from SQLite, with the faults that concern an outbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_sqlite_to_kafka_whatever_is_killed() {
    survive::<Kafka>(Store::Sqlite).await;
}

/// What stopping the database rests on: all of it stands still, who is connected and who comes, and goes on where it
/// was. One that stands still ends with its value all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_database_answers_nobody_until_it_is_woken() {
    let Some(cluster) = Cluster::start(&["fsync = off"]).await else { return };
    let database = connect(&cluster.url()).await;
    cluster.signal("-STOP");
    let mut asked = Box::pin(database.query_one("select 1", &[]));
    let moment = Duration::from_millis(500);
    assert!(tokio::time::timeout(moment, &mut asked).await.is_err());
    assert!(tokio::time::timeout(moment, connect(&cluster.url())).await.is_err());
    cluster.signal("-CONT");
    assert_eq!(asked.await.unwrap().get::<_, i32>(0), 1);
    cluster.signal("-STOP");
    drop(cluster);
}

/// Without an inbox the copies have their effects too, and the checker says so.
async fn careless<S: Server>(store: Store) {
    let Some(mut way) = WholeWay::<S>::open(store).await else { return };
    way.words = vec!["careless".to_owned()];
    let (_relay, _consumer) = (way.relay(), way.consumer());
    way.outbox.write(50).await;
    way.acted(50).await;
    way.server.copy(5).await;
    way.settled().await;
    let verdict = way.judge().await;
    assert_eq!(verdict.broken(), [Invariant::OneEffect], "{verdict}");
}

/// The negative control.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_inbox_a_second_effect_is_found() {
    careless::<Nats>(Store::Postgres).await;
    careless::<Kafka>(Store::Sqlite).await;
}
