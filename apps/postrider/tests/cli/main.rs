//! The binary as people and scripts run it: arguments in; data, exit codes, and advice out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(feature = "aws")]
mod aws;
#[cfg(any(feature = "aws", feature = "kafka", feature = "nats"))]
mod broker;
#[cfg(feature = "nats")]
mod certificates;
mod changed;
mod chaos;
mod configured;
mod crowd;
mod demo;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod elsewhere;
mod examples;
mod exits;
mod help;
mod init;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod offline;
mod once;
mod operate;
mod postgres;
#[cfg(feature = "aws")]
mod queue;
#[cfg(feature = "aws")]
mod queue_tasks;
mod running;
mod signals;
mod standing;
mod writers;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use postrider_core::{Event, cloudevents};
use rusqlite::Connection;

/// A folder with a shop's database, and the commands run in it.
struct Shop {
    folder: tempfile::TempDir,
}

impl Shop {
    /// A folder without a database.
    fn bare() -> Shop {
        Shop { folder: tempfile::tempdir().unwrap() }
    }

    /// A folder with an initialised database.
    fn new() -> Shop {
        let shop = Shop::bare();
        let init = shop.run(&["init", "sqlite://shop.db"]);
        assert_eq!(code(&init), 0, "{}", err(&init));
        shop
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn connect(&self) -> Connection {
        postrider_sqlite::connect(self.path("shop.db")).unwrap()
    }

    /// Commits events by plain SQL, one order each.
    fn place(&self, orders: std::ops::Range<u32>) {
        let mut connection = self.connect();
        let tx = connection.transaction().unwrap();
        for order in orders {
            tx.execute(
                "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
                 values ('order', ?1, 'order.placed', '{\"cents\": 1250}')",
                [order.to_string()],
            )
            .unwrap();
        }
        tx.commit().unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null());
        // A killed relay leaves its proof of life here.
        command.env("TMPDIR", self.folder.path());
        for name in postrider_testkit::services::variables() {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs `relay --store sqlite://shop.db` with more arguments.
    fn relay(&self, args: &[&str]) -> Output {
        self.run(&[&["relay", "--store", "sqlite://shop.db"], args].concat())
    }
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Standard error with its line breaks taken out, to look for sentences in it.
fn said(output: &Output) -> String {
    err(output).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every line as a CloudEvent.
fn events(text: &str) -> Vec<Event> {
    text.lines().map(|line| cloudevents::parse(line.as_bytes()).unwrap().0).collect()
}

fn orders(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| &*event.aggregate_id).collect()
}
