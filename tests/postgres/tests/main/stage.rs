//! A server with the tables, one writer, relay processes, and the record of what arrived.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use postrider_core::EventId;
use postrider_history::{Commit, History, Record, check};
use postrider_postgres::{Names, Setup, init};
use postrider_testkit::cluster::Cluster;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// Takeovers happen within such a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// A loaded machine takes long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Keys, each written by one writer alone, so that its events are in order.
const KEYS: u32 = 20;

pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    folder: TempDir,
    names: Names,
    written: u32,
}

impl Stage {
    pub(crate) async fn open(settings: &[&str]) -> Option<Stage> {
        let cluster = Cluster::start(settings).await?;
        let names = Names::default();
        let setup = Setup { names: names.clone(), partitions: Some(8), ..Setup::default() };
        init(&cluster.url(), &setup).await.expect("the tables are made");
        let folder = TempDir::with_prefix("postrider-stage-").expect("a folder");
        Some(Stage { cluster, folder, names, written: 0 })
    }

    fn record(&self) -> PathBuf {
        self.folder.path().join("record")
    }

    /// A relay process, killed when the value is dropped.
    pub(crate) fn relay(&self, url: &str, words: &[&str]) -> Child {
        let lease = LEASE.as_millis().to_string();
        let path = self.folder.path().join("log");
        let log = std::fs::File::options().append(true).create(true).open(path).expect("a log");
        Command::new(env!("CARGO_BIN_EXE_postgres-relay"))
            .args([url, &self.record().display().to_string(), &lease])
            .args(words)
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("a relay starts")
    }

    /// Commits so many events in one transaction, each key's next ones. Whether the server said so; if it did
    /// not, they may be there all the same.
    pub(crate) async fn write(&mut self, count: u32) -> bool {
        let Some(client) = try_connect(&self.cluster.url()).await else { return false };
        let first = self.written;
        self.written += count;
        let statement = self.names.render(&format!(
            "insert into {{outbox}} (aggregate_type, aggregate_id, event_type, event_version, payload)
             select 'account', (n % {KEYS})::text, 'account.moved', n + 1, n::text
             from generate_series({first}, {}) n",
            self.written - 1
        ));
        client.batch_execute(&statement).await.is_ok()
    }

    /// What is committed: id, key, and place in the key's order.
    async fn rows(&self) -> Vec<(Uuid, String, i32)> {
        let client = connect(&self.cluster.url()).await;
        let all = self.names.render("select id, aggregate_id, event_version from {outbox}");
        let rows = client.query(&all, &[]).await.expect("rows");
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }

    /// What arrived, in order. A last line without an end is none.
    pub(crate) fn arrived(&self) -> Vec<Uuid> {
        let text = std::fs::read_to_string(self.record()).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| line.parse().expect("an id")).collect()
    }

    /// Waits until everything that is committed has arrived.
    pub(crate) async fn all_arrive(&self) {
        let began = Instant::now();
        loop {
            let arrived: BTreeSet<Uuid> = self.arrived().into_iter().collect();
            let rows = self.rows().await;
            let missing = rows.iter().filter(|(id, ..)| !arrived.contains(id)).count();
            if missing == 0 {
                return;
            }
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < PATIENCE, "{missing} of {} do not arrive\n{log}", rows.len());
            // waits: another process writes the record
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Nothing lost, nothing that was not committed, each key in order. Returns committed and arrived.
    pub(crate) async fn judge(&self) -> (usize, usize) {
        let (rows, arrived) = (self.rows().await, self.arrived());
        let mut history = History::new();
        for (id, key, n) in &rows {
            history.push(Record::Commit(Commit {
                id: EventId::from_u128(id.as_u128()),
                source: String::new(),
                key: key.clone(),
                order: u64::try_from(*n).unwrap(),
                destinations: Some(BTreeSet::from(["a".to_owned()])),
                unserialised: false,
            }));
        }
        for id in &arrived {
            history.deliver("a", EventId::from_u128(id.as_u128()));
        }
        let verdict = check(&history);
        assert!(verdict.holds(), "{verdict}");
        (rows.len(), arrived.len())
    }
}

/// Sends a process a signal by its name.
pub(crate) fn signal(process: &Child, name: &str) {
    let id = process.id().expect("it runs").to_string();
    let sent = std::process::Command::new("kill").args([name, &id]).status().expect("kill runs");
    assert!(sent.success());
}

/// A session, as soon as there can be one.
pub(crate) async fn connect(url: &str) -> Client {
    let began = Instant::now();
    loop {
        if let Some(client) = try_connect(url).await {
            return client;
        }
        assert!(began.elapsed() < PATIENCE, "no connection");
        // waits: a server that starts tells nobody when it is ready
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A connection that answers, or nothing.
pub(crate) async fn try_connect(url: &str) -> Option<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.ok()?;
    tokio::spawn(connection);
    client.simple_query("select 1").await.ok()?;
    Some(client)
}
