//! The modules, from an order to what became of it.

#![expect(clippy::unwrap_used, reason = "a test says by failing what is wrong")]

use std::path::Path;
use std::time::Duration;

use example_modular_monolith::Monolith;
use example_modular_monolith::orders::{OrderPlaced, place};

fn count(file: &Path, sql: &str) -> i64 {
    let database = rusqlite::Connection::open(file).unwrap();
    database.busy_timeout(Duration::from_secs(5)).unwrap();
    database.query_row(sql, (), |row| row.get(0)).unwrap()
}

/// R006, R007: what one module does, the other hears, acts on once, and tells of.
#[tokio::test]
async fn an_order_is_billed_and_one_that_is_too_large_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("monolith.db");
    let monolith = Monolith::start(folder.path()).await.unwrap();
    place(&file, &OrderPlaced { order_id: 1, total_cents: 1_250 }).unwrap();
    place(&file, &OrderPlaced { order_id: 2, total_cents: 2_000_000 }).unwrap();
    assert!(place(&file, &OrderPlaced { order_id: 1, total_cents: 1 }).is_err());

    let cancelled = "select count(*) from orders where state = 'cancelled'";
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    for _ in 0..500 {
        looks.tick().await;
        if count(&file, cancelled) == 1 {
            break;
        }
    }
    assert_eq!(count(&file, "select id from orders where state = 'cancelled'"), 2);
    assert_eq!(count(&file, "select count(*) from invoices"), 1);
    assert_eq!(count(&file, "select count(*) from outbox"), 4, "two orders, two answers");
    monolith.stop().await;
}
