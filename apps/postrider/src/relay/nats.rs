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
    Err(Failure::config("this program was built without NATS")
        .advice("Build it with --features nats, or with --features full."))
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
    use postrider_nats::{NatsBroker, NatsSettings};

    let nats = &destination.nats;
    let url = destination.url.as_ref().and_then(|url| secrets.address(url));
    let mut settings = NatsSettings::new(url.unwrap_or_default());
    settings.credentials = credentials(nats, secrets)?;
    settings.tls.required = nats.require_tls;
    settings.tls.roots.clone_from(&nats.roots);
    settings.tls.identity = nats.certificate.clone().zip(nats.certificate_key.clone());
    settings.deadline = nats.timeout;
    settings.batches_in_flight = nats.batches;
    settings.allow_lossy = nats.allow_lossy;
    Ok(Arc::new(NatsBroker::new(settings)?))
}

/// Who we are. The configuration was checked: it says it once.
#[cfg(feature = "nats")]
fn credentials(
    nats: &postrider_config::Nats,
    secrets: &Secrets,
) -> Result<postrider_nats::Credentials, Failure> {
    use postrider_nats::Credentials;

    let text = |reference| super::brokers::text(secrets, reference).map_err(Failure::config);
    Ok(if let (Some(name), Some(password)) = (&nats.user, &nats.password) {
        Credentials::User { name: name.clone(), password: text(password)?.into() }
    } else if let Some(token) = &nats.token {
        Credentials::Token(text(token)?.into())
    } else if let Some(seed) = &nats.nkey {
        Credentials::Nkey(text(seed)?.into())
    } else if let Some(content) = &nats.creds {
        Credentials::Creds(text(content)?.into())
    } else {
        Credentials::None
    })
}
