//! `postrider reconcile`: the log against the outbox.

use super::id;
use crate::{Shop, code, err, out};

#[test]
fn a_store_that_agrees_says_so() {
    let shop = Shop::delivered();
    let run = shop.operate(&["reconcile", "--dry-run"]);
    assert_eq!((code(&run), out(&run).as_str()), (0, ""), "{}", err(&run));
    assert!(err(&run).contains("default: the log agrees"), "{}", err(&run));
}

/// R105: what the cursor passed and the log does not know is found, and sent again by one command.
#[test]
fn what_the_log_does_not_know_is_sent_again() {
    let shop = Shop::delivered();
    // As if a fault had moved the cursor over an event that nobody published.
    shop.commit(7..=7);
    shop.connect()
        .execute("update outbox_cursor set position = 7 where destination = 'default'", ())
        .unwrap();
    let dry = shop.operate(&["reconcile", "--dry-run", "--output", "json"]);
    assert_eq!(code(&dry), 6, "{}", err(&dry));
    let found: serde_json::Value = serde_json::from_str(&out(&dry)).unwrap();
    let row = &found["rows"][0];
    assert_eq!((&row["settled"], &row["found"]), (&6.into(), &7.into()), "{found}");
    let before = shop.arrived().len();
    let _daemon = shop.daemon();
    let run = shop.operate(&["reconcile", "--destination", "default", "--yes"]);
    assert_eq!(code(&run), 0, "{}", err(&run));
    while !shop.arrived()[before..].contains(&id(7)) {
        std::thread::sleep(std::time::Duration::from_millis(5)); // waits: for another process
    }
}

/// R105: more than one request takes is not said to be done by the first.
#[test]
fn what_one_request_cannot_take_is_not_said_to_be_sent() {
    let shop = Shop::delivered();
    shop.connect()
        .execute_batch(
            "insert into outbox (aggregate_type, aggregate_id, event_type, payload)
            with recursive n (i) as (select 1 union all select i + 1 from n where i < 120000)
            select 'order', i, 'order.placed', '{}' from n;
            update outbox_cursor set position = 120006 where destination = 'default';",
        )
        .unwrap();
    let reconcile =
        || shop.operate(&["reconcile", "--destination", "default", "--yes", "--wait", "0"]);
    let first = reconcile();
    assert_eq!(code(&first), 6, "{}", err(&first));
    assert!(err(&first).contains("run it again"), "{}", err(&first));
    let second = reconcile();
    assert_eq!(code(&second), 0, "{}", err(&second));
}
