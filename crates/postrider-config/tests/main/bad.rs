//! Files that are wrong, each with what is said about it. `BLESS=1` writes what is said now.
//!
//! A line `#! NAME=value` sets a variable, and `#! needs relay` says what is asked for.

use std::path::{Path, PathBuf};

use postrider_config::{Environment, Loader, Needs};

use crate::said;

/// Stands in every bad file where a secret would.
const SECRET: &str = "hunter2";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad")
}

/// What is said about a file; nothing if it is right.
fn examine(name: &str, text: &str) -> String {
    let orders = text.lines().filter_map(|line| line.strip_prefix("#! "));
    let (mut variables, mut needs) = (Vec::new(), Needs::NOTHING);
    for order in orders {
        match order {
            "needs relay" => (needs.store, needs.destinations) = (true, true),
            "needs consume" => needs.consumers = true,
            _ => variables.push(order.split_once('=').unwrap()),
        }
    }
    let environment: Environment = variables.into_iter().collect();
    let loader = Loader::new(&environment).text(name, text).needs(needs);
    loader.load().map_or_else(|problems| said(&problems), |_| String::new())
}

/// The difference between what is said and what should be, if there is one.
fn compare(name: &str, said: &str, expected: &str) -> Option<String> {
    if said.is_empty() {
        Some(format!("{name}: nothing is said about it"))
    } else if said.contains(SECRET) {
        Some(format!("{name}: a secret is shown:\n{said}"))
    } else if said != expected {
        Some(format!("{name}: run with BLESS=1 if this is right:\n{said}"))
    } else {
        None
    }
}

/// F31: what is wrong with a configuration is said before anything connects, with file, line, and a
/// suggestion.
/// R103: retention below the recount and the retries is refused.
/// R107: a literal where a secret belongs is refused, and not repeated.
/// R121: an inbox that forgets before a broker may deliver again is refused.
#[test]
fn every_bad_file_is_answered_as_expected() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut different = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        count += 1;
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let said = examine(&name, &std::fs::read_to_string(&path).unwrap());
        let beside = path.with_extension("expected");
        if bless {
            std::fs::write(&beside, &said).unwrap();
        }
        let expected = std::fs::read_to_string(&beside).unwrap_or_default();
        different.extend(compare(&name, &said, &expected));
    }
    assert!(count >= 20, "only {count} bad files were found");
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// The other side of each border: what just fits is taken.
///
/// R103: retention that equals what is needed is enough.
/// R121: so is an inbox that remembers as long as brokers deliver again.
#[test]
fn what_just_fits_is_taken() {
    let text = r#"
[relay]
lease = "9001ms"
publish_deadline = "5s"
[relay.window]
bytes = "24MiB"
[retention]
outbox = "1h"
inbox = "14d"
results = "14d"
archive = "archive"
[reconcile]
every = "1h"
[observe]
listen = "[::1]:9464"
[consume.x]
from = "local://queue.db"
inbox = "sqlite://x.db"
endpoint = "http://127.0.0.1:8000/"
timeout = "59s"
[destinations.a]
kind = "webhook"
[[destinations.a.routes]]
match = { event_type = "order.*", tenant = "*" }
topic = "acme"
retry = { attempts = 2, delay_min = "1h", delay_max = "1h" }
[[destinations.a.routes]]
match = { event_type = "order.*" }
topic = "https://hooks.example/in"
retry = { attempts = 3, delay_max = "30m" }
[[destinations.a.routes]]
topic = "acme"
dead_key = "halt"
retry = { delay_max = "7d" }
[destinations.a.webhook]
timeout = "5s"
connections = 8
allow_urls = true
allow_private = true
[destinations.a.endpoints.acme]
url = "http://127.0.0.1:8080/in"
"#;
    assert_eq!(examine("fits.toml", text), "");
    for (from, to) in [
        ("9001ms", "9s"),
        ("\"24MiB\"", "\"25MiB\""),
        ("outbox = \"1h\"", "outbox = \"59m\""),
        ("inbox = \"14d\"", "inbox = \"13d\""),
        ("[::1]", "[2001:db8::1]"),
        ("\"59s\"", "\"60s\""),
        ("attempts = 3", "attempts = 4"),
        ("timeout = \"5s\"", "timeout = \"5001ms\""),
        ("connections = 8", "connections = 7"),
        ("allow_private = true", "allow_private = false"),
        ("allow_urls = true", "allow_urls = false"),
        ("tenant = \"*\"", "aggregate_type = \"*\""),
    ] {
        assert_ne!(examine("fits.toml", &text.replace(from, to)), "", "{from} -> {to}");
    }
}

/// Negative control: the comparison notices silence, another text, and a secret.
#[test]
fn the_comparison_fails_where_it_must() {
    assert!(compare("x", "", "").is_some());
    assert!(compare("x", "a", "b").is_some());
    assert!(compare("x", "hunter2", "hunter2").is_some());
    assert_eq!(compare("x", "a", "a"), None);
    assert_eq!(examine("x.toml", "[relay]\nlease = \"20s\"\n"), "");
}
