//! A shop's database, relay processes, and the verdict on what arrived.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use postrider_core::EventId;
use postrider_history::{Commit, History, Record, check};
use postrider_sqlite::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Takeovers happen within such a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// How long a broker of this process waits for an answer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(4);

/// The longest until events flow again after a relay died: as long as the fault matrix says for a lease of 15 s. Of a
/// broker's server no such time is asserted: how long it takes to let clients in again after its start is its own.
pub(crate) const TAKEOVER_MAX: Duration = Duration::from_secs(20);

/// A loaded machine takes long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Keys, each written by one writer alone, so that its events are in order.
pub(crate) const KEYS: u32 = 20;

pub(crate) struct Stage {
    folder: TempDir,
    written: u32,
}

impl Stage {
    pub(crate) fn open() -> Stage {
        let folder = TempDir::with_prefix("postrider-brokers-").unwrap();
        let stage = Stage { folder, written: 0 };
        postrider_sqlite::init(stage.file()).unwrap();
        stage
    }

    fn file(&self) -> String {
        self.folder.path().join("shop.db").display().to_string()
    }

    fn connect(&self) -> Connection {
        postrider_sqlite::connect(self.file()).unwrap()
    }

    /// Its store, for a relay of this process.
    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::new(self.file()).unwrap()
    }

    /// How often a relay became the owner of a partition.
    pub(crate) fn acquisitions(&self) -> u64 {
        let count = "select coalesce(sum(token), 0) from outbox_lease";
        let count: i64 = self.connect().query_row(count, (), |row| row.get(0)).unwrap();
        count.try_into().unwrap()
    }

    /// A relay process, killed when the value is dropped.
    pub(crate) fn relay(&self, url: &str, words: &[&str]) -> Child {
        let path = self.folder.path().join("log");
        let log = std::fs::File::options().append(true).create(true).open(path).unwrap();
        Command::new(env!("CARGO_BIN_EXE_broker-relay"))
            .args([&*self.file(), url, &*LEASE.as_millis().to_string()])
            .args(words)
            // Proofs of life are of this test alone.
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// What the relays wrote.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Stops a relay at a moment at which it holds no lock of the file: others could do nothing until it is woken.
    pub(crate) fn stop_between_writes(&self, relay: &Child) {
        let connection = self.connect();
        connection.busy_timeout(Duration::from_millis(200)).unwrap();
        let begun = std::time::Instant::now();
        loop {
            signal(relay, "-STOP");
            if connection.execute_batch("begin immediate; rollback").is_ok() {
                return;
            }
            signal(relay, "-CONT");
            assert!(begun.elapsed() < PATIENCE, "it always writes");
        }
    }

    /// Delivers what is left, with relays that stop by themselves: what waits for another attempt, because
    /// relays died with it, is due a moment later.
    pub(crate) async fn finish(&self, url: &str) {
        let begun = std::time::Instant::now();
        loop {
            let mut last = self.relay(url, &["once"]);
            let ended = tokio::time::timeout(PATIENCE, last.wait()).await;
            let ended = ended.expect("it ends").unwrap();
            assert!(ended.success(), "{ended}: {}", self.log());
            let count = "select count(*) from outbox_waiting";
            let waiting: u32 = self.connect().query_row(count, (), |row| row.get(0)).unwrap();
            if waiting == 0 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{waiting} events still wait");
            // waits: until they are due, which another process knows
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Events that no save of a relay has passed, or that wait: more than these a relay that dies now leaves nobody to
    /// send again.
    pub(crate) fn unsaved(&self) -> u64 {
        let count = "select (select count(*) from outbox)
            - (select coalesce(sum(count), 0) from outbox_settled where destination = 'a')
            + (select count(*) from outbox_waiting where destination = 'a')";
        let count: i64 = self.connect().query_row(count, (), |row| row.get(0)).unwrap();
        count.try_into().expect("the log counts each event once")
    }

    /// Commits so many events in one transaction, each key's next ones; and takes as many back in another.
    pub(crate) fn write(&mut self, count: u32) {
        let mut connection = self.connect();
        for commits in [false, true] {
            let tx = connection.transaction().unwrap();
            for n in self.written..self.written + count {
                let values = ((n % KEYS).to_string(), n + 1, n.to_string());
                let insert = "insert into outbox (aggregate_type, aggregate_id, event_type, \
                              event_version, payload) values ('account', ?1, 'account.moved', ?2, ?3)";
                tx.execute(insert, values).unwrap();
            }
            if commits {
                tx.commit().unwrap();
            }
        }
        self.written += count;
    }

    /// Nothing lost, nothing that was not committed, each key in order. Returns how many were committed.
    pub(crate) fn judge(&self, arrived: &[EventId]) -> usize {
        let connection = self.connect();
        let all = "select id, aggregate_id, event_version from outbox";
        let mut statement = connection.prepare(all).unwrap();
        let mut history = History::new();
        let mut count = 0;
        let rows = statement.query_map((), |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, u32>(2)?))
        });
        for row in rows.unwrap() {
            let (id, key, order) = row.unwrap();
            history.push(Record::Commit(Commit {
                id: id.parse().unwrap(),
                source: String::new(),
                key,
                order: u64::from(order),
                destinations: Some(BTreeSet::from(["a".to_owned()])),
                unserialised: false,
            }));
            count += 1;
        }
        for id in arrived {
            history.deliver("a", *id);
        }
        let verdict = check(&history);
        assert!(verdict.holds(), "{verdict}");
        count
    }
}

/// Sends a process a signal by its name.
pub(crate) fn signal(process: &Child, name: &str) {
    let id = process.id().expect("it runs").to_string();
    assert!(std::process::Command::new("kill").args([name, &*id]).status().unwrap().success());
}
