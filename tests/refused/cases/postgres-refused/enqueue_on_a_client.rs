//! An event beside a transaction outlives the change it tells of.

use postrider_core::NewEvent;
use postrider_postgres::Outbox;

async fn stage(client: &tokio_postgres::Client) {
    let event = NewEvent::new("order", "42", "order.placed");
    let _ = Outbox::new().enqueue(client, &event).await;
}

fn main() {}
