//! The metrics of a relay about the rows that its database cannot clean away.

use super::Database;
use crate::configured::get;
use crate::running::Running;

/// R124: a relay tells the age of the oldest transaction and xmin, and the dead rows of the tables that change most.
#[test]
fn a_relay_tells_how_long_dead_rows_are_kept() {
    let Some(database) = Database::new("a_relay_tells_how_long") else { return };
    let args = ["relay", "--store", &database.url(), "--to", "stdout", "--listen", "127.0.0.1:0"];
    let mut relay = Running::start(database.shop.command(&args));
    let line = relay.wait_for("metrics and health on http://");
    let address = line.rsplit("http://").next().unwrap().trim();
    let metrics = get(address, "/metrics", None);
    for name in [
        "postrider_oldest_transaction_seconds{} ",
        "postrider_oldest_xmin_age_transactions{} ",
        "postrider_dead_rows{table=\"outbox\"} ",
        "postrider_dead_rows{table=\"outbox_waiting\"} ",
        "postrider_dead_rows{table=\"outbox_cursor\"} ",
        "postrider_dead_rows{table=\"outbox_renewal\"} ",
    ] {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }
    assert!(relay.stop().success());
}
