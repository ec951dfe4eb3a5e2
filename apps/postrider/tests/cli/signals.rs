//! Signals: how a daemon is stopped.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::{Shop, code, err, events, orders, out};

/// Starts a daemon, waits until it has delivered so many events, sends the signal, and returns its
/// exit code and the rest of what it wrote.
fn stopped_by(signal: &str, shop: &Shop, delivered: usize) -> (i32, String) {
    let mut daemon = shop
        .command(&["relay", "--store", "sqlite://shop.db", "--to", "stdout"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(daemon.stdout.take().unwrap());
    let mut text = String::new();
    for _ in 0..delivered {
        stdout.read_line(&mut text).unwrap();
    }
    let sent = Command::new("kill").args([signal, &daemon.id().to_string()]).status().unwrap();
    assert!(sent.success());
    while stdout.read_line(&mut text).unwrap() > 0 {}
    (daemon.wait().unwrap().code().expect("it ended by itself"), text)
}

/// A drained daemon has saved what it sent: nothing comes twice, and nothing is missing.
#[test]
fn either_signal_drains_and_ends_with_0() {
    for signal in ["-TERM", "-INT"] {
        let shop = Shop::new();
        shop.place(1..501);
        let (code_of_daemon, mut text) = stopped_by(signal, &shop, 1);
        assert_eq!(code_of_daemon, 0, "{signal}");
        let rest = shop.relay(&["--to", "stdout", "--once"]);
        assert_eq!(code(&rest), 0, "{}", err(&rest));
        text.push_str(&out(&rest));
        let expected: Vec<String> = (1..501).map(|order| order.to_string()).collect();
        assert_eq!(orders(&events(&text)), expected, "{signal}");
    }
}

/// R001: killed at any moment, a relay loses nothing; the next one goes on at once, without waiting
/// for the lease, and may say some of it again.
#[test]
fn a_killed_daemon_loses_nothing() {
    for delivered in [1, 40, 160] {
        let shop = Shop::new();
        shop.place(1..201);
        let mut daemon = shop
            .command(&["relay", "--store", "sqlite://shop.db", "--to", "file://events.ndjson"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The file is the only signal there is.
        let lines = || {
            std::fs::read_to_string(shop.path("events.ndjson"))
                .map_or(0, |text| text.lines().count())
        };
        while lines() < delivered {
            std::thread::sleep(std::time::Duration::from_millis(1)); // waits: for the next line
        }
        daemon.kill().unwrap();
        assert_eq!(daemon.wait().unwrap().code(), None, "it was not killed");
        let rest = shop.relay(&["--to", "file://events.ndjson", "--once"]);
        assert_eq!(code(&rest), 0, "{}", err(&rest));
        let text = std::fs::read_to_string(shop.path("events.ndjson")).unwrap();
        let events = events(&text);
        let mut seen: Vec<u32> =
            orders(&events).iter().map(|order| order.parse().unwrap()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (1..201).collect::<Vec<u32>>());
    }
}
