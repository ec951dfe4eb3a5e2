//! `postrider enqueue`: events by hand, one or many.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Output, Stdio};

use postrider_core::Payload;

use crate::{Shop, code, err, events, out, said};

/// Runs a command with a text on its standard input.
fn fed(shop: &Shop, args: &[&str], input: &str) -> Output {
    let mut child = shop
        .operator(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn an_event_from_flags_is_delivered() {
    let shop = Shop::new();
    let run = shop.answer(&[
        "enqueue",
        "--aggregate-type",
        "order",
        "--aggregate-id",
        "42",
        "--type",
        "order.placed",
        "--payload",
        "{\"cents\": 1250}",
        "--key",
        "customer/9",
        "--header",
        "trace=a=b",
        "--tenant",
        "acme",
    ]);
    let relayed = shop.relay(&["--to", "stdout", "--once"]);
    let delivered = &events(&out(&relayed))[0];
    assert_eq!(run.trim(), delivered.id.to_string());
    assert_eq!(delivered.payload, Payload::json("{\"cents\": 1250}").unwrap());
    assert_eq!((delivered.key().as_str(), &*delivered.headers["trace"]), ("customer/9", "a=b"));
    assert_eq!(delivered.tenant.as_deref(), Some("acme"));
}

#[test]
fn a_payload_is_read_from_a_file_or_standard_input() {
    let shop = Shop::new();
    std::fs::write(shop.path("payload.json"), "{\"from\": \"file\"}").unwrap();
    let args = |payload| {
        [
            "enqueue",
            "--aggregate-type",
            "a",
            "--aggregate-id",
            "1",
            "--type",
            "t",
            "--payload",
            payload,
        ]
    };
    shop.answer(&args("@payload.json"));
    let run = fed(&shop, &args("-"), "{\"from\": \"stdin\"}");
    assert_eq!(code(&run), 0, "{}", err(&run));
    let relayed = out(&shop.relay(&["--to", "stdout", "--once"]));
    assert!(relayed.contains("{\"from\": \"file\"}") && relayed.contains("{\"from\": \"stdin\"}"));
    for (payload, expected) in [("{", "not JSON"), ("@missing.json", "missing.json")] {
        let run = shop.operate(&args(payload));
        assert!(code(&run) > 0, "{payload}");
        assert!(said(&run).contains(expected), "{payload}: {}", err(&run));
    }
    let run = shop.operate(&["enqueue", "--type", "t"]);
    assert_eq!(code(&run), 2);
}

/// What another relay wrote, and the simple form, are taken from standard input.
#[test]
fn many_events_come_from_standard_input() {
    let shop = Shop::new();
    shop.place(1..4);
    let written = out(&shop.relay(&["--to", "stdout", "--once"]));
    let simple: String = (4..=2_500)
        .map(|order| {
            format!(
                "{{\"aggregate_type\":\"order\",\"aggregate_id\":\"{order}\",\"type\":\"t\",\
                 \"payload\":{{\"n\":{order}}}}}\n"
            )
        })
        .collect();
    let other = Shop::new();
    let run = fed(&other, &["enqueue", "--ndjson", "-"], &format!("{written}\n{simple}"));
    assert_eq!(code(&run), 0, "{}", err(&run));
    assert_eq!(out(&run).lines().count(), 2_500);
    assert!(said(&run).contains("2,500 events are committed"), "{}", err(&run));
    let again = out(&other.relay(&["--to", "stdout", "--once"]));
    assert_eq!(again.lines().count(), 2_500);
    let ids = |text: &str| events(text).iter().map(|event| event.id).take(3).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&written));
}

/// Events that trickle in are committed as they come, and a reader that goes away stops nothing.
#[test]
fn a_trickle_is_committed_as_it_comes() {
    let shop = Shop::new();
    let mut child = shop
        .operator(&["enqueue", "--ndjson", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut ids = BufReader::new(child.stdout.take().unwrap());
    let event = b"{\"aggregate_type\":\"a\",\"aggregate_id\":\"1\",\"type\":\"t\"}\n";
    for number in 1..=3 {
        input.write_all(event).unwrap();
        let mut id = String::new();
        ids.read_line(&mut id).unwrap();
        assert_eq!(id.len(), 37, "{id}");
        assert_eq!(shop.number("select count(*) from outbox"), number);
    }
    drop(ids);
    input.write_all(&event.repeat(5)).unwrap();
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(shop.number("select count(*) from outbox"), 8);
}

/// What stands before a bad line is committed, and said to be.
#[test]
fn a_bad_line_says_what_went_in() {
    let shop = Shop::new();
    let good = "{\"aggregate_type\":\"a\",\"aggregate_id\":\"1\",\"type\":\"t\"}\n";
    let run = fed(&shop, &["enqueue", "--ndjson", "-"], &format!("{good}{good}nonsense\n{good}"));
    assert_eq!((code(&run), out(&run).lines().count()), (1, 2), "{}", err(&run));
    assert!(said(&run).contains("line 3"), "{}", err(&run));
    assert!(said(&run).contains("The 2 events before it are committed"), "{}", err(&run));
    assert_eq!(shop.number("select count(*) from outbox"), 2);
    let both = shop.operate(&["enqueue", "--ndjson", "-", "--type", "t"]);
    assert_eq!(code(&both), 2);
}
