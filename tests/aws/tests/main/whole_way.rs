//! One whole way: its servers, its processes, what happens to them, and the verdict on what came of it.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

use postrider_core::{Event, EventId};
use postrider_history::{History, Verdict, check};
use postrider_testkit::dynamodb::{DynamoServer, SETTLED_AFTER};
use postrider_testkit::services;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::bank::Bank;
use crate::fault::Fault;
use crate::line::Line;
use crate::outbox::Outbox;
use crate::queue::{Queue, Road};

/// Takeovers happen within such a lease.
const LEASE: Duration = Duration::from_secs(4);
/// How long something stands still, or is away: longer than a lease, and than a message is hidden.
const STILL: Duration = Duration::from_secs(6);
/// A loaded machine takes long.
const PATIENCE: Duration = Duration::from_secs(90);
/// How many come twice when they are copied.
const COPIES: usize = 20;
/// The pause between two looks at what had its effect: who looks takes its time from those who act.
const LOOK: Duration = Duration::from_millis(250);
/// The same where a look is to find some of it done, and others not.
const GLANCE: Duration = Duration::from_millis(50);
/// Lines of the processes in the message of a test that waited in vain.
const LINES: usize = 30;

/// What the way begins in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Tables of DynamoDB.
    Dynamo,
    /// A database of PostgreSQL.
    Postgres,
}

/// From where, by what, and what happens on the way.
pub(crate) struct Course {
    pub(crate) store: Store,
    pub(crate) road: Road,
    pub(crate) faults: &'static [Fault],
}

pub(crate) struct WholeWay {
    pub(crate) bank: Bank,
    pub(crate) outbox: Outbox,
    pub(crate) queue: Queue,
    pub(crate) tables_line: Line,
    queue_line: Line,
    /// The server of the tables: its own, as one that all tests share is slow by what they all left in it.
    server: DynamoServer,
    folder: TempDir,
    pub(crate) relays: Vec<Child>,
    pub(crate) consumers: Vec<Child>,
    pub(crate) copied: usize,
    /// Processes that ended and were not told to.
    pub(crate) fallen: u32,
}

impl WholeWay {
    /// `None`, with the reason printed, where a server is missing.
    pub(crate) async fn open(course: &Course) -> Option<WholeWay> {
        let opened = WholeWay::try_open(course).await;
        opened
            .inspect_err(|reason| {
                println!("skipped: the whole way on AWS: {reason}");
                assert!(std::env::var_os("CI").is_none(), "{reason}");
            })
            .ok()
    }

    async fn try_open(course: &Course) -> Result<WholeWay, String> {
        let aws = services::url("aws")?;
        let server = DynamoServer::start()?;
        let tables = server.address();
        let bank = Bank::make(&tables).await;
        let outbox = match course.store {
            Store::Dynamo => Outbox::in_tables(&bank.connection, &bank.accounts).await,
            Store::Postgres => Outbox::in_database().await.ok_or("no PostgreSQL of its own")?,
        };
        Ok(WholeWay {
            bank,
            outbox,
            queue: Queue::make(&aws, course.road).await,
            tables_line: Line::to(&tables).await,
            queue_line: Line::to(&aws).await,
            server,
            folder: TempDir::with_prefix("postrider-aws-").unwrap(),
            relays: Vec::new(),
            consumers: Vec::new(),
            copied: 0,
            fallen: 0,
        })
    }

    fn process(&self, program: &str, from: &str, to: &str, more: &[&str]) -> Child {
        let log = self.folder.path().join("log");
        let log = std::fs::File::options().append(true).create(true).open(log).unwrap();
        Command::new(program)
            .args([from, &*self.bank.prefix, self.queue_line.address(), &*self.queue.key, to])
            .args(more)
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// On DynamoDB the first reads the stream and the index, the second the index alone.
    pub(crate) fn relay(&self, which: usize) -> Child {
        let lease = LEASE.as_millis().to_string();
        let words = [&*lease, "polling"];
        let from = self.outbox.database().unwrap_or_else(|| self.tables_line.address().to_owned());
        let to = self.queue.road.address();
        self.process(env!("CARGO_BIN_EXE_aws-relay"), &from, &to, &words[..=which])
    }

    pub(crate) fn consumer(&self, more: &[&str]) -> Child {
        let (from, queue) = (self.tables_line.address(), self.queue.road.queue());
        self.process(env!("CARGO_BIN_EXE_aws-consumer"), from, queue, more)
    }

    /// Waits until so many different events had their effect.
    pub(crate) async fn acted(&mut self, least: usize) -> usize {
        self.acted_by(least, LOOK).await
    }

    /// The same, and looks so often that the others can still be under way.
    pub(crate) async fn just_acted(&mut self, least: usize) -> usize {
        self.acted_by(least, GLANCE).await
    }

    async fn acted_by(&mut self, least: usize, pause: Duration) -> usize {
        let begun = Instant::now();
        loop {
            let acted = self.bank.effects().await.into_iter().collect::<BTreeSet<_>>().len();
            if acted >= least {
                return acted;
            }
            assert!(begun.elapsed() < PATIENCE, "{acted} of {least} effects\n{}", self.log());
            self.revive();
            // waits: another process acts
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until the queue is empty.
    pub(crate) async fn settled(&mut self) {
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
    pub(crate) fn revive(&mut self) {
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

    pub(crate) async fn strike(&mut self, fault: Fault, which: usize) {
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
            Fault::TablesKilled => self.kill_tables().await,
            Fault::StreamCut => {
                self.tables_line.cut_streams(true);
                tokio::time::sleep(STILL).await; // waits: that is what being away means
                self.tables_line.cut_streams(false);
            }
            Fault::DatabaseKilled => self.outbox.crash().await,
            Fault::QueueCut => away(&self.queue_line).await,
            Fault::Copied => self.copy().await,
        }
    }

    /// Calls are broken off first: what the emulator answered a moment before it is killed, it may have lost.
    async fn kill_tables(&mut self) {
        self.tables_line.cut();
        tokio::time::sleep(SETTLED_AFTER).await; // waits: until what was answered is written
        tokio::task::block_in_place(|| {
            self.server.kill();
            self.server.run().unwrap();
        });
        self.tables_line.mend();
    }

    /// The newest that had their effect come again. Others would come before those that go before them.
    pub(crate) async fn copy(&mut self) {
        let acted: BTreeSet<EventId> = self.bank.effects().await.into_iter().collect();
        let known = self.outbox.committed.iter().rev().filter(|event| acted.contains(&event.id));
        let copies: Vec<Event> = known.take(COPIES).cloned().collect();
        self.queue.copy(&copies).await;
        self.copied += copies.len();
    }

    /// What was committed against what had its effect.
    pub(crate) async fn judge(&self) -> Verdict {
        let mut history = History::new();
        for event in &self.outbox.committed {
            history.commit_for(event.id, &event.aggregate_id, &["ledger"]);
        }
        for id in &self.outbox.rolled_back {
            history.roll_back(*id);
        }
        for id in self.bank.effects().await {
            history.deliver("ledger", id);
            history.effect("", id, "ledger");
        }
        check(&history)
    }

    pub(crate) async fn close(mut self) {
        for child in self.relays.iter_mut().chain(&mut self.consumers) {
            _ = child.kill().await;
        }
        self.queue.remove().await;
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
