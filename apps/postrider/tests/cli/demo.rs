//! `postrider demo`: the promise under faults, and the ledger seen to fail.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Map, Value};

use crate::{Shop, code, err, out};

/// The only line of standard output, as the ledger.
fn ledger(text: &str) -> Map<String, Value> {
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(text).unwrap()
}

fn number(ledger: &Map<String, Value>, name: &str) -> u64 {
    ledger[name].as_u64().unwrap()
}

/// R001, R002, R004: with relays killed, answers lost, batches doubled, and a handler dead at its
/// work, nothing is lost, nothing is made up, and every effect happens once.
#[test]
fn every_promise_holds_under_faults() {
    let shop = Shop::bare();
    for seed in ["1", "2"] {
        let run = shop.run(&["demo", "--json", "--orders", "24", "--seed", seed]);
        assert_eq!(code(&run), 0, "{}{}", out(&run), err(&run));
        let ledger = ledger(&out(&run));
        let names: Vec<&str> = ledger.keys().map(String::as_str).collect();
        let mut expected = [
            "committed",
            "delivered",
            "duplicates_absorbed",
            "effects",
            "lost",
            "ghosts",
            "order_violations",
            "dead_lettered",
        ];
        let mut sorted = names.clone();
        sorted.sort_unstable();
        expected.sort_unstable();
        assert_eq!(sorted, expected);
        // The refused payment, and the shipment behind it.
        assert_eq!(number(&ledger, "committed"), number(&ledger, "delivered") + 2);
        assert_eq!(number(&ledger, "dead_lettered"), 1);
        assert!(number(&ledger, "duplicates_absorbed") > 0);
        for none in ["lost", "ghosts", "order_violations"] {
            assert_eq!(number(&ledger, none), 0, "{none}");
        }
    }
}

#[test]
fn without_faults_every_event_is_delivered_once() {
    let shop = Shop::bare();
    let run = shop.run(&["demo", "--no-faults", "--json", "--orders", "30"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    let ledger = ledger(&out(&run));
    for (name, expected) in [
        ("committed", 90),
        ("delivered", 90),
        ("effects", 60),
        ("duplicates_absorbed", 0),
        ("dead_lettered", 0),
    ] {
        assert_eq!(number(&ledger, name), expected, "{name}");
    }
}

/// The negative control: a ledger that cannot fail proves nothing.
#[test]
fn a_broken_promise_is_noticed() {
    let shop = Shop::bare();
    let cases = [
        ("loss", "lost"),
        ("ghost", "ghosts"),
        ("disorder", "order_violations"),
        ("double", ""),
        ("missing", ""),
    ];
    for (how, column) in cases {
        let args = ["demo", "--no-faults", "--json", "--orders", "20", "--sabotage", how];
        let run = shop.run(&args);
        assert_eq!(code(&run), 1, "{how}: {}", out(&run));
        let ledger = ledger(&out(&run));
        for name in ["lost", "ghosts", "order_violations"] {
            assert_eq!(number(&ledger, name), u64::from(name == column), "{how}: {name}");
        }
        assert_ne!((number(&ledger, "effects"), column), (40, ""), "{how}");
    }
}

#[test]
fn people_see_a_table_and_may_keep_the_files() {
    let shop = Shop::bare();
    let args = ["demo", "--no-faults", "--orders", "20", "--keep", "kept"];
    let run = shop.run(&args);
    assert_eq!(code(&run), 0, "{}", err(&run));
    let text = out(&run);
    assert!(text.contains("Every promise held.") && text.contains("✓ INV-1"), "{text}");
    assert!(!text.contains('\x1b'), "colours without a terminal");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(shop.path("kept/shop.db").exists() && shop.path("kept/queue.db").exists());
    let again = shop.run(&args);
    assert_eq!(code(&again), 78, "{}", err(&again));
}

/// Interrupted, it leaves no process and no folder behind.
#[test]
fn an_interrupted_demo_takes_its_children_along() {
    let shop = Shop::bare();
    let mut demo = shop
        .command(&["demo", "--orders", "300", "--seed", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(demo.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("killed") {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0, "it ended before a relay was killed");
    }
    let sent = Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
    assert!(sent.success());
    // Children share this pipe: it ends when the last of them is gone.
    while told.read_line(&mut line).unwrap() > 0 {}
    assert_eq!(demo.wait().unwrap().code(), Some(130), "{line}");
    let left: Vec<_> = std::fs::read_dir(shop.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().starts_with("postrider-demo"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
