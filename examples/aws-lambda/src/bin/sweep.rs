//! Invoked by a schedule: publishes what was left over.

use example_aws_lambda::{Failure, Place, log, run};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    log();
    let publisher = &Place::of_environment()?.publisher()?;
    run(move |_, remaining| async move {
        let swept = publisher.sweep(remaining).await?;
        // What the alarm of deploy/aws counts: `done` is false where the next sweep has to go on.
        tracing::info!(
            done = swept.done,
            delivered = swept.delivered,
            waiting = swept.waiting,
            "swept"
        );
        Ok(serde_json::to_value(swept)?)
    })
    .await
}
