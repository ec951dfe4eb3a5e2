//! Invoked by a queue: charges each order once.

use std::sync::Arc;

use example_aws_lambda::{Failure, Place, log, run};
use postrider::Event;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    log();
    let worker = &Place::of_environment()?.worker(charge).await?;
    run(move |json, remaining| async move {
        let received = worker.receive(json.get().as_bytes(), remaining).await?;
        tracing::info!(
            done = received.done,
            duplicates = received.duplicates,
            dead = received.dead
        );
        Ok(serde_json::to_value(received)?)
    })
    .await
}

/// In place of a payment provider. A real one is told the key: it is the same at every try of this event, so that the
/// provider charges once even where a function ends between the charge and its note.
async fn charge(event: Arc<Event>, key: String) -> postrider::Result<String> {
    tracing::info!(order = %event.aggregate_id, key, "charged");
    Ok(format!("receipt of {key}"))
}
