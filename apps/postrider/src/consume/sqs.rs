//! Queues of SQS as a source, where this program has a client.
//!
//! Invariant: there is always a place for dead letters, the configured one or that of the queue's redrive policy.

use std::sync::Arc;

use postrider_core::Subscription;
use postrider_core::operate::Finding;

use super::source::Wishes;
use crate::failure::Failure;

/// Subscribes to a queue.
///
/// # Errors
/// A configuration failure, also where this program was built without AWS.
#[cfg(not(feature = "aws"))]
pub(super) async fn subscribe(
    _: &str,
    _: &str,
    _: &Wishes,
) -> Result<Arc<dyn Subscription>, Failure> {
    std::future::ready(()).await;
    Err(crate::relay::aws::missing())
}

/// Subscribes to a queue.
///
/// # Errors
/// A configuration failure, and what the service says.
#[cfg(feature = "aws")]
pub(super) async fn subscribe(
    region: &str,
    queue: &str,
    wishes: &Wishes,
) -> Result<Arc<dyn Subscription>, Failure> {
    let (connection, settings) = settings(region, queue, wishes)?;
    let opened = postrider_aws::SqsSubscription::open(connection, settings).await;
    opened.map(|opened| Arc::new(opened) as Arc<dyn Subscription>).map_err(|error| {
        let failure = Failure::from(error);
        failure.of_source()
    })
}

/// What is found of a queue whose messages are tried so often.
///
/// # Errors
/// A configuration failure, also where this program was built without AWS.
#[cfg(not(feature = "aws"))]
pub(super) async fn examine(_: &str, _: &str, _: &Wishes, _: u32) -> Result<Vec<Finding>, Failure> {
    std::future::ready(()).await;
    Err(crate::relay::aws::missing())
}

/// What is found of a queue whose messages are tried so often.
///
/// # Errors
/// A configuration failure, and what the service says.
#[cfg(feature = "aws")]
pub(super) async fn examine(
    region: &str,
    queue: &str,
    wishes: &Wishes,
    tries: u32,
) -> Result<Vec<Finding>, Failure> {
    let (connection, settings) = settings(region, queue, wishes)?;
    Ok(postrider_aws::examine_queue(connection, &settings, tries).await?)
}

#[cfg(feature = "aws")]
fn settings(
    region: &str,
    queue: &str,
    wishes: &Wishes,
) -> Result<(postrider_aws::AwsSettings, postrider_aws::SubscriptionSettings), Failure> {
    use postrider_aws::{AwsSettings, SubscriptionSettings};

    let mut connection = match &wishes.sqs {
        Some(sqs) => crate::aws::settings(region, &sqs.login(), &wishes.secrets)?,
        None => AwsSettings::new(region),
    };
    let mut settings = SubscriptionSettings::new(queue);
    settings.visibility = wishes.visibility;
    settings.dead_letters.clone_from(&wishes.dead_letters);
    if let Some(sqs) = &wishes.sqs {
        connection.deadline = sqs.timeout;
        if settings.dead_letters.is_none() {
            settings.dead_letters.clone_from(&sqs.dead_letters);
        }
    }
    Ok((connection, settings))
}
