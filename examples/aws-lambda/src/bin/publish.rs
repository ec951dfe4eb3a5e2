//! Invoked by the outbox table's stream: publishes what its records tell of.

use example_aws_lambda::{Failure, Place, log, run};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    log();
    let publisher = &Place::of_environment()?.publisher()?;
    run(move |json, remaining| async move {
        let published = publisher.publish(json.get().as_bytes(), remaining).await?;
        tracing::info!(delivered = published.delivered, left = ?published.left, others = published.others);
        Ok(serde_json::to_value(published)?)
    })
    .await
}
