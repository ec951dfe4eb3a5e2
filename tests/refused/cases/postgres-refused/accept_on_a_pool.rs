//! So would one on any connection of a pool.

use std::sync::Arc;

use postrider_core::{Event, HandlerName};
use postrider_postgres::{Inbox, PostgresStore};

async fn act(pool: &Arc<tokio_postgres::Client>, event: &Event, handler: &HandlerName) {
    let _ = Inbox::new().accept(pool, event, handler).await;
}

async fn act_on_a_store(store: &PostgresStore, event: &Event, handler: &HandlerName) {
    let _ = Inbox::new().accept(store, event, handler).await;
}

fn main() {}
