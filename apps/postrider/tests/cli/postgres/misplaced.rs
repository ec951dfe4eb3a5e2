//! A row that its writer vouched for, in another partition than its key's.

use super::Database;
use crate::{code, err, events, out};

/// INV-3: it is not published beside its key's other events but kept as a dead letter of the destination that its route
/// names, and of no other, with what happened and what to do. Redriven it is sent, marked as late.
#[test]
fn a_row_of_another_partition_is_a_dead_letter_that_can_be_redriven() {
    let Some(database) = Database::new("a_row_of_another_partition") else { return };
    let of = |name: &str, types: &str| {
        format!(
            "[destinations.{name}]\nkind = \"file\"\nurl = \"file://{name}.ndjson\"\n\
             [[destinations.{name}.routes]]\nmatch = {{ event_type = \"{types}\" }}\ntopic = \"{name}\"\n"
        )
    };
    let (orders, bills) = (of("orders", "order.*"), of("bills", "bill.*"));
    let config = format!("store = \"{}\"\n{orders}{bills}", database.url());
    std::fs::write(database.shop.path("p.toml"), config).unwrap();
    let relay = |code_wanted| {
        let run = database.run(&["relay", "--config", "p.toml", "--once"]);
        assert_eq!(code(&run), code_wanted, "{}", err(&run));
    };
    database.place(3, 2);
    database.sql(&format!(
        "insert into \"{0}\".outbox (vouched, partition, aggregate_type, aggregate_id, event_type, payload)
        select true, (\"{0}\".outbox_partition_of('order/1') + 1) % 4, 'order', '1', 'order.changed', '\"stray\"'",
        database.schema
    ));
    relay(3);
    let sent = || events(&std::fs::read_to_string(database.shop.path("orders.ndjson")).unwrap());
    assert_eq!(sent().len(), 6);
    let dead = database.rows(&["dead", "ls"]);
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!(dead[0]["destination"], "orders");
    assert_eq!(dead[0]["reason"], "malformed");
    let detail = dead[0]["detail"].as_str().unwrap();
    for word in ["vouched", "its key's is", "redrive", "late"] {
        assert!(detail.contains(word), "{detail}");
    }
    // Its key has gone on without it, and goes on.
    database.place(3, 1);
    relay(3);
    assert_eq!(sent().len(), 9);
    let run = database.run(&["dead", "redrive", "--all", "--yes", "--wait", "0"]);
    assert_eq!(code(&run), 0, "{}{}", out(&run), err(&run));
    relay(0);
    assert_eq!(sent().len(), 10);
    let text = std::fs::read_to_string(database.shop.path("orders.ndjson")).unwrap();
    let late: Vec<&str> = text.lines().filter(|line| line.contains("postriderlate")).collect();
    assert!(late.len() == 1 && late[0].contains("stray"), "{late:?}");
}
