//! What relays of NATS and of Kafka have in common: a shop with one destination, and what became of its events.

use crate::{Shop, code, err, out, said};

/// A configuration with one destination, and more lines about its connection. What is there has the longest time to answer that
/// a relay of the defaults allows.
pub(crate) fn configured(kind: &str, url: &str, more: &str) -> String {
    within("5s", kind, url, more)
}

/// The same of a broker that is not there, or is not let in: nobody waits for it for long.
#[cfg(any(feature = "kafka", feature = "nats"))]
pub(crate) fn configured_away(kind: &str, url: &str, more: &str) -> String {
    within("2s", kind, url, more)
}

fn within(timeout: &str, kind: &str, url: &str, more: &str) -> String {
    format!(
        "store = \"sqlite://shop.db\"\n[destinations.stream]\nkind = \"{kind}\"\nurl = \"{url}\"\n\
         routes = [{{ topic = \"orders\" }}]\n[destinations.stream.{kind}]\ntimeout = \"{timeout}\"\n{more}\n"
    )
}

/// What `doctor` says of the destination: words of it, its code, and never the password.
pub(crate) fn doctor_says(shop: &Shop, words: &str, code_of: &str) {
    doctor_says_of(shop, "`stream`", words, code_of);
}

/// The same of what this is the subject of.
pub(crate) fn doctor_says_of(shop: &Shop, subject: &str, words: &str, code_of: &str) {
    let run = shop.run(&["doctor", "--config", "postrider.toml", "--output", "ndjson"]);
    assert_eq!(code(&run), 6, "{}", err(&run));
    assert!(!said(&run).contains("hunter2") && !out(&run).contains("hunter2"));
    let rows = out(&run);
    let mut rows = rows.lines().map(|row| serde_json::from_str::<serde_json::Value>(row).unwrap());
    let row = rows.find(|row| row["subject"].as_str().unwrap().contains(subject));
    let row = row.unwrap_or_else(|| panic!("nothing of the broker: {}", out(&run)));
    assert!(row.to_string().contains(words), "{row}");
    assert_eq!(row["code"].as_str(), Some(code_of), "{row}");
    assert!(row["advice"].is_string(), "{row}");
}

/// No event was given up.
pub(crate) fn assert_none_dead(shop: &Shop) {
    let waiting = "select count(*) from outbox_waiting where state = 'dead'";
    let dead: u32 = shop.connect().query_row(waiting, (), |row| row.get(0)).unwrap();
    assert_eq!(dead, 0);
}
