//! Roles with what the page grants, and no more.

use postrider_core::inbox::Accepted;
use postrider_core::{Event, EventId, HandlerName};
use postrider_postgres::{Inbox, Names};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::Database;
use crate::{code, err, events, out};

const PAGE: &str = include_str!("../../../../../docs/operate/postgres.md");

/// Roles of the cluster, under names of the test's own, which go before the schema does.
struct Roles<'d>(&'d Database);

impl Roles<'_> {
    fn granted(database: &Database) -> Roles<'_> {
        let section = PAGE.split("\n## Roles\n").nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let blocks = section.split("```sql\n").skip(1);
        let grants: String = blocks.filter_map(|block| block.split("```").next()).collect();
        let schema = &database.schema;
        let grants = grants
            .replace("schema postrider", &format!("schema \"{schema}\""))
            .replace("postrider.", &format!("\"{schema}\"."))
            .replace("shop_", &format!("{schema}_"));
        let roles = Roles(database);
        database.sql(&grants);
        roles
    }

    fn url(&self, role: &str) -> String {
        self.0.url().replacen("postgres@", &format!("{}_{role}@", self.0.schema), 1)
    }

    /// A command of the program.
    fn run(&self, role: &str, args: &[&str]) -> std::process::Output {
        let mut command = self.0.shop.command(args);
        command.env("POSTRIDER_STORE", self.url(role)).env("POSTRIDER_USER", "anna");
        command.output().unwrap()
    }

    fn answer(&self, role: &str, args: &[&str]) -> String {
        let run = self.run(role, args);
        assert_eq!(code(&run), 0, "{role}: {args:?}: {}", err(&run));
        out(&run)
    }

    /// Statements in the role's own session, each with the schema's name in its place.
    fn with_client<T>(&self, role: &str, work: impl AsyncFnOnce(&mut Client) -> T) -> T {
        let server = self.0.server.replacen("postgres@", &format!("{}_{role}@", self.0.schema), 1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let connected = tokio_postgres::connect(&server, tokio_postgres::NoTls).await;
            let (mut client, connection) = connected.unwrap();
            let connection = tokio::spawn(connection);
            let found = work(&mut client).await;
            drop(client);
            _ = connection.await;
            found
        })
    }

    /// That the role may do this, or that the server refuses it for want of a privilege.
    fn may(&self, role: &str, allowed: bool, statements: &[&str]) {
        self.with_client(role, async |client| {
            for statement in statements {
                let statement = statement.replace("{s}", &format!("\"{}\"", self.0.schema));
                let ran = client.batch_execute(&statement).await;
                let denied = ran.as_ref().err().and_then(tokio_postgres::Error::code);
                let expected = (!allowed).then_some(&SqlState::INSUFFICIENT_PRIVILEGE);
                assert_eq!(denied, expected, "{role}: {statement}: {ran:?}");
            }
        });
    }
}

impl Drop for Roles<'_> {
    fn drop(&mut self) {
        let own = |role: &str| format!("\"{}_{role}\"", self.0.schema);
        let all = ["operator", "producer", "relay", "consumer"].map(own).join(", ");
        let gone = format!("drop owned by {all}; drop role {all}");
        let dropped = self.0.with_client(async |client| client.batch_execute(&gone).await);
        assert!(dropped.is_ok() || std::thread::panicking(), "{dropped:?}");
    }
}

const ENQUEUED: [&str; 4] = [
    "insert into {s}.outbox (aggregate_type, aggregate_id, event_type, payload, headers)
        values ('order', '1', 'order.placed', '{}', '{\"a\": \"b\"}')",
    "select {s}.enqueue('order', '1', 'order.paid', '{}', serialize => true)",
    "select {s}.enqueue('order', '2', 'order.placed', '{}', due_at => now() + interval '1 h')",
    "select {s}.outbox_backlog()",
];

/// What would be a relay's, an operator's, or a reader's.
const NOT_A_PRODUCERS: [&str; 14] = [
    "select * from {s}.outbox",
    "select * from {s}.outbox_waiting",
    "select * from {s}.outbox_status",
    "select * from {s}.inbox",
    "delete from {s}.outbox",
    "update {s}.outbox_cursor set position = 0",
    "insert into {s}.outbox (seq, aggregate_type, aggregate_id, event_type, payload)
        values (7, 'order', '1', 'order.placed', '{}')",
    "insert into {s}.outbox_request default values",
    "select {s}.outbox_settle(0::smallint, 'a', 1, gen_random_uuid(), true, '{}')",
    "select {s}.outbox_carry_out(0::smallint, 'a', 1, '{}', 1)",
    "select {s}.outbox_ahead()",
    "select {s}.outbox_detach()",
    "select {s}.outbox_empty(0::smallint, 'a', 1, 1)",
    "select {s}.inbox_accept('/s', gen_random_uuid(), 'h', 't', '')",
];

/// A producer, a relay, an operator, and a consumer can each do their work with what the page grants; a
/// producer can neither settle, redrive, nor read, and a consumer cannot reach the outbox.
#[test]
fn each_role_does_its_work_and_no_more() {
    let Some(database) = Database::new("each_role_does_its_work") else { return };
    let roles = Roles::granted(&database);
    roles.may("producer", true, &ENQUEUED);
    roles.may("producer", false, &NOT_A_PRODUCERS);

    let delivered = roles.answer("relay", &["relay", "--to", "stdout", "--once"]);
    assert_eq!(events(&delivered).len(), 2, "{delivered}");

    let doctor = roles.run("operator", &["doctor", "--output", "ndjson"]);
    assert!(out(&doctor).contains("this user has what relay and inbox need"), "{}", out(&doctor));
    roles.answer("operator", &["status", "--rate", "0"]);
    roles.answer("operator", &["outbox", "ls", "--all"]);
    roles.answer("operator", &["dead", "ls"]);
    roles.answer("operator", &["reconcile", "--dry-run"]);
    let rewind = ["destinations", "rewind", "default", "--to", "beginning", "--yes", "--wait", "0"];
    roles.answer("operator", &rewind);
    let again = roles.answer("relay", &["relay", "--to", "stdout", "--once"]);
    assert_eq!(events(&again).len(), 2, "the relay carries out what the operator asked for");
    assert!(roles.answer("operator", &["audit"]).contains("anna"));

    let mut event = Event::new(EventId::from_u128(1), "order", "1", "order.placed");
    event.source = "/shop".into();
    let names = Names::new(&database.schema, "outbox", "inbox").unwrap();
    let (inbox, billing) = (Inbox::named(&names), HandlerName::new("billing").unwrap());
    roles.with_client("consumer", async |client| {
        for expected in [Accepted::FirstTime, Accepted::Duplicate] {
            let tx = client.transaction().await.unwrap();
            assert_eq!(inbox.accept(&tx, &event, &billing).await.unwrap(), expected);
            tx.commit().await.unwrap();
        }
    });
    roles.may("consumer", false, &NOT_A_PRODUCERS[..2]);
    let denied = roles.run("producer", &["dead", "ls"]);
    assert_ne!(code(&denied), 0);
    assert!(
        err(&denied).contains("privilege") || err(&denied).contains("permission"),
        "{}",
        err(&denied)
    );
}
