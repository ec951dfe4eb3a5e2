//! The program on PostgreSQL, in a schema of its own: made, written to, relayed, killed, and looked at.

mod bloat;
mod configured;
mod elsewhere;
mod killed;
mod looked_at;
mod mended;
mod misplaced;
mod own;
mod reconcile;
mod reverted;
mod roles;
mod uneven;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Output, Stdio};

use postrider_core::Event;
use postrider_testkit::services;

use crate::running::Running;
use crate::{Shop, code, err, events, out, said};

/// A schema that is dropped with this value, and a folder for the commands.
pub(crate) struct Database {
    server: String,
    pub(crate) schema: String,
    pub(crate) shop: Shop,
}

impl Database {
    /// None where there is no server; the reason is printed.
    #[allow(clippy::print_stdout, reason = "a skipped test says why")]
    fn bare(test: &str) -> Option<Database> {
        let server = match services::postgres() {
            Ok(url) => url,
            Err(reason) => {
                println!("skipped: {test}: {reason}");
                return None;
            }
        };
        let shop = Shop::bare();
        // The folder's name is random.
        let letters = shop.folder.path().file_name().unwrap().to_str().unwrap();
        let letters: String = letters.bytes().fold(String::new(), |mut name, byte| {
            write!(name, "{byte:02x}").unwrap();
            name
        });
        Some(Database { server, schema: format!("c{letters}"), shop })
    }

    /// With the tables.
    pub(crate) fn new(test: &str) -> Option<Database> {
        let database = Database::bare(test)?;
        let init = database.run(&["init", &database.url(), "--partitions", "4"]);
        assert_eq!(code(&init), 0, "{}", err(&init));
        Some(database)
    }

    pub(crate) fn url(&self) -> String {
        let mark = if self.server.contains('?') { '&' } else { '?' };
        format!("{}{mark}schema={}", self.server, self.schema)
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = self.shop.command(args);
        command.env("POSTRIDER_STORE", self.url()).env("POSTRIDER_USER", "anna");
        command.output().unwrap()
    }

    /// What a command answers that succeeds.
    fn answer(&self, args: &[&str]) -> String {
        let run = self.run(args);
        assert_eq!(code(&run), 0, "{args:?}: {}", err(&run));
        out(&run)
    }

    /// The rows of a list.
    fn rows(&self, args: &[&str]) -> Vec<serde_json::Value> {
        let text = self.answer(&[args, &["--output", "ndjson"]].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Finds nothing critical but what the server of the tests is: without fsync.
    fn is_sound(&self) {
        let run = self.run(&["doctor", "--output", "ndjson"]);
        let text = out(&run);
        let found: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(found.len() > 10, "{}", err(&run));
        for finding in found.iter().filter(|finding| finding["level"] == "critical") {
            assert_eq!(finding["subject"], "durability", "{finding}");
        }
    }

    fn relay(&self, args: &[&str]) -> Output {
        self.run(&[&["relay", "--store", &self.url()], args].concat())
    }

    /// Commits so many events of each of so many orders, numbered in the order of the commits.
    fn place(&self, orders: u32, events_of_each: u32) {
        let mut lines = String::new();
        for number in 0..events_of_each {
            for order in 0..orders {
                writeln!(
                    lines,
                    "{{\"aggregate_type\": \"order\", \"aggregate_id\": \"{order}\", \
                     \"type\": \"order.changed\", \"payload\": {number}}}"
                )
                .unwrap();
            }
        }
        let mut command = self.shop.command(&["enqueue", "--ndjson", "-"]);
        command.env("POSTRIDER_STORE", self.url()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // It answers while it reads, and a full pipe would stop both.
        let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
        let enqueued = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert_eq!(code(&enqueued), 0, "{}", err(&enqueued));
        assert_eq!(out(&enqueued).lines().count(), (orders * events_of_each) as usize);
    }

    fn with_client<T>(&self, work: impl AsyncFnOnce(&tokio_postgres::Client) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let connected = tokio_postgres::connect(&self.server, tokio_postgres::NoTls).await;
            let (client, connection) = connected.unwrap();
            let connection = tokio::spawn(connection);
            let found = work(&client).await;
            drop(client);
            _ = connection.await;
            found
        })
    }

    pub(crate) fn sql(&self, text: &str) {
        self.with_client(async |client| client.batch_execute(text).await.unwrap());
    }

    fn number(&self, text: &str) -> i64 {
        self.with_client(async |client| client.query_one(text, &[]).await.unwrap().get(0))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.sql(&format!(
            "set lock_timeout = '5s'; drop schema if exists \"{}\" cascade",
            self.schema
        ));
    }
}

/// First deliveries of each key, which must be in the order of its commits.
fn in_order(delivered: &[Event]) -> BTreeMap<String, Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut of_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for event in delivered.iter().filter(|event| seen.insert(event.id)) {
        let payload = String::from_utf8(event.payload.as_bytes().to_vec()).unwrap();
        of_key.entry(event.aggregate_id.to_string()).or_default().push(payload);
    }
    of_key
}

/// The tables are made once; what is pending is listed before and after.
#[test]
fn tables_are_made_once_and_their_migrations_listed() {
    let Some(database) = Database::bare("tables_are_made_once") else { return };
    let pending = database.run(&["migrate", "status"]);
    assert_eq!(code(&pending), 6, "{}", err(&pending));
    assert!(out(&pending).contains("pending"), "{}", out(&pending));
    let early = database.relay(&["--to", "stdout", "--once"]);
    assert!(said(&early).contains("PR-1001"), "{}", err(&early));

    let url = database.url();
    let first = database.run(&["init", &url, "--partitions", "4", "--source", "/shop"]);
    assert_eq!(code(&first), 0, "{}", err(&first));
    assert!(said(&first).contains("created the tables"), "{}", err(&first));
    let again = database.run(&["init", &url]);
    assert_eq!((code(&again), out(&again).as_str()), (0, ""), "{}", err(&again));
    assert!(said(&again).contains("nothing was changed"), "{}", err(&again));
    let other = database.run(&["init", &url, "--partitions", "8"]);
    assert_ne!(code(&other), 0, "partitions are for ever");

    let rows = database.rows(&["migrate", "status"]);
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row["state"], "applied", "{row}");
        assert!(row["applied_at"].is_string(), "{row}");
    }
    let told = database.run(&["migrate", "status"]);
    assert!(said(&told).contains("4 partitions, partitioned"), "{}", err(&told));
    database.is_sound();
}

/// What `--print` writes makes the tables that `init` makes.
#[test]
fn printed_sql_makes_the_tables() {
    let Some(database) = Database::bare("printed_sql_makes_the_tables") else { return };
    let printed = database.answer(&["init", &database.url(), "--partitions", "4", "--print"]);
    assert_eq!(code(&database.run(&["migrate", "status"])), 6, "--print touched the database");
    database.sql(&printed);
    assert!(database.answer(&["migrate", "status"]).contains("applied"));
    database.place(5, 1);
    let run = database.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert_eq!(events(&out(&run)).len(), 5);
}

/// R038: one run delivers what is committed, ends with 0, and the next delivers nothing again; and the
/// operators' commands say what became of it.
#[test]
fn one_run_delivers_what_is_committed_and_operators_see_it() {
    let Some(database) = Database::new("one_run_delivers_what_is_committed") else { return };
    database.place(20, 3);
    let first = database.relay(&["--to", "file://events.ndjson", "--once"]);
    assert_eq!(code(&first), 0, "{}", err(&first));
    let file = std::fs::read_to_string(database.shop.path("events.ndjson")).unwrap();
    let delivered = events(&file);
    assert_eq!(delivered.len(), 60);
    let of_key = in_order(&delivered);
    assert_eq!(of_key.len(), 20);
    assert!(of_key.values().all(|payloads| payloads == &["0", "1", "2"]), "{of_key:?}");
    let second = database.relay(&["--to", "stdout", "--once"]);
    assert_eq!((code(&second), out(&second).as_str()), (0, ""), "{}", err(&second));

    let status = database.run(&["status", "--rate", "0"]);
    assert_eq!(code(&status), 0, "{}{}", out(&status), err(&status));
    assert_eq!(database.rows(&["outbox", "ls", "--all"]).len(), 60);
    let id = delivered[0].id.to_string();
    assert!(database.answer(&["outbox", "show", &id]).contains(&id));
    assert_eq!(database.rows(&["dead", "ls"]).len(), 0);
    assert_eq!(database.rows(&["partitions", "ls"]).len(), 4);
    assert!(database.answer(&["destinations", "ls"]).contains("default"));
    database.is_sound();
    database.answer(&["reconcile", "--dry-run"]);
    // What is asked for is carried out by the next run.
    database.answer(&[
        "destinations",
        "rewind",
        "default",
        "--to",
        "beginning",
        "--yes",
        "--wait",
        "0",
    ]);
    let replayed = database.relay(&["--to", "stdout", "--once"]);
    assert_eq!(events(&out(&replayed)).len(), 60, "{}", err(&replayed));
    assert!(database.answer(&["audit"]).contains("anna"));
}

/// F1, INV-1, INV-3: a relay that is killed while it publishes loses nothing; the next one finishes, and each
/// key's first deliveries are in the order of the commits.
#[test]
fn a_killed_relay_loses_nothing() {
    const ORDERS: u32 = 100;
    const EACH: u32 = 30;
    let Some(database) = Database::new("a_killed_relay_loses_nothing") else { return };
    database.place(ORDERS, EACH);
    let url = database.url();
    let mut killed = database
        .shop
        .command(&["relay", "--store", &url, "--to", "stdout"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Whoever reads one line stops it in the middle: the pipe holds far less than all of them.
    let mut stdout = BufReader::new(killed.stdout.take().unwrap());
    let mut text = String::new();
    stdout.read_line(&mut text).unwrap();
    killed.kill().unwrap();
    stdout.read_to_string(&mut text).unwrap();
    killed.wait().unwrap();
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    let mut delivered = events(&text);
    let total = (ORDERS * EACH) as usize;
    assert!(delivered.len() < total, "it was not in the middle");

    let rest = database.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&rest), 0, "{}", err(&rest));
    delivered.extend(events(&out(&rest)));
    let of_key = in_order(&delivered);
    let expected: Vec<String> = (0..EACH).map(|number| number.to_string()).collect();
    assert_eq!(of_key.len(), ORDERS as usize);
    for (key, payloads) in &of_key {
        assert_eq!(payloads, &expected, "order {key}");
    }
}

/// R121: a sidecar says to its inbox for how long it relies on it, before it takes the first message.
#[test]
fn a_sidecar_records_for_how_long_a_message_may_come_again() {
    let Some(database) = Database::new("a_sidecar_records_its_horizon") else { return };
    let inbox = database.url();
    let args = ["--from", "local://queue.db/order.*", "--group", "billing", "--inbox", &*inbox];
    let more = ["--to", "http://127.0.0.1:9/events", "--attempts", "10", "--lease", "60s"];
    let command = database.shop.command(&[&["consume"][..], &args, &more].concat());
    let mut sidecar = Running::start(command);
    sidecar.wait_for("receiving");
    let horizon = format!(
        "select cast(extract(epoch from horizon) as bigint) from \"{}\".inbox_horizon
         where handler = 'billing'",
        database.schema
    );
    assert_eq!(database.number(&horizon), 35 * 86_400, "as long as the inbox is to remember");
    assert!(sidecar.stop().success());
    let short = [&["consume"][..], &args, &more, &["--retention", "1h"]].concat();
    assert_eq!(code(&database.run(&short)), 78, "it would forget what may come again");
}

/// R121: handlers share an inbox. One that need not remember for long leaves what another one's events are known by, or they
/// would act twice (INV-4).
#[test]
fn a_sidecar_that_forgets_soon_leaves_what_others_rely_on() {
    let Some(database) = Database::new("a_sidecar_that_forgets_soon") else { return };
    let (inbox, schema) = (database.url(), &database.schema);
    let start = |handler: &str, retention: &str| {
        let from = ["consume", "--from", "local://queue.db/order.*", "--to", "http://127.0.0.1:9/"];
        let of = ["--inbox", &*inbox, "--group", handler, "--retention", retention];
        Running::start(database.shop.command(&[&from[..], &of].concat()))
    };
    let mut billing = start("billing", "35d");
    billing.wait_for("receiving");
    assert!(billing.stop().success());
    database.sql(&format!(
        "insert into \"{schema}\".inbox (source, event_id, handler, event_type, status, payload_hash, processed_at)
         select '/shop', gen_random_uuid(), handler, 't', 'processed', decode(repeat('01', 32), 'hex'), now() - age
         from (values ('billing', interval '3 hours'), ('gone', interval '40 days')) done (handler, age)"
    ));
    let mut metrics = start("metrics", "2h");
    metrics.wait_for("purged what the inbox need not remember rows=1");
    assert!(metrics.stop().success());
    let left = format!("select count(*) from \"{schema}\".inbox where handler = 'billing'");
    assert_eq!(database.number(&left), 1);
}

/// R087: stored results and steps may go before their rows do, when the sidecar is told so: what was done stays known.
#[test]
fn a_sidecar_lets_results_go_before_their_rows() {
    let Some(database) = Database::new("a_sidecar_lets_results_go") else { return };
    let schema = &database.schema;
    database.sql(&format!(
        "set search_path = \"{schema}\";
         insert into inbox (source, event_id, handler, event_type, status, payload_hash, processed_at)
         select '/shop', lpad(n::text, 32, '0')::uuid, 'billing', 't', 'processed', decode(repeat('01', 32), 'hex'),
             now() - (n % 2) * interval '3 days'
         from generate_series(1, 2400) n;
         insert into inbox_result (source, event_id, handler, result, completed_at)
         select source, event_id, handler, 'paid', processed_at from inbox;
         insert into inbox_step (source, event_id, handler, step, result, completed_at)
         select source, event_id, handler, 'charge', 'ch', processed_at from inbox"
    ));
    let inbox = database.url();
    let args = ["--from", "local://queue.db/order.*", "--group", "billing", "--inbox", &*inbox];
    let more = ["--to", "http://127.0.0.1:9/events", "--result-retention", "2d"];
    let command = database.shop.command(&[&["consume"][..], &args, &more].concat());
    let mut sidecar = Running::start(command);
    sidecar.wait_for("purged results");
    assert!(sidecar.stop().success());
    let left = |table: &str| database.number(&format!("select count(*) from \"{schema}\".{table}"));
    assert_eq!((left("inbox_result"), left("inbox_step")), (1_200, 1_200));
    assert_eq!(left("inbox"), 2_400, "that it was done is still known");
}

/// What one store has, the other refuses by name.
#[test]
fn repair_of_partitions_is_for_postgresql_alone() {
    let shop = Shop::new();
    let repair = ["repair", "partitions", "--yes", "--reason", "moved"];
    let refused =
        shop.command(&repair).env("POSTRIDER_STORE", "sqlite://shop.db").output().unwrap();
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(said(&refused).contains("SQLite"), "{}", err(&refused));
    let refused = shop.run(&["init", "sqlite://other.db", "--partitions", "8"]);
    assert_eq!(code(&refused), 78, "{}", err(&refused));
    assert!(!shop.path("other.db").exists());

    let Some(database) = Database::new("repair_of_partitions") else { return };
    let nothing = database.run(&repair);
    assert_eq!((code(&nothing), out(&nothing).trim()), (0, "0"), "{}", err(&nothing));
    // As if another server had made the tables.
    database.place(10, 1);
    let meta =
        format!("update \"{}\".outbox_meta set value = '1' where key = 'hash'", database.schema);
    database.sql(&meta);
    let stopped = database.relay(&["--to", "stdout", "--once"]);
    assert!(said(&stopped).contains("PR-1011"), "{}", err(&stopped));
    assert!(said(&stopped).contains("repair partitions"), "{}", err(&stopped));
    database.answer(&repair);
    let run = database.relay(&["--to", "stdout", "--once"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert_eq!(events(&out(&run)).len(), 10);
}
