//! A pool gives a connection, and an event beside a transaction.

use postrider_core::NewEvent;
use postrider_sqlite::Outbox;

async fn stage(pool: &mut sqlx::SqlitePool) {
    let event = NewEvent::new("order", "42", "order.placed");
    let _ = postrider_sqlite::sqlx::enqueue(&Outbox::new(), pool, &event).await;
}

fn main() {}
