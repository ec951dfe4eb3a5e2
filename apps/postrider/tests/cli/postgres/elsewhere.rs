//! The name of the store's server gets another address under a running relay.

use tokio::runtime::Runtime;

use super::{Database, in_order};
use crate::elsewhere::{carried_while_it_moves, moving};
use crate::events;
use crate::running::{Running, until};

/// F36, INV-1, INV-3: it looks the name up for each connection, and leaves one that says nothing any more.
#[test]
fn a_relay_follows_the_name_of_its_store() {
    let Some(database) = Database::new("a_relay_follows_the_name") else { return };
    let runtime = Runtime::new().unwrap();
    let port = database.server.split(['/', ':']).find_map(|part| part.parse().ok()).unwrap();
    let Some(mut moving) = moving(&database.shop, &runtime, port) else { return };
    let url = database.url().replace(&format!("127.0.0.1:{port}"), &moving.address());
    assert!(url.contains(&moving.address()), "{url}");
    let relay = ["relay", "--store", &url, "--to", "file://events.ndjson"];
    let mut relay = Running::start(moving.wrap(&database.shop.command(&relay)));
    relay.wait_for("partition taken");
    let (orders, each) = (5, 2);
    let place = || {
        database.place(orders, each);
        (orders * each) as usize
    };
    let delivered = || {
        let text = std::fs::read_to_string(database.shop.path("events.ndjson")).unwrap_or_default();
        events(text.rfind('\n').map_or("", |end| &text[..=end]))
    };
    let distinct = || in_order(&delivered()).values().map(Vec::len).sum();
    // Renewing a lease has a session of its own.
    let renewed = format!(
        "select (extract(epoch from max(renewed_at)) * 1000000)::bigint from \"{}\".outbox_renewal",
        database.schema
    );
    let is_there = || {
        let last = database.number(&renewed);
        until("the leases are renewed", || database.number(&renewed) != last);
    };
    carried_while_it_moves(&runtime, &mut moving, &mut relay, &is_there, &place, &distinct);
    for (order, payloads) in in_order(&delivered()) {
        assert_eq!(payloads.len(), 8, "{order}");
        assert!(payloads.chunks(2).all(|placed| placed == ["0", "1"]), "{order}: {payloads:?}");
    }
    assert!(relay.stop().success());
}
