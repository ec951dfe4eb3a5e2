//! The bound of what waits, as operators meet it: a destination that refuses everything stops at it, the other one goes
//! on, and what is discarded makes room.

use crate::postgres::Database;
use crate::running::{Running, until};
use crate::{Shop, code, err, out, said};

/// Events that one destination refuses, so many.
const EVENTS: u64 = 120;

/// So many may wait, and so many rows has a window.
const MOST: u64 = 20;
const WINDOW: u64 = 8;

/// A destination that takes no event of ours, because each is larger than it says it takes; and one that takes all.
fn configuration(store: &str) -> String {
    let destination = |name: &str| {
        format!(
            "[destinations.{name}]\nkind = \"file\"\nurl = \"file://{name}.ndjson\"\n\
             [[destinations.{name}.routes]]\ntopic = \"orders\"\n"
        )
    };
    format!(
        "store = \"{store}\"\n[relay]\nwaiting_max = {MOST}\n[relay.window]\nrows = {WINDOW}\n{}{}\
         [destinations.small.limits]\npayload = \"5B\"\n",
        destination("small"),
        destination("all")
    )
}

/// What `status` says of the destination that refuses everything: how many are pending, and how many wait.
fn small(shop: &Shop) -> (u64, u64) {
    let args = ["status", "--config", "c.toml", "--rate", "0", "--output", "json"];
    let status: serde_json::Value = serde_json::from_str(&out(&shop.run(&args))).unwrap();
    let rows = status["destinations"].as_array().unwrap();
    let row = rows.iter().find(|row| row["destination"] == "small").unwrap();
    let number = |name: &str| row[name].as_u64().unwrap();
    (number("pending"), number("retrying") + number("parked") + number("dead"))
}

/// Runs a relay until nothing is pending, discarding what is dead whenever nothing new is read.
fn fills_and_is_emptied(shop: &Shop, store: &str, partitions: u64) {
    std::fs::write(shop.path("c.toml"), configuration(store)).unwrap();
    let mut relay = Running::start(shop.command(&["relay", "--config", "c.toml"]));
    relay.wait_for("PR-1015");
    until("the other destination takes everything", || {
        let text = std::fs::read_to_string(shop.path("all.ndjson")).unwrap_or_default();
        text.lines().count() as u64 == EVENTS
    });
    let most = MOST + partitions * WINDOW;
    let (pending, waiting) = small(shop);
    assert!((MOST..=most).contains(&waiting) && pending > 0, "{waiting} wait, {pending} pending");
    let status = shop.run(&["status", "--config", "c.toml", "--rate", "0"]);
    assert_eq!(code(&status), 6, "{}", err(&status));
    let screen = out(&status).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(screen.contains("of 20 that may, and nothing new is read"), "{screen}");
    let doctor = shop.run(&["doctor", "--config", "c.toml"]);
    assert_eq!(code(&doctor), 6, "{}", err(&doctor));
    let found = out(&doctor).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(found.contains("are too_large") && found.contains("[PR-1015]"), "{found}");
    let mut discarded = 0;
    loop {
        until("it is full again, or through", || {
            let (pending, waiting) = small(shop);
            assert!(waiting <= most, "INV-6: {waiting} events wait, {most} may");
            waiting >= MOST || pending == 0 && discarded + waiting == EVENTS
        });
        let (pending, waiting) = small(shop);
        let args = ["dead", "discard", "--destination", "small", "--all", "--yes"];
        let run = shop.run(&[&args[..], &["--reason", "a test", "--config", "c.toml"]].concat());
        assert_eq!(code(&run), 0, "{}", said(&run));
        discarded += waiting;
        if pending == 0 {
            break;
        }
    }
    assert_eq!(discarded, EVENTS, "nothing is lost on the way");
    assert_eq!(small(shop), (0, 0));
    assert!(relay.stop().success());
}

/// INV-5, INV-6, INV-8: on SQLite.
#[test]
fn a_destination_that_refuses_everything_stops_at_its_bound() {
    let shop = Shop::new();
    shop.place(0..EVENTS as u32);
    fills_and_is_emptied(&shop, "sqlite://shop.db", 1);
}

/// INV-5, INV-6, INV-8: on PostgreSQL, with four partitions.
#[test]
fn on_postgres_it_stops_at_its_bound_as_well() {
    let Some(database) = Database::new("on_postgres_it_stops_at_its_bound_as_well") else {
        return;
    };
    database.sql(&format!(
        "insert into \"{}\".outbox (aggregate_type, aggregate_id, event_type, payload)
         select 'order', n::text, 'order.placed', '{{\"cents\": 1250}}' from generate_series(1, {EVENTS}) n",
        database.schema
    ));
    fills_and_is_emptied(&database.shop, &database.url(), 4);
}
