//! Events staged in one transaction of their own.

use postrider_core::{EventId, NewEvent, Result};

use super::value::invalid;
use crate::error::During;
use crate::{Outbox, PostgresStore};

/// Events that are staged in one transaction: what a statement holds in memory without notice.
const STAGED_MAX: usize = 10_000;

/// Stages events, all or none.
pub(super) async fn stage(store: &PostgresStore, events: &[NewEvent]) -> Result<Vec<EventId>> {
    if events.len() > STAGED_MAX {
        let message = format!("at most {STAGED_MAX} events are staged at once");
        return Err(invalid("stage", message));
    }
    let (mut client, wire) = store.sessions().address().connect("stage").await?;
    // Ends by itself when the client is dropped or the connection is lost.
    tokio::spawn(async move { _ = wire.await });
    let tx = client.transaction().await.during("stage")?;
    let ids = Outbox::named(store.names().clone()).preflight().enqueue_many(&tx, events).await?;
    tx.commit().await.during("stage")?;
    store.announce().await;
    Ok(ids)
}
