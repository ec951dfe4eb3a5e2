//! A table of the application's own, served by the program, and compared with the loop that serves it.

use super::Database;
use crate::{code, err, events, out, said};

impl Database {
    /// A table of the layout `published_at`, Postrider's own with one partition, and a configuration that serves it
    /// to standard output.
    fn with_own_table(test: &str, more: &str) -> Option<Database> {
        Database::beside_partitions(test, "1", more)
    }

    /// The same beside tables of so many partitions.
    fn beside_partitions(test: &str, partitions: &str, more: &str) -> Option<Database> {
        let database = Database::bare(test)?;
        let init = database.run(&["init", &database.url(), "--partitions", partitions]);
        assert_eq!(code(&init), 0, "{}", err(&init));
        database.sql(&database.named(
            "create table SCHEMA.own_events (
                seq bigint generated always as identity unique, id uuid primary key default gen_random_uuid(),
                aggregate_type text not null, aggregate_id text not null, event_type text not null,
                payload jsonb, created_at timestamptz not null default clock_timestamp(),
                published_at timestamptz)",
        ));
        let text = format!(
            "store = \"{}\"\n[own_table]\ntable = \"{}.own_events\"\n{more}\n\
             [destinations.screen]\nkind = \"stdout\"\n",
            database.url(),
            database.schema
        );
        std::fs::write(database.shop.path("own.toml"), text).unwrap();
        Some(database)
    }

    fn named(&self, text: &str) -> String {
        text.replace("SCHEMA", &format!("\"{}\"", self.schema))
    }

    /// Commits an event of each of these orders.
    fn write_own(&self, orders: std::ops::Range<u32>) {
        let (first, last) = (orders.start, orders.end - 1);
        self.sql(&self.named(&format!(
            "insert into SCHEMA.own_events (aggregate_type, aggregate_id, event_type, payload)
            select 'order', n::text, 'order.placed', to_jsonb(n) from generate_series({first}, {last}) n"
        )));
    }

    fn serve_own(&self) -> std::process::Output {
        let run = self.shop.command(&["relay", "--config", "own.toml", "--once"]).output().unwrap();
        assert_eq!(code(&run), 0, "{}", err(&run));
        run
    }

    fn pending_own(&self) -> i64 {
        let pending = "select count(*) from SCHEMA.own_events where published_at is null";
        self.number(&self.named(pending))
    }
}

fn orders(run: &std::process::Output) -> Vec<String> {
    events(&out(run)).iter().map(|event| event.aggregate_id.to_string()).collect()
}

/// A relay with `[own_table]` publishes what is pending in the order of its numbers, and marks it: another run finds
/// nothing, and then only what is new.
#[test]
fn a_table_of_ones_own_is_relayed_and_marked() {
    let Some(database) = Database::with_own_table("a_table_of_ones_own", "") else { return };
    database.write_own(1..4);
    assert_eq!(orders(&database.serve_own()), ["1", "2", "3"]);
    assert_eq!(database.pending_own(), 0, "each is marked");
    assert_eq!(orders(&database.serve_own()), [""; 0]);
    database.write_own(4..5);
    assert_eq!(orders(&database.serve_own()), ["4"]);
    assert_eq!(database.pending_own(), 0);
}

/// INV-8: what nobody has read yet of a table of one's own is pending on the screen, and by the exit code.
#[test]
fn what_is_pending_in_a_table_of_ones_own_is_told() {
    let Some(database) = Database::with_own_table("what_is_pending", "") else { return };
    database.serve_own();
    let status = || {
        let read = ["status", "--config", "own.toml", "--rate", "0", "--output", "json"];
        let run = database.shop.command(&read).output().unwrap();
        let told: serde_json::Value = serde_json::from_str(&out(&run)).unwrap();
        let screen = told["destinations"].as_array().unwrap().iter();
        let screen = screen.clone().find(|row| row["destination"] == "screen").unwrap();
        (code(&run), screen["pending"].as_u64(), screen["pending_since"].is_string())
    };
    assert_eq!(status(), (0, Some(0), false));
    database.write_own(1..4);
    assert_eq!(status(), (6, Some(3), true), "no relay is alive");
    database.serve_own();
    assert_eq!(status(), (0, Some(0), false));
}

/// INV-8, R082: the doctor looks at the table that a relay serves: what is pending there, which columns it has, and whether a
/// poll reads all of it.
#[test]
fn the_doctor_looks_at_a_table_of_ones_own() {
    let Some(database) = Database::with_own_table("the_doctor_looks_at_a_table", "") else {
        return;
    };
    database.serve_own();
    let doctor = || {
        let read = ["doctor", "--config", "own.toml", "--output", "ndjson"];
        let run = database.shop.command(&read).output().unwrap();
        let found: Vec<_> = out(&run).lines().map(str::to_owned).collect();
        let about = |words: &str| found.iter().filter(|line| line.contains(words)).count();
        (
            about("(3 pending)"),
            about("PR-1722"),
            about("no such column"),
            about("may be read and marked"),
        )
    };
    assert_eq!(doctor(), (0, 1, 0, 0), "without an index");
    database
        .sql(&database.named("create index on SCHEMA.own_events (seq) where published_at is null"));
    assert_eq!(doctor(), (0, 0, 0, 1), "with one");
    database.write_own(1..4);
    assert_eq!(doctor(), (1, 0, 0, 1), "nobody publishes what is pending");
    database.serve_own();
    assert_eq!(doctor(), (0, 0, 0, 1), "nothing is pending");
    database.sql(&database.named("alter table SCHEMA.own_events rename payload to body"));
    assert_eq!(doctor(), (0, 0, 1, 0), "no relay could read it");
}

/// R082: nor is the doctor content where no relay starts: the tables beside were made for more than one partition.
#[test]
fn the_doctor_says_why_no_relay_serves_a_table_of_ones_own() {
    let Some(database) = Database::beside_partitions("the_doctor_says_why", "4", "") else {
        return;
    };
    let read = ["doctor", "--config", "own.toml", "--output", "ndjson"];
    let told = out(&database.shop.command(&read).output().unwrap());
    let of_table = told.lines().find(|line| line.contains("own table")).unwrap();
    assert!(of_table.contains("critical") && of_table.contains("one partition"), "{of_table}");
    let run = database.shop.command(&["relay", "--config", "own.toml", "--once"]).output().unwrap();
    assert!(code(&run) == 78 && said(&run).contains("one partition"), "{}", err(&run));
}

/// INV-1: where events stand in a table of one's own, none is put into the outbox, which nobody reads; a command that looks at
/// the outbox alone says so, and vouches for nothing.
#[test]
fn commands_of_the_outbox_say_that_events_stand_elsewhere() {
    let Some(database) = Database::with_own_table("commands_of_the_outbox", "") else { return };
    database.serve_own();
    let run = |args: &[&str]| {
        database.shop.command(args).args(["--config", "own.toml"]).output().unwrap()
    };
    let recount = run(&["reconcile", "--dry-run"]);
    assert_eq!((code(&recount), said(&recount).contains("no log")), (1, true), "{}", err(&recount));
    for args in
        [&["outbox", "ls"][..], &["erase", "--key", "order/1", "--reason", "asked", "--dry-run"]]
    {
        let told = run(args);
        assert!(said(&told).contains("own_events`"), "{}", err(&told));
        assert_eq!(code(&told), 0, "{}", err(&told));
    }
}

/// With `compare = true` it publishes and marks nothing, and says at its end which rows it and the loop published.
#[test]
fn a_comparison_marks_nothing_and_says_what_the_loop_did() {
    let Some(database) = Database::with_own_table("a_comparison", "compare = true") else { return };
    database.serve_own();
    database.write_own(1..5);
    let mark = "update SCHEMA.own_events set published_at = now() where aggregate_id in ('1', '3')";
    database.sql(&database.named(mark));
    let run = database.serve_own();
    assert_eq!(orders(&run), ["1", "2", "3", "4"]);
    assert_eq!(database.pending_own(), 2, "the loop's marks alone");
    let told = said(&run);
    assert!(told.contains("compared: 2 were published by both"), "{told}");
    assert!(told.contains("2 only Postrider would have published: 2, 4"), "{told}");
}
