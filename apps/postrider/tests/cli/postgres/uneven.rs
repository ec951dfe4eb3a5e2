//! What is pending where one key has most of what came last.

use super::Database;
use crate::{code, err, out};

/// What was counted for the backlog by route is pending as well, though what is reckoned from the first events of each
/// partition comes to less.
#[test]
fn what_is_pending_is_not_below_what_was_counted() {
    let Some(database) = Database::new("what_is_pending_is_not_below") else { return };
    let once = database.run(&["relay", "--to", "stdout", "--once"]);
    assert_eq!(code(&once), 0, "{}", err(&once));
    database.sql(&format!(
        "insert into \"{0}\".outbox (aggregate_type, aggregate_id, event_type, payload)
            select 'order', n::text, 'order.placed', '{{}}' from generate_series(1, 7600) n;
        insert into \"{0}\".outbox (aggregate_type, aggregate_id, event_type, payload)
            select 'order', 'hot', 'order.placed', '{{}}' from generate_series(1, 1500) n",
        database.schema
    ));
    let status = database.run(&["status", "--rate", "0", "--output", "json"]);
    let told: serde_json::Value = serde_json::from_str(&out(&status)).unwrap();
    assert_eq!(told["backlog"][0]["count"], 9_100, "{told:#}");
    assert_eq!(told["destinations"][0]["pending"], 9_100, "{told:#}");
}
