//! Destinations on services of AWS: from the configuration to the client, where this program has one.

use std::sync::Arc;

use postrider_config::{DestinationConfig, Secrets};
use postrider_core::Broker;

use crate::failure::Failure;

/// This program has no client.
#[cfg(any(test, not(feature = "aws")))]
pub(crate) fn missing() -> Failure {
    Failure::config("this program was built without AWS")
        .advice("Build it with --features aws, or with --features full.")
}

/// The broker of a destination of one of the kinds `sqs`, `sns`, and `eventbridge`.
///
/// # Errors
/// A configuration failure, also where this program was built without AWS.
#[cfg(not(feature = "aws"))]
pub(super) fn open(_: &DestinationConfig, _: &Secrets) -> Result<Arc<dyn Broker>, Failure> {
    Err(missing())
}

/// The broker of a destination of one of the kinds `sqs`, `sns`, and `eventbridge`.
///
/// # Errors
/// A configuration failure, also where this program was built without AWS.
#[cfg(feature = "aws")]
pub(super) fn open(
    destination: &DestinationConfig,
    secrets: &Secrets,
) -> Result<Arc<dyn Broker>, Failure> {
    use crate::aws::settings;
    use postrider_aws::{EventBridgeBroker, SnsBroker, SqsBroker};
    use postrider_config::Kind;

    let url = destination.url.as_ref().and_then(|url| secrets.address(url)).unwrap_or_default();
    let region = url.split_once("://").map_or(url, |(_, region)| region);
    Ok(match destination.kind {
        Kind::EventBridge => {
            let eventbridge = &destination.eventbridge;
            let mut settings = settings(region, &eventbridge.login(), secrets)?;
            settings.deadline = eventbridge.timeout;
            settings.batches_in_flight = eventbridge.batches;
            Arc::new(EventBridgeBroker::new(settings)?)
        }
        Kind::Sns => {
            let sns = &destination.sns;
            let mut settings = settings(region, &sns.login(), secrets)?;
            settings.deadline = sns.timeout;
            settings.batches_in_flight = sns.batches;
            settings.fifo = sns.fifo;
            Arc::new(SnsBroker::new(settings)?)
        }
        _ => {
            let sqs = &destination.sqs;
            let mut settings = settings(region, &sqs.login(), secrets)?;
            settings.deadline = sqs.timeout;
            settings.batches_in_flight = sqs.batches;
            settings.fifo = sqs.fifo;
            Arc::new(SqsBroker::new(settings)?)
        }
    })
}

/// The broker at an address that a flag gives.
///
/// # Errors
/// A configuration failure, always: this program has no client.
#[cfg(not(feature = "aws"))]
pub(crate) fn at(_: &str) -> Result<Arc<dyn Broker>, Failure> {
    Err(missing())
}

/// The broker at an address that a flag gives. Who we are is what the environment or the machine says.
///
/// # Errors
/// A configuration failure: the client cannot use the address.
#[cfg(feature = "aws")]
pub(crate) fn at(url: &str) -> Result<Arc<dyn Broker>, Failure> {
    use postrider_aws::{AwsSettings, EventBridgeBroker, SnsBroker, SqsBroker};

    let (scheme, region) = url.split_once("://").unwrap_or(("sqs", url));
    let settings = AwsSettings::new(region);
    Ok(match scheme {
        "sns" => Arc::new(SnsBroker::new(settings)?),
        "eventbridge" => Arc::new(EventBridgeBroker::new(settings)?),
        _ => Arc::new(SqsBroker::new(settings)?),
    })
}
