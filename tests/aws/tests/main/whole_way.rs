//! The whole way, round after round with a fault in the middle of each.
//!
//! `POSTRIDER_TEST_MINUTES=10` goes on for so long, and `POSTRIDER_TEST_SEED` repeats the order of the faults. Each
//! run prints its seed and its ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::{Duration, Instant};

use postrider_core::{Event, EventId, Invariant};
use postrider_history::{History, Verdict, check};
use postrider_testkit::services;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::bank::Bank;
use crate::fault::{Dice, Fault};
use crate::line::Line;
use crate::queue::{self, Queue};

/// Takeovers happen within such a lease.
const LEASE: Duration = Duration::from_secs(4);
/// How long something stands still, or is away: longer than a lease, and than a message is hidden.
const STILL: Duration = Duration::from_secs(6);
/// A loaded machine takes long.
const PATIENCE: Duration = Duration::from_secs(90);
/// Events of one round. Enough that a fault finds some under way.
const ROUND: u32 = 40;
/// Events of a round that had their effect when the fault strikes.
const BEFORE: usize = 10;
/// How many come twice when they are copied.
const COPIES: usize = 20;
/// Lines of the processes in the message of a test that waited in vain.
const LINES: usize = 30;

struct WholeWay {
    bank: Bank,
    queue: Queue,
    tables_line: Line,
    queue_line: Line,
    folder: TempDir,
    relays: Vec<Child>,
    consumers: Vec<Child>,
    copied: usize,
    /// Processes that ended and were not told to.
    fallen: u32,
}

impl WholeWay {
    async fn open() -> Option<WholeWay> {
        let (tables, aws) = match (services::url("ddb"), services::url("aws")) {
            (Ok(tables), Ok(aws)) => (tables, aws),
            (Err(reason), _) | (_, Err(reason)) => {
                println!("skipped: the whole way on DynamoDB and SQS: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
                return None;
            }
        };
        Some(WholeWay {
            bank: Bank::make(&tables).await,
            queue: Queue::make(&aws).await,
            tables_line: Line::to(&tables).await,
            queue_line: Line::to(&aws).await,
            folder: TempDir::with_prefix("postrider-aws-").unwrap(),
            relays: Vec::new(),
            consumers: Vec::new(),
            copied: 0,
            fallen: 0,
        })
    }

    fn process(&self, program: &str, more: &[&str]) -> Child {
        let log = self.folder.path().join("log");
        let log = std::fs::File::options().append(true).create(true).open(log).unwrap();
        Command::new(program)
            .args([self.tables_line.address(), &*self.bank.prefix])
            .args([self.queue_line.address(), &*self.queue.key, queue::NAME])
            .args(more)
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// The first reads the stream and the index, the second the index alone.
    fn relay(&self, which: usize) -> Child {
        let lease = LEASE.as_millis().to_string();
        let words = [&*lease, "polling"];
        self.process(env!("CARGO_BIN_EXE_aws-relay"), &words[..=which])
    }

    fn consumer(&self, more: &[&str]) -> Child {
        self.process(env!("CARGO_BIN_EXE_aws-consumer"), more)
    }

    /// Waits until so many different events had their effect.
    async fn acted(&mut self, least: usize) -> usize {
        let begun = Instant::now();
        loop {
            let acted = self.bank.effects().await.into_iter().collect::<BTreeSet<_>>().len();
            if acted >= least {
                return acted;
            }
            assert!(begun.elapsed() < PATIENCE, "{acted} of {least} effects\n{}", self.log());
            self.revive();
            // waits: another process acts
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the queue is empty.
    async fn settled(&mut self) {
        let begun = Instant::now();
        while self.queue.left().await > 0 {
            assert!(begun.elapsed() < PATIENCE, "the queue is not emptied\n{}", self.log());
            self.revive();
            // waits: the queue tells nobody what is left
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(LINES).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Starts again what ended by itself, as whoever supervises them does.
    fn revive(&mut self) {
        for at in 0..self.relays.len() {
            if self.relays[at].try_wait().unwrap().is_some() {
                self.relays[at] = self.relay(at);
                self.fallen += 1;
            }
        }
        for at in 0..self.consumers.len() {
            if self.consumers[at].try_wait().unwrap().is_some() {
                self.consumers[at] = self.consumer(&[]);
                self.fallen += 1;
            }
        }
    }

    async fn strike(&mut self, fault: Fault, which: usize) {
        match fault {
            Fault::RelayKilled => {
                self.relays[which].kill().await.unwrap();
                self.relays[which] = self.relay(which);
            }
            Fault::ConsumerKilled => {
                self.consumers[which].kill().await.unwrap();
                self.consumers[which] = self.consumer(&[]);
            }
            Fault::RelayStopped => pause(&self.relays[which]).await,
            Fault::ConsumerStopped => pause(&self.consumers[which]).await,
            Fault::TablesCut => away(&self.tables_line).await,
            Fault::QueueCut => away(&self.queue_line).await,
            Fault::Copied => self.copy().await,
        }
    }

    /// The newest that had their effect come again. Others would come before those that go before them.
    async fn copy(&mut self) {
        let acted: BTreeSet<EventId> = self.bank.effects().await.into_iter().collect();
        let known = self.bank.committed.iter().rev().filter(|event| acted.contains(&event.id));
        let copies: Vec<Event> = known.take(COPIES).cloned().collect();
        self.queue.copy(&copies).await;
        self.copied += copies.len();
    }

    /// What was committed against what had its effect.
    async fn judge(&self) -> Verdict {
        let mut history = History::new();
        for event in &self.bank.committed {
            history.commit_for(event.id, &event.aggregate_id, &["ledger"]);
        }
        for id in &self.bank.rolled_back {
            history.roll_back(*id);
        }
        for id in self.bank.effects().await {
            history.deliver("ledger", id);
            history.effect("", id, "ledger");
        }
        check(&history)
    }

    async fn close(mut self) {
        for child in self.relays.iter_mut().chain(&mut self.consumers) {
            _ = child.kill().await;
        }
        self.queue.remove().await;
        self.bank.remove().await;
    }
}

/// Sends a process a signal by its name.
fn signal(process: &Child, name: &str) {
    let id = process.id().expect("it runs").to_string();
    assert!(std::process::Command::new("kill").args([name, &*id]).status().unwrap().success());
}

async fn pause(process: &Child) {
    signal(process, "-STOP");
    tokio::time::sleep(STILL).await; // waits: that is what standing still means
    signal(process, "-CONT");
}

async fn away(line: &Line) {
    line.cut();
    tokio::time::sleep(STILL).await; // waits: that is what being away means
    line.mend();
}

/// Everything that the promise is about, judged on something.
const PROMISE: [Invariant; 4] =
    [Invariant::NoLoss, Invariant::NoGhost, Invariant::KeyOrder, Invariant::OneEffect];

/// F1, F2, F3, F5, F6, F10, F11, INV-1 to INV-4, R043, R044: relays and consumers are killed and stopped in turn, both
/// services are cut off, and messages are there twice; what was committed has its effect once, in its key's order,
/// and nothing else has. One relay reads the stream and the index, the other one the index alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_dynamodb_to_sqs_and_back_whatever_is_killed() {
    let Some(mut way) = WholeWay::open().await else { return };
    let (mut dice, seed) = Dice::from_environment();
    let minutes: f64 = std::env::var("POSTRIDER_TEST_MINUTES")
        .map_or(0.0, |text| text.parse().expect("POSTRIDER_TEST_MINUTES is a number"));
    eprintln!("dynamodb to sqs: POSTRIDER_TEST_SEED={seed}");
    way.relays = vec![way.relay(0), way.relay(1)];
    way.consumers = vec![way.consumer(&[]), way.consumer(&[])];
    let (begun, mut plan) = (Instant::now(), dice.plan());
    let mut struck: BTreeMap<Fault, u32> = BTreeMap::new();
    let mut in_the_middle = 0;
    while !plan.is_empty() || begun.elapsed().as_secs_f64() < minutes * 60.0 {
        let fault = plan.pop().unwrap_or_else(|| Fault::ALL[dice.below(Fault::ALL.len())]);
        let before = way.bank.committed.len();
        let writing = way.bank.write(ROUND);
        let acted = way.acted(before + BEFORE).await;
        in_the_middle += u32::from(acted < before + ROUND as usize);
        way.strike(fault, dice.below(2)).await;
        writing.await.unwrap();
        eprintln!("{:>4} s  {fault:?}", begun.elapsed().as_secs());
        *struck.entry(fault).or_default() += 1;
    }
    way.acted(way.bank.committed.len()).await;
    way.copy().await;
    way.settled().await;
    let (rounds, effects) = (struck.values().sum::<u32>(), way.bank.effects().await.len());
    eprintln!(
        "{{\"outbox\":\"dynamodb\",\"broker\":\"sqs\",\"seed\":{seed},\"seconds\":{},\"rounds\":{rounds},\
         \"in_the_middle\":{in_the_middle},\"faults\":\"{struck:?}\",\"committed\":{},\
         \"rolled_back\":{},\"copied\":{},\"effects\":{effects},\"fallen\":{}}}",
        begun.elapsed().as_secs(),
        way.bank.committed.len(),
        way.bank.rolled_back.len(),
        way.copied,
        way.fallen
    );
    let verdict = way.judge().await;
    assert!(verdict.holds(), "{verdict}");
    // What nothing happened to proves nothing.
    for invariant in PROMISE {
        assert!(verdict.judged(invariant) > 0, "{invariant} was judged on nothing");
    }
    assert_eq!(struck.len(), Fault::ALL.len(), "{struck:?}");
    assert!(in_the_middle * 2 > rounds, "only {in_the_middle} of {rounds} faults had work to hit");
    assert_eq!(effects, way.bank.committed.len());
    way.close().await;
}

/// The negative control: without an inbox the copies have their effects too, and the checker says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_inbox_a_second_effect_is_found() {
    let Some(mut way) = WholeWay::open().await else { return };
    let (_relay, _consumer) = (way.relay(0), way.consumer(&["careless"]));
    way.bank.write(40).await.unwrap();
    way.acted(40).await;
    way.copy().await;
    way.settled().await;
    let verdict = way.judge().await;
    assert_eq!(verdict.broken(), [Invariant::OneEffect], "{verdict}");
    way.close().await;
}
