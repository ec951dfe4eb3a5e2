//! A stage: a folder with the databases, and the processes that play on it.

use std::time::{Duration, Instant};

use postrider_e2e::{DESTINATION, Files, PLACED};
use postrider_local::{LocalBroker, StoredMessage};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::{Ended, Process};

/// How often the files of other processes are looked at, where nobody says anything.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// How long a stage may take to come to rest while nobody says anything. Who gets on says so, however slow the machine is.
const REST_MAX: Duration = Duration::from_secs(40);

/// How long it may take in all: one that says the same for ever is found out.
const REST_AT_LAST: Duration = REST_MAX.saturating_mul(8);

/// A folder of its own, with fresh databases.
pub(crate) struct Stage {
    pub(crate) files: Files,
    pub(crate) folder: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let folder = tempfile::Builder::new().prefix("postrider-e2e-").tempdir().expect("a folder");
        let files = Files::within(folder.path());
        postrider_sqlite::init(&files.shop).expect("the shop's tables");
        postrider_sqlite::init(&files.billing).expect("the handler's tables");
        postrider_sqlite::init(&files.inbox).expect("the inbox's tables");
        std::fs::create_dir(&files.scratch).expect("a folder");
        let stage = Stage { files, folder };
        let (shop, billing) = (stage.shop(), stage.billing());
        shop.execute_batch(include_str!("../../sql/shop.sql")).expect("the shop's own tables");
        billing.execute_batch(include_str!("../../sql/billing.sql")).expect("the handler's table");
        stage
    }

    pub(crate) fn shop(&self) -> Connection {
        postrider_sqlite::connect(&self.files.shop).expect("the shop's database")
    }

    pub(crate) fn billing(&self) -> Connection {
        postrider_sqlite::connect(&self.files.billing).expect("the handler's database")
    }

    pub(crate) fn inbox(&self) -> Connection {
        postrider_sqlite::connect(&self.files.inbox).expect("the inbox's database")
    }

    pub(crate) fn queue(&self) -> LocalBroker {
        LocalBroker::open(&self.files.queue).expect("the broker's file")
    }

    /// A command that plays a part.
    pub(crate) fn command(&self, role: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_child"));
        command.arg(role).arg("--folder").arg(self.folder.path()).args(args);
        // Proofs of life go here, so that tests do not see each other's.
        command.env("TMPDIR", &self.files.scratch);
        command
    }

    /// Starts a child in a role, and waits until it is ready.
    pub(crate) async fn play(&self, role: &str, args: &[&str]) -> Process {
        let mut process = self.start(role, args);
        process.ready().await;
        process
    }

    /// Starts a child in a role.
    pub(crate) fn start(&self, role: &str, args: &[&str]) -> Process {
        Process::start(self.command(role, args), format!("{role} {}", args.join(" ")))
    }

    /// Commits so many orders in a process of its own.
    pub(crate) async fn produce(&self, count: u32, more: &[&str]) -> Ended {
        let count = count.to_string();
        let args = [&["--count", count.as_str()], more].concat();
        let ended = self.start("producer", &args).ended().await;
        assert_eq!(ended.code, Some(0), "{:?}", ended.heard.last());
        ended
    }

    /// Delivers everything that is committed, with a fresh relay that stops by itself.
    pub(crate) async fn drain(&self) -> Ended {
        let ended = self.start("relay", &["--once", "yes", "--lease-ms", "10000"]).ended().await;
        assert_eq!(ended.code, Some(0), "the drain: {:#?}", ended.heard);
        ended
    }

    /// How far the store says the destination is settled.
    pub(crate) fn position(&self) -> u64 {
        let statement =
            "select coalesce(max(position), 0) from outbox_cursor where destination = ?1";
        let position: i64 = self
            .shop()
            .query_row(statement, [DESTINATION], |row| row.get(0))
            .expect("the cursor's position");
        position.cast_unsigned()
    }

    /// The broker's log of all topics, in its order.
    pub(crate) async fn log(&self) -> Vec<StoredMessage> {
        let queue = self.queue();
        let mut log = Vec::new();
        for topic in queue.topics().await.expect("topics") {
            log.extend(queue.messages(&topic).await.expect("messages"));
        }
        log.sort_by_key(|message| message.offset);
        log
    }

    /// Listens to a process until something is so that only files tell.
    pub(crate) async fn until(&self, process: &mut Process, what: &str, so: impl Fn() -> bool) {
        let begun = Instant::now();
        let mut since = begun;
        while !so() {
            let tail: Vec<&String> = process.heard.iter().rev().take(20).collect();
            let waits = since.elapsed() < REST_MAX && begun.elapsed() < REST_AT_LAST;
            assert!(waits, "it never came about that {what}: {tail:#?}");
            // waits: the file of another process gives no signal; a word of it comes earlier
            if process.listen(LOOK_EVERY).await.is_some() {
                since = Instant::now();
            }
        }
    }

    /// Whether a group has settled everything that its topic holds.
    pub(crate) fn is_consumed(&self, group: &str) -> bool {
        let queue = postrider_sqlite::connect(&self.files.queue).expect("the broker's file");
        let statement = "select
            (select count(*) from delivery d join consumer_group g using (group_id)
                where g.name = ?1)
            + (select count(*) from message m join topic t using (topic_id)
                where t.name = ?2 and m.seq > coalesce((select c.passed from group_cursor c
                    join consumer_group g using (group_id)
                    where g.name = ?1 and c.topic_id = t.topic_id), 0))";
        queue.query_row(statement, (group, PLACED), |row| row.get::<_, i64>(0)).expect("a count")
            == 0
    }

    /// Lets a fresh consumer finish what its group has left.
    pub(crate) async fn consume(&self, kind: &str) -> Ended {
        // It outlives no lease of its own: what it does is done once, on whatever machine.
        let args = ["--kind", kind, "--lease-ms", "30000"];
        let mut consumer = self.play("consumer", &args).await;
        self.until(&mut consumer, "everything is consumed", || self.is_consumed(kind)).await;
        consumer.finish().await
    }
}

/// One number out of a database.
pub(crate) fn number(connection: &Connection, statement: &str) -> i64 {
    connection.query_row(statement, (), |row| row.get(0)).expect("one number")
}

/// A column of text out of a database.
pub(crate) fn texts(connection: &Connection, statement: &str) -> Vec<String> {
    let mut statement = connection.prepare(statement).expect("a statement");
    let rows = statement.query_map((), |row| row.get(0)).expect("rows");
    rows.collect::<rusqlite::Result<_>>().expect("text")
}
