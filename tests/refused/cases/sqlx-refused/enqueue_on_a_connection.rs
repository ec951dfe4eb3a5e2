//! An event beside a transaction outlives the change it tells of.

use postrider_core::NewEvent;
use postrider_sqlite::Outbox;

async fn stage(connection: &mut sqlx::SqliteConnection) {
    let event = NewEvent::new("order", "42", "order.placed");
    let _ = postrider_sqlite::sqlx::enqueue(&Outbox::new(), connection, &event).await;
}

fn main() {}
