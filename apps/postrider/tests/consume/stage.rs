//! A stage: a folder with a broker's file and an inbox, and the sidecars that play on it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::{Broker as _, ErrorKind, Event, EventId, Format, Marks, Outcome, Outgoing};
use postrider_local::{DeadLetter, LocalBroker};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::process::Command;

use crate::endpoint::Endpoint;
use crate::sidecar::Sidecar;

/// How often a claim was taken over: a token begins with the moment, in microseconds of whole milliseconds.
pub(crate) const TAKEN_OVER: &str = "select token % 1000 from inbox";

/// The topic of everything.
pub(crate) const TOPIC: &str = "order.placed";

/// The group, and the handler of it.
pub(crate) const GROUP: &str = "billing";

/// The lease of a sidecar that is killed or stands still, which is waited for: longer than a machine that is busy stands
/// still between a call and what the test does about it.
pub(crate) const OUTLIVED: [&str; 2] = ["--lease", "5s"];

/// Who says it all.
pub(crate) const SOURCE: &str = "/shop";

/// How often the files of other processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// How long a stage may take to come to rest.
pub(crate) const REST_MAX: Duration = Duration::from_secs(60);

/// A folder of its own.
pub(crate) struct Stage {
    pub(crate) folder: TempDir,
    broker: LocalBroker,
    published: std::sync::Mutex<Vec<(EventId, String)>>,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let folder = tempfile::Builder::new().prefix("postrider-consume-").tempdir().unwrap();
        postrider_sqlite::init(folder.path().join("billing.db")).unwrap();
        let broker = LocalBroker::open(folder.path().join("queue.db")).unwrap();
        Stage { folder, broker, published: std::sync::Mutex::default() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn inbox(&self) -> Connection {
        postrider_sqlite::connect(self.path("billing.db")).unwrap()
    }

    /// One number out of the inbox.
    pub(crate) fn number(&self, statement: &str) -> i64 {
        self.inbox().query_row(statement, (), |row| row.get(0)).unwrap()
    }

    /// An event of a key, published once.
    pub(crate) async fn place(&self, key: &str) -> EventId {
        let event = order(key);
        self.publish(&event, 1).await;
        event.id
    }

    /// Publishes an event so many times, as a broker that duplicates has it.
    pub(crate) async fn publish(&self, event: &Event, times: usize) {
        for _ in 0..times {
            let outgoing = Outgoing {
                event: Arc::new(event.clone()),
                topic: Arc::from(TOPIC),
                format: Format::Structured,
                layout: None,
                marks: Marks::default(),
                attempt: 1,
            };
            assert_eq!(self.broker.publish(&[outgoing]).await.unwrap(), [Outcome::Acked]);
        }
        self.was_placed(event.id, event.key());
    }

    /// An event that comes to the broker some other way.
    pub(crate) fn was_placed(&self, id: EventId, key: String) {
        self.published.lock().unwrap().push((id, key));
    }

    /// What was published, in order, each event once.
    pub(crate) fn published(&self) -> Vec<(EventId, String)> {
        self.published.lock().unwrap().clone()
    }

    /// The command of a sidecar that calls an address.
    pub(crate) fn command(&self, to: &str, more: &[&str]) -> Command {
        self.command_at("sqlite://billing.db", to, more)
    }

    /// The same with an inbox in another file.
    pub(crate) fn command_with(&self, inbox: &str, to: &str, more: &[&str]) -> Command {
        self.command_at(&format!("sqlite://{inbox}"), to, more)
    }

    /// The same with an inbox at an address.
    pub(crate) fn command_at(&self, inbox: &str, to: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command
            .args(["consume", "--from", &format!("local://queue.db/{TOPIC}"), "--group", GROUP])
            .args(["--inbox", inbox, "--to", to])
            .args(more)
            .current_dir(self.folder.path());
        for name in postrider_testkit::services::variables() {
            command.env_remove(name);
        }
        command
    }

    /// Starts a sidecar and waits until it receives. Where no lease is given, it is one that no machine outlives by being
    /// slow: whoever waits for its end says how long it is.
    pub(crate) async fn sidecar(&self, endpoint: &Endpoint, more: &[&str]) -> Sidecar {
        let lease: &[&str] = if more.contains(&"--lease") { &[] } else { &["--lease", "30s"] };
        self.sidecar_to(&endpoint.url(), &[lease, more].concat()).await
    }

    /// Starts a sidecar that calls an address, and waits until it receives.
    pub(crate) async fn sidecar_to(&self, to: &str, more: &[&str]) -> Sidecar {
        let mut sidecar = Sidecar::start(self.command(to, more));
        sidecar.hear("receiving").await;
        sidecar
    }

    /// The group's dead letters.
    pub(crate) async fn dead(&self) -> Vec<DeadLetter> {
        match self.broker.dead_letters(GROUP).await {
            // Nobody has subscribed yet.
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            letters => letters.unwrap(),
        }
    }

    /// Waits until something is so that only files tell.
    pub(crate) async fn until(&self, what: &str, so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !so() {
            assert!(begun.elapsed() < REST_MAX, "it never came about that {what}");
            // waits: the file of another process gives no signal
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the group has settled everything: acknowledged, or dead.
    pub(crate) async fn settled(&self) {
        let queue = postrider_sqlite::connect(self.path("queue.db")).unwrap();
        let statement = "select
            (select count(*) from delivery)
            + (select count(*) from message m where m.seq > coalesce(
                (select max(c.passed) from group_cursor c where c.topic_id = m.topic_id), 0))";
        let open = || queue.query_row(statement, (), |row| row.get::<_, i64>(0)).unwrap();
        self.until("everything is settled", || open() == 0).await;
    }

    /// The results that the inbox keeps, by event.
    pub(crate) fn processed(&self) -> BTreeSet<EventId> {
        let inbox = self.inbox();
        let mut statement =
            inbox.prepare("select event_id from inbox where status = 'processed'").unwrap();
        let rows = statement.query_map((), |row| row.get::<_, String>(0)).unwrap();
        rows.map(|id| id.unwrap().parse().unwrap()).collect()
    }

    /// Whether messages of the group are hidden from others now.
    pub(crate) fn hidden(&self, within: Duration) -> bool {
        let queue = postrider_sqlite::connect(self.path("queue.db")).unwrap();
        let now = "cast(unixepoch('subsec') * 1000 as integer)";
        let statement =
            format!("select count(*) from delivery where head = 1 and visible_at_ms > {now} + ?1");
        let within = i64::try_from(within.as_millis()).unwrap();
        queue.query_row(&statement, [within], |row| row.get::<_, i64>(0)).unwrap() > 0
    }
}

/// An order's event.
pub(crate) fn order(key: &str) -> Event {
    let mut event = Event::new(EventId::mint(), "order", key, TOPIC);
    event.source = Arc::from(SOURCE);
    event.payload = postrider_core::Payload::Json(bytes::Bytes::from_static(b"{\"cents\":1250}"));
    event.headers.insert("traceparent".to_owned(), "00-0af7651916cd43dd-b7ad6b71-01".to_owned());
    event
}
