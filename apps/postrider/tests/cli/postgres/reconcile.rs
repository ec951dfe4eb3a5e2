//! `postrider reconcile` while a relay runs.

use std::collections::BTreeSet;

use super::{Database, err, events, out};
use crate::code;
use crate::running::{Running, until};

/// The numbers that a cursor leaps over.
const LEAPT: i64 = 100;

impl Database {
    fn missing(&self) -> (i32, Vec<serde_json::Value>) {
        let run = self.run(&["reconcile", "--dry-run", "--output", "ndjson"]);
        let rows = out(&run).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (code(&run), rows)
    }

    /// The events of the file, each with whether it came late.
    fn delivered(&self) -> Vec<(String, bool)> {
        let text = std::fs::read_to_string(self.shop.path("events.ndjson")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let late = whole.lines().map(|line| line.contains("postriderlate"));
        events(whole).iter().map(|event| event.id.to_string()).zip(late).collect()
    }
}

/// R098, R105: while a relay runs, and events are on their way, nothing is said to be missing. As soon as its
/// cursors have passed events unread, in the bucket that is being filled, and while it idles, exactly these are
/// named, sent again, and arrive late; then the books agree.
#[test]
fn what_a_running_relay_passed_unread_is_found_at_once() {
    let Some(database) = Database::new("what_a_running_relay_passed_unread") else { return };
    let schema = database.schema.clone();
    let url = database.url();
    let relay = ["relay", "--store", &url, "--to", "file://events.ndjson"];
    let _relay = Running::start(database.shop.command(&relay));
    for _ in 0..4 {
        database.place(50, 5);
        assert_eq!(database.missing(), (0, Vec::new()), "what is on its way is not missing");
    }
    until("all of it arrives", || database.delivered().len() == 1_000);
    let outbox = format!("\"{schema}\".outbox");
    // A cursor that believes that these numbers were given leaves out who comes to have them.
    let last = database.number(&format!("select max(seq) from {outbox}"));
    database.sql(&format!("select setval('\"{schema}\".outbox_seq', {})", last + LEAPT));
    let passed =
        format!("select count(*) from \"{schema}\".outbox_cursor where ground < {}", last + LEAPT);
    until("every cursor passes them", || database.number(&passed) == 0);
    assert_eq!(database.missing(), (0, Vec::new()), "numbers without events");
    database.sql(&format!(
        "insert into {outbox} (seq, aggregate_type, aggregate_id, event_type, payload)
         select {last} + n, 'order', n, 'order.changed', '0' from generate_series(1, 20) n"
    ));
    let (code_found, rows) = database.missing();
    assert_eq!(code_found, 6);
    let named = |field: &str| -> i64 {
        let rows = rows.iter().filter(|row| row["destination"] == "default");
        rows.map(|row| row[field].as_i64().unwrap()).sum()
    };
    assert_eq!(named("found") - named("settled"), 20, "{rows:?}");
    assert_eq!(named("requeue"), 20, "exactly what is missing: {rows:?}");
    assert_eq!(database.delivered().len(), 1_000, "the relay does not look back");
    let run = database.run(&["reconcile", "--destination", "default", "--yes"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    let missed = format!("select count(*) from {outbox} where seq > {last}");
    assert_eq!(database.number(&missed), 20);
    until("what was missed arrives", || database.delivered().len() == 1_020);
    let delivered = database.delivered();
    assert_eq!(delivered.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len(), 1_020);
    assert_eq!(delivered.iter().filter(|(_, late)| *late).count(), 20);
    let again = database.run(&["reconcile", "--dry-run", "--destination", "default"]);
    assert_eq!(code(&again), 0, "{}", err(&again));
    assert!(err(&again).contains("default: the log agrees with the outbox"), "{}", err(&again));
}

/// What cannot be judged is not said to agree: events that nobody has passed yet.
#[test]
fn what_is_not_judged_yet_is_said() {
    let Some(database) = Database::new("what_is_not_judged_yet_is_said") else { return };
    let once = ["--to", "file://events.ndjson", "--once"];
    database.place(5, 1);
    assert_eq!(code(&database.relay(&once)), 0);
    let run = database.run(&["reconcile", "--dry-run"]);
    assert!(!err(&run).contains("judged"), "{}", err(&run));
    database.place(7, 1);
    let run = database.run(&["reconcile", "--dry-run"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert!(err(&run).contains("default: not judged yet: 7 events"), "{}", err(&run));
    assert_eq!(code(&database.relay(&once)), 0);
    let run = database.run(&["reconcile", "--dry-run"]);
    assert!(!err(&run).contains("judged"), "{}", err(&run));
}
