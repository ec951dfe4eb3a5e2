//! What changes under a relay: its configuration, the store's definitions, the file it works on.

use rustix::process::Signal;

use crate::configured::{TWO, get};
use crate::running::until;
use crate::{Shop, code, err, said};

/// F36: an address changes while events flow, and each event goes to one of the two.
#[test]
fn a_reload_changes_addresses_and_loses_nothing() {
    let shop = Shop::new();
    shop.configure(TWO);
    shop.place(1..51);
    let mut relay = shop.configured(&[]);
    until("the first orders are delivered", || shop.lines_of("orders.ndjson").len() == 50);
    shop.configure(&TWO.replace("orders.ndjson", "moved.ndjson"));
    relay.signal(Signal::HUP);
    relay.wait_for("reloaded: destinations.orders.url");
    shop.place(51..101);
    until("the others are delivered", || shop.lines_of("moved.ndjson").len() == 50);
    assert!(relay.stop().success());
    let mut all = shop.lines_of("orders.ndjson");
    all.extend(shop.lines_of("moved.ndjson"));
    assert_eq!(all, (1..101).map(|order| order.to_string()).collect::<Vec<_>>());
}

/// A reload does everything or nothing: a wrong file, or another definition, changes nothing.
#[test]
fn a_reload_that_cannot_be_done_leaves_the_relay_as_it_was() {
    let shop = Shop::new();
    shop.configure(TWO);
    let mut relay = shop.configured(&[]);
    shop.place(1..2);
    until("it runs", || shop.lines_of("orders.ndjson").len() == 1);
    shop.configure(&TWO.replace("topic = \"orders\"", "topic = \"other\""));
    relay.signal(Signal::HUP);
    relay.wait_for("PR-1201");
    relay.wait_for("apply --config postrider.toml");
    relay.wait_for("the reload changed nothing");
    shop.configure("[destinations.orders]\nkynd = \"file\"\n");
    relay.signal(Signal::HUP);
    relay.wait_for("postrider.toml:2:1");
    relay.wait_for("the reload changed nothing");
    shop.place(2..3);
    until("it still runs", || shop.lines_of("orders.ndjson").len() == 2);
    assert!(relay.stop().success());
}

/// F36: a token is rotated, and the logs become more, without a restart.
#[test]
fn a_reload_rotates_the_token_and_changes_the_logs() {
    let shop = Shop::new();
    let observe = "[observe]\ntoken = \"file:token\"\nlog = \"info\"\n";
    shop.configure(&format!("{TWO}\n{observe}"));
    std::fs::write(shop.path("token"), "old\n").unwrap();
    let mut relay = shop.configured(&["--listen", "127.0.0.1:0"]);
    let line = relay.wait_for("metrics and health on http://");
    let address = line.rsplit("http://").next().unwrap().trim().to_owned();
    assert!(get(&address, "/metrics", Some("old")).starts_with("HTTP/1.1 200"));
    std::fs::write(shop.path("token"), "new\n").unwrap();
    shop.configure(&format!("{TWO}\n{}", observe.replace("info", "debug")));
    relay.signal(Signal::HUP);
    relay.wait_for("reloaded: observe.log");
    assert!(get(&address, "/metrics", Some("old")).starts_with("HTTP/1.1 401"));
    assert!(get(&address, "/metrics", Some("new")).starts_with("HTTP/1.1 200"));
    shop.place(1..2);
    relay.wait_for("delivered");
    assert!(relay.stop().success());
}

/// A copy of the database publishes nothing until somebody says that it may (PR-1009); the original
/// goes on.
#[test]
fn a_copy_publishes_only_after_it_was_adopted() {
    let shop = Shop::new();
    shop.configure(TWO);
    shop.place(1..3);
    assert_eq!(code(&shop.run(&["relay", "--config", "postrider.toml", "--once"])), 0);
    let copied = "vacuum into 'copy.db'";
    let connection = rusqlite::Connection::open(shop.path("shop.db")).unwrap();
    let into = copied.replace("copy.db", shop.path("copy.db").to_str().unwrap());
    connection.execute(&into, ()).unwrap();
    let copy = ["--store", "sqlite://copy.db"];
    let relay = ["relay", "--config", "postrider.toml", "--once"];
    let refused = shop.run(&[&relay[..], &copy[..], &["--timeout", "10s"][..]].concat());
    assert_ne!(code(&refused), 0);
    assert!(said(&refused).contains("PR-1009"), "{}", err(&refused));
    assert_eq!(shop.lines_of("orders.ndjson").len(), 2);
    let adopted = shop.run(&[&["adopt", "--yes", "--reason", "restored"][..], &copy[..]].concat());
    assert_eq!(code(&adopted), 0, "{}", err(&adopted));
    assert_eq!(code(&shop.run(&[&relay[..], &copy[..]].concat())), 0);
    assert_eq!(code(&shop.run(&relay)), 0, "the original is as it was");
}

/// R105: an event that no route took is sent to the destination whose route takes it now, and nothing
/// else is.
#[test]
fn an_event_without_a_route_is_sent_once_there_is_one() {
    let shop = Shop::new();
    shop.configure(TWO);
    let insert = "insert into outbox (id, aggregate_type, aggregate_id, event_type, payload)
                  values ('00000000-0000-7000-8000-000000000001', 'mail', '7', 'mail.sent', 'null')";
    shop.connect().execute(insert, ()).unwrap();
    shop.place(1..3);
    assert_eq!(code(&shop.run(&["relay", "--config", "postrider.toml", "--once"])), 3);
    let routed = TWO.replace(
        "topic = \"orders\"",
        "topic = \"orders\"\n[[destinations.orders.routes]]\nmatch = { event_type = \"mail.*\" }\n\
         topic = \"mail\"",
    );
    shop.configure(&routed);
    let apply = shop.run(&["destinations", "apply", "--config", "postrider.toml", "--yes"]);
    assert_eq!(code(&apply), 0, "{}", err(&apply));
    let id = "00000000-0000-7000-8000-000000000001";
    let requeue = shop.run(&[
        "outbox",
        "requeue",
        id,
        "--destination",
        "orders",
        "--yes",
        "--wait",
        "1s",
        "--config",
        "postrider.toml",
    ]);
    assert!([0, 5].contains(&code(&requeue)), "{}", err(&requeue));
    shop.run(&["relay", "--config", "postrider.toml", "--once"]);
    assert_eq!(shop.lines_of("orders.ndjson"), ["1", "2", "7"]);
}
