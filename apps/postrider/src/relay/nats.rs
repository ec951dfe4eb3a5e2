//! NATS destinations: from the configuration to the client, where this program has one.

use std::sync::Arc;

use postrider_config::{DestinationConfig, Secrets};
use postrider_core::Broker;

use crate::failure::Failure;

/// The broker of a destination of the kind `nats`.
///
/// # Errors
/// A configuration failure, also where this program was built without NATS.
#[cfg(not(feature = "nats"))]
pub(super) fn open(_: &DestinationConfig, _: &Secrets) -> Result<Arc<dyn Broker>, Failure> {
    Err(missing())
}

/// This program has no client.
#[cfg(any(test, not(feature = "nats")))]
pub(crate) fn missing() -> Failure {
    Failure::config("this program was built without NATS")
        .advice("Build it with --features nats, or with --features full.")
}

/// The broker of a destination of the kind `nats`.
///
/// # Errors
/// A configuration failure, also where this program was built without NATS.
#[cfg(feature = "nats")]
pub(super) fn open(
    destination: &DestinationConfig,
    secrets: &Secrets,
) -> Result<Arc<dyn Broker>, Failure> {
    let nats = &destination.nats;
    let url = destination.url.as_ref().and_then(|url| secrets.address(url));
    let mut settings = crate::nats::settings(url.unwrap_or_default(), &nats.login(), secrets)?;
    settings.deadline = nats.timeout;
    settings.batches_in_flight = nats.batches;
    settings.allow_lossy = nats.allow_lossy;
    settings.monitoring.clone_from(&nats.monitoring);
    Ok(Arc::new(postrider_nats::NatsBroker::new(settings)?))
}

/// The broker at an address that a flag gives.
///
/// # Errors
/// A configuration failure, always: this program has no client.
#[cfg(not(feature = "nats"))]
pub(crate) fn at(_: &str) -> Result<Arc<dyn Broker>, Failure> {
    Err(missing())
}

/// The broker at an address that a flag gives.
///
/// # Errors
/// A configuration failure: the client cannot use the address.
#[cfg(feature = "nats")]
pub(crate) fn at(url: &str) -> Result<Arc<dyn Broker>, Failure> {
    use postrider_nats::{NatsBroker, NatsSettings};

    Ok(Arc::new(NatsBroker::new(NatsSettings::new(url))?))
}
