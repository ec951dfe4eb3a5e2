//! The operators' commands, on a store with events of every kind.

mod bulk;
mod dead;
mod destinations;
mod enqueue;
mod erase;
mod inbox;
mod outbox;
mod pages;
mod reconcile;
mod status;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::Output;

use postrider_core::KeyHash;
use rusqlite::params;

use crate::{Shop, code, err};

/// Events were created so long ago, in seconds: half an hour away from the next "h ago".
const CREATED: i64 = 5 * 86_400 + 2 * 3_600 + 1_800;

/// Dead letters died so long ago.
const DIED: i64 = 86_400 + 3_600 + 1_800;

/// The id of the event with a number.
pub(crate) fn id(number: u32) -> String {
    format!("01941f29-7c00-7000-8000-{number:012}")
}

impl Shop {
    /// A shop with events 1 to 6, all delivered, and `POSTRIDER_STORE` unset.
    pub(crate) fn delivered() -> Shop {
        let shop = Shop::new();
        shop.commit(1..=6);
        shop.carry();
        shop.settle_down();
        shop
    }

    /// Commits events with ids that are known, from days ago: two of each key.
    pub(crate) fn commit(&self, numbers: std::ops::RangeInclusive<u32>) {
        let connection = self.connect();
        for number in numbers {
            let order = number.div_ceil(2);
            let kind = if number % 2 == 1 { "order.placed" } else { "order.paid" };
            connection
                .execute(
                    "insert into outbox
                        (id, source, aggregate_type, aggregate_id, event_type, payload, created_at,
                         occurred_at)
                     values (?1, '/shop', 'order', ?2, ?3, json_object('cents', 100 * ?4),
                        strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?5),
                        strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?5))",
                    params![
                        id(number),
                        order.to_string(),
                        kind,
                        number,
                        format!("-{CREATED} seconds")
                    ],
                )
                .unwrap();
        }
    }

    /// Delivers what is committed to a file.
    pub(crate) fn carry(&self) -> Output {
        self.relay(&["--to", "file://events.ndjson", "--once"])
    }

    /// Lets the last run be long ago: its relay is gone, and nothing moved lately.
    pub(crate) fn settle_down(&self) {
        self.connect()
            .execute_batch(
                "delete from outbox_relay;
                 update outbox_cursor set saved_at = saved_at - 5400000;
                 update outbox_settled set saved_at = saved_at - 5400000;
                 update outbox_audit set at = at - 5400000;",
            )
            .unwrap();
    }

    /// The ids of what was delivered, in order.
    pub(crate) fn arrived(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("events.ndjson")).unwrap_or_default();
        crate::events(&text).iter().map(|event| event.id.to_string()).collect()
    }

    /// Makes dead letters of delivered events, as if they had been refused.
    pub(crate) fn bury(&self, numbers: &[u32], state: &str) {
        let connection = self.connect();
        for number in numbers {
            let order = number.div_ceil(2).to_string();
            let key = format!("order/{order}");
            connection
                .execute(
                    "insert into outbox_waiting
                        (destination, partition, seq, key, key_hash, state, holds_key, next_at, attempts,
                         reason, detail, endpoint, moved_at, id, source, aggregate_type, aggregate_id,
                         event_type, event_version, payload, content_type, headers, format,
                         occurred_at, created_at)
                     select 'default', 0, seq, ?2, ?3, ?4, 1, 0, 3, 'rejected',
                        '422: no such customer', case ?4 when 'disabled' then 'hook' end,
                        cast(strftime('%s', 'now') as integer) * 1000 - ?5 * 1000,
                        id, source, aggregate_type, aggregate_id, event_type, event_version, payload,
                        content_type, headers, format, occurred_at, created_at
                     from outbox where id = ?1",
                    params![id(*number), key, KeyHash::of(&key).0.cast_signed(), state, DIED],
                )
                .unwrap();
        }
    }

    /// Runs a command on the store.
    pub(crate) fn operate(&self, args: &[&str]) -> Output {
        self.operator(args).output().unwrap()
    }

    /// The same, not started yet.
    pub(crate) fn operator(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.command(args);
        command.env("POSTRIDER_STORE", "sqlite://shop.db");
        command.env("POSTRIDER_USER", "anna@db1");
        command.env_remove("COLUMNS").env_remove("NO_COLOR");
        command
    }

    /// Runs a command that must succeed, and returns what it wrote.
    pub(crate) fn answer(&self, args: &[&str]) -> String {
        let output = self.operate(args);
        assert_eq!(code(&output), 0, "{args:?}: {}", err(&output));
        crate::out(&output)
    }

    /// The same, as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let text = self.answer(&[args, &["--output", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
    }

    /// A number out of the database.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.connect().query_row(sql, (), |row| row.get(0)).unwrap()
    }

    /// Writes down a relay that renews its presence and does nothing.
    pub(crate) fn pretend_alive(&self) {
        self.connect()
            .execute(
                "insert into outbox_relay (owner, current, expires_at)
                 values ('relay-asleep', 1, cast(strftime('%s', 'now') as integer) * 1000 + 600000)",
                (),
            )
            .unwrap();
    }

    /// A relay that runs until it is dropped, and carries out requests.
    pub(crate) fn daemon(&self) -> Daemon {
        let child = self
            .command(&["relay", "--store", "sqlite://shop.db", "--to", "file://events.ndjson"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Daemon(child);
        // A relay is alive once it owns the partition.
        while self.number("select count(*) from outbox_lease where owner is not null") == 0 {
            std::thread::sleep(std::time::Duration::from_millis(5)); // waits: for another process
        }
        daemon
    }
}

/// A running relay.
pub(crate) struct Daemon(std::process::Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Shop {
    /// Compares an answer with a file. The folder is another one in each run.
    pub(crate) fn golden(&self, name: &str, text: &str) {
        golden(name, &text.replace(self.folder.path().to_str().unwrap(), "/folder"));
    }
}

/// Compares with a file, or writes it where `BLESS=1` is set.
pub(crate) fn golden(name: &str, text: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden").join(name);
    let text = normal(text);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name} differs; BLESS=1 writes it anew");
}

/// The text with every moment replaced, which is another one in each run.
fn normal(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(symbol) = rest.chars().next() {
        let length = moment(rest);
        if length > 0 {
            plain.push_str("<time>");
            rest = &rest[length..];
        } else {
            plain.push(symbol);
            rest = &rest[symbol.len_utf8()..];
        }
    }
    plain
}

/// The length of the RFC 3339 moment that the text begins with, or 0.
fn moment(text: &str) -> usize {
    let bytes = text.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = bytes.len() > shape.len()
        && shape.iter().zip(bytes).all(|(shape, byte)| match shape {
            b'd' => byte.is_ascii_digit(),
            other => other == byte,
        });
    let end = bytes.iter().skip(shape.len()).position(|byte| *byte == b'Z');
    match end {
        Some(end) if fits && end <= 10 => shape.len() + end + 1,
        _ => 0,
    }
}

#[test]
fn moments_are_taken_out_of_golden_texts() {
    assert_eq!(normal("a 2026-01-02T03:04:05.123Z b 2026-01-02T03:04:05Z."), "a <time> b <time>.");
    assert_eq!(normal("0194-1f29 2026-01-02"), "0194-1f29 2026-01-02");
}
