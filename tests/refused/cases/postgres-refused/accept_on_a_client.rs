//! A marker beside a transaction would be committed alone.

use postrider_core::{Event, HandlerName};

async fn act(client: &tokio_postgres::Client, event: &Event, handler: &HandlerName) {
    let _ = postrider_postgres::accept(client, event, handler).await;
}

fn main() {}
