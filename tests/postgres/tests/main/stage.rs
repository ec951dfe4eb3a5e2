//! A server with the tables, one writer, relay processes, and the record of what arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use postrider_core::EventId;
use postrider_history::{Commit, History, Record, check};
use postrider_postgres::{Names, Setup, init};
use postrider_testkit::cluster::Cluster;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::watch::{Arrival, Heard, Kept, Pauses};
use crate::whose::Whose;

/// Takeovers happen within such a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// A machine that is busy with something else may miss a time once.
pub(crate) const TRIES_MAX: u32 = 3;

/// A loaded machine takes long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The longest until a partition has another owner: as much longer than the lease as the fault matrix says for one of 15 s.
pub(crate) const ANOTHER_OWNER_MAX: Duration = LEASE.saturating_add(Duration::from_secs(5));

/// The longest until events have arrived that a death left behind, those included that are tried one by one: as long as
/// the fault matrix says.
pub(crate) const TAKEOVER_MAX: Duration = Duration::from_secs(20);

/// The longest until everything flows again that was written before the server restarted, from when it answers.
pub(crate) const RESTART_MAX: Duration = Duration::from_secs(10);

/// Keys, each written by one writer alone, so that its events are in order.
const KEYS: u32 = 20;

pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) folder: TempDir,
    names: Names,
    pub(crate) whose: Whose,
    written: u32,
    /// The numbers of events whose commit the server acknowledged.
    acknowledged: Vec<Range<u32>>,
    /// The producer's session, while it lasts.
    writer: Option<Client>,
    /// The session of who looks.
    looks: tokio::sync::Mutex<Kept>,
    heard: Mutex<Heard>,
}

/// One event that is committed.
pub(crate) struct Row {
    pub(crate) id: Uuid,
    pub(crate) key: String,
    /// Its place in the key's order.
    pub(crate) n: i32,
    /// When it was written, by the database's clock, in microseconds since 1970.
    pub(crate) at: i64,
}

impl Stage {
    pub(crate) async fn open(settings: &[&str]) -> Option<Stage> {
        Some(Stage::on(Cluster::start(settings).await?).await)
    }

    /// A stage on this server.
    pub(crate) async fn on(cluster: Cluster) -> Stage {
        Stage::with(cluster, Setup::default()).await
    }

    /// The same with the events in a table of the application's own.
    pub(crate) async fn own(cluster: Cluster) -> Stage {
        connect(&cluster.url()).await.batch_execute(Whose::MAKE).await.expect("its table");
        Stage::of(Whose::Applications, cluster, Setup::default()).await
    }

    /// The same with tables that are made in another way.
    pub(crate) async fn with(cluster: Cluster, setup: Setup) -> Stage {
        Stage::of(Whose::Postriders, cluster, setup).await
    }

    async fn of(whose: Whose, cluster: Cluster, setup: Setup) -> Stage {
        let names = Names::default();
        let setup = Setup { names: names.clone(), partitions: Some(whose.partitions()), ..setup };
        init(&cluster.url(), &setup).await.expect("the tables are made");
        let folder = TempDir::with_prefix("postrider-stage-").expect("a folder");
        Stage {
            cluster,
            folder,
            names,
            whose,
            written: 0,
            acknowledged: Vec::new(),
            writer: None,
            looks: tokio::sync::Mutex::default(),
            heard: Mutex::default(),
        }
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.folder.path().join("record")
    }

    /// A relay process, killed when the value is dropped.
    pub(crate) fn relay(&self, url: &str, words: &[&str]) -> Child {
        self.relay_with(url, words, &[])
    }

    /// One that holds its partitions for so long.
    pub(crate) fn relay_for(&self, url: &str, lease: Duration) -> Child {
        self.command(url, lease).spawn().expect("a relay starts")
    }

    /// One with these variables.
    pub(crate) fn relay_with(&self, url: &str, words: &[&str], set: &[(&str, &str)]) -> Child {
        let mut command = self.command(url, LEASE);
        command.args(words).envs(set.iter().copied()).spawn().expect("a relay starts")
    }

    fn command(&self, url: &str, lease: Duration) -> Command {
        let path = self.folder.path().join("log");
        let log = std::fs::File::options().append(true).create(true).open(path).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_postgres-relay"));
        command
            .args([url, &self.record().display().to_string(), &lease.as_millis().to_string()])
            .args(self.whose.words())
            // What proves that a killed one is dead stands there.
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        command
    }

    /// Commits so many events in one transaction, each key's next ones. Whether the server said so; if it did
    /// not, they may be there all the same.
    pub(crate) async fn write(&mut self, count: u32) -> bool {
        let key = format!("(n % {KEYS})::text");
        self.write_by(count, &key).await.is_ok()
    }

    /// The same with keys by this expression of `n`, the event's number; else why the server did not say so.
    pub(crate) async fn write_by(&mut self, count: u32, key: &str) -> Result<(), String> {
        self.write_with(count, key, "n::text").await
    }

    /// And with payloads by another expression.
    pub(crate) async fn write_with(
        &mut self,
        count: u32,
        key: &str,
        payload: &str,
    ) -> Result<(), String> {
        let client = match self.writer.take().filter(|writer| !writer.is_closed()) {
            Some(client) => client,
            None => try_connect(&self.cluster.url()).await.ok_or("no connection")?,
        };
        let range = self.written..self.written + count;
        self.written = range.end;
        let statement = self.named(&format!(
            "insert into {{outbox}} (aggregate_type, aggregate_id, event_type, event_version, payload)
             select 'account', {key}, 'account.moved', n + 1, {payload}
             from generate_series({}, {}) n",
            range.start,
            range.end - 1
        ));
        client.batch_execute(&statement).await.map_err(|error| format!("{error:?}"))?;
        self.acknowledged.push(range);
        self.writer = Some(client);
        Ok(())
    }

    /// A statement with the tables' names in their places.
    pub(crate) fn named(&self, statement: &str) -> String {
        self.whose.named(&self.names, statement)
    }

    async fn ask(&self, statement: &str) -> Vec<tokio_postgres::Row> {
        let statement = self.named(statement);
        self.looks.lock().await.ask(&self.cluster.url(), &statement).await
    }

    /// One number out of the database.
    pub(crate) async fn number(&self, statement: &str) -> i64 {
        self.ask(statement).await.first().expect("a row").get(0)
    }

    /// Runs a statement, with the names in their places, in a session of its own that stays open.
    pub(crate) async fn session(&self, statement: &str) -> Client {
        let client = connect(&self.cluster.url()).await;
        client.batch_execute(&self.named(statement)).await.expect("it runs");
        client
    }

    /// Changes the tables as a migrator does: it waits for no lock long, and where a relay's own locks cross its, it tries again.
    pub(crate) async fn migrates(&self, step: &str) {
        let step = format!("begin; set local lock_timeout = '400ms'; {step}; commit");
        let began = Instant::now();
        loop {
            let client = connect(&self.cluster.url()).await;
            let Err(error) = client.batch_execute(&self.named(&step)).await else { return };
            let crossed = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::LOCK_NOT_AVAILABLE];
            let again = error.code().is_some_and(|code| crossed.contains(code));
            assert!(again && began.elapsed() < PATIENCE, "{error:?}");
            eprintln!("the tables are changed at another try: {error}");
            // waits: another transaction holds a lock, and the server does not say when it ends
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What is committed.
    pub(crate) async fn rows(&self) -> Vec<Row> {
        let all = "select id, aggregate_id, event_version, (extract(epoch from created_at) * 1000000)::bigint
            from {outbox}";
        let rows = self.ask(all).await;
        let row = |row: &tokio_postgres::Row| Row {
            id: row.get(0),
            key: row.get(1),
            n: row.get(2),
            at: row.get(3),
        };
        rows.iter().map(row).collect()
    }

    /// What arrived, in order. A last line without an end is none.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        let text = std::fs::read_to_string(self.record()).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(Arrival::of).collect()
    }

    /// Whether anything did.
    pub(crate) fn has_arrivals(&self) -> bool {
        std::fs::metadata(self.record()).is_ok_and(|record| record.len() > 0)
    }

    /// The ids of what arrived.
    pub(crate) fn arrived(&self) -> Vec<Uuid> {
        self.arrivals().iter().map(|arrival| arrival.id).collect()
    }

    /// How long each committed event of these keys was under way, in microseconds, the shortest first.
    pub(crate) async fn lags(&self, of: impl Fn(&Row) -> bool) -> Vec<i64> {
        let mut first: BTreeMap<Uuid, i64> = BTreeMap::new();
        for arrival in self.arrivals() {
            first.entry(arrival.id).or_insert(arrival.at);
        }
        let rows = self.rows().await;
        let lag = |row: &Row| first.get(&row.id).map(|at| at - row.at);
        let mut lags: Vec<i64> = rows.iter().filter(|row| of(row)).filter_map(lag).collect();
        lags.sort_unstable();
        lags
    }

    /// Waits until everything that is committed has arrived. As long as fewer arrived than are committed it is not so, which
    /// two counts say; all are compared then, and each second, to see whether it gets on.
    pub(crate) async fn all_arrive(&self) {
        let (mut since, mut fewest) = (Instant::now(), usize::MAX);
        let (mut compared, mut pauses) = (Instant::now(), Pauses::new());
        loop {
            let committed = self.number("select count(*) from {outbox}").await;
            let arrived = self.heard.lock().unwrap().by_now(&self.record()).len();
            if arrived as i64 >= committed || compared.elapsed() >= Duration::from_secs(1) {
                compared = Instant::now();
                let rows = self.ask("select id from {outbox}").await;
                let missing = self.heard.lock().unwrap().missing(&self.record(), &rows);
                if missing == 0 {
                    return;
                }
                // What is tried one by one takes a slow machine long, and gets on all the same.
                if missing < fewest {
                    (since, fewest) = (Instant::now(), missing);
                }
                if since.elapsed() >= PATIENCE {
                    let log = std::fs::read_to_string(self.folder.path().join("log"));
                    let log = log.unwrap_or_default();
                    panic!("{missing} of {} do not arrive\n{log}", rows.len());
                }
            }
            pauses.next().await;
        }
    }

    /// Waits until the cursors of everything that is committed are saved.
    pub(crate) async fn all_settled(&self) {
        let (mut since, mut fewest, mut pauses) = (Instant::now(), i64::MAX, Pauses::new());
        loop {
            let left = self.number(self.whose.open()).await;
            if left == 0 {
                return;
            }
            if left < fewest {
                (since, fewest) = (Instant::now(), left);
            }
            assert!(since.elapsed() < PATIENCE, "{left} are not settled");
            pauses.next().await;
        }
    }

    /// Waits until one relay owns every partition, and says how long that took.
    pub(crate) async fn taken_over(&self) -> Duration {
        let (began, mut pauses) = (Instant::now(), Pauses::new());
        let owners = "select count(distinct owner) + count(*) filter (where expires_at <= now())
            from {outbox_lease} join {outbox_renewal} using (partition)";
        while self.number(owners).await != 1 {
            assert!(began.elapsed() < PATIENCE, "nobody takes over");
            pauses.next().await;
        }
        began.elapsed()
    }

    /// Events that no save of a relay has passed, or that wait: more than these a relay that dies now leaves nobody to
    /// send again.
    pub(crate) async fn unsaved(&self) -> u64 {
        let count = self.number(self.whose.unsaved()).await;
        count.try_into().expect("the log counts each event once")
    }

    /// Nothing lost, nothing that was not committed, each key in order. Returns committed and arrived.
    pub(crate) async fn judge(&self) -> (usize, usize) {
        let (rows, arrived) = (self.rows().await, self.arrived());
        let mut history = History::new();
        let there: BTreeSet<u32> = rows.iter().map(|row| row.n.cast_unsigned() - 1).collect();
        for n in self.acknowledged.iter().cloned().flatten() {
            assert!(there.contains(&n), "event {n} was acknowledged to its producer, and is lost");
        }
        for row in &rows {
            history.push(Record::Commit(Commit {
                id: EventId::from_u128(row.id.as_u128()),
                source: String::new(),
                key: row.key.clone(),
                order: u64::try_from(row.n).unwrap(),
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

/// A part of sorted figures, such as 0.99.
pub(crate) fn quantile(sorted: &[i64], part: f64) -> i64 {
    let last = sorted.len().checked_sub(1).expect("there are figures");
    sorted[(last as f64 * part).round() as usize]
}

/// The most memory that a process ever had, in MiB.
pub(crate) fn peak_memory(process: &Child) -> u64 {
    let id = process.id().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its state");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    peak.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// How much is asked for by a variable, such as `POSTRIDER_TEST_BACKLOG=10000000`; else so much as takes seconds.
pub(crate) fn asked(variable: &str, usual: u32) -> u32 {
    std::env::var(variable).ok().map_or(usual, |text| text.parse().expect("a number"))
}
