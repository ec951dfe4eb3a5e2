//! Brokers: from a destination of the configuration to the client that publishes.
//!
//! Invariant: everything a broker needs is read and checked before the relay starts, and again at a
//! reload before anything is exchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_config::{Config, DestinationConfig, Kind, SecretRef, Secrets};
use postrider_core::{Broker, DestinationId};
use postrider_webhook::{Endpoint, UrlTopics, WebhookBroker, WebhookSettings};

use crate::failure::Failure;
use crate::target::Target;

/// The broker of a destination.
///
/// # Errors
/// A configuration failure that names the destination.
pub(crate) fn open(
    id: &DestinationId,
    destination: &DestinationConfig,
    secrets: &Secrets,
) -> Result<Arc<dyn Broker>, Failure> {
    let within = |failure: Failure| failure.within(&format!("destination `{id}`"));
    match destination.kind {
        Kind::Stdout => Target::Stdout.open(),
        Kind::File | Kind::Local => {
            let url = destination.url.as_ref().and_then(|url| secrets.address(url));
            Target::parse(url.unwrap_or_default()).map_err(within)?.open().map_err(within)
        }
        Kind::Kafka => super::kafka::open(destination, secrets).map_err(within),
        Kind::Nats => super::nats::open(destination, secrets).map_err(within),
        Kind::Sqs | Kind::Sns | Kind::EventBridge => {
            super::aws::open(destination, secrets).map_err(within)
        }
        Kind::Webhook => {
            let settings = webhook(destination, secrets).map_err(within)?;
            let broker = WebhookBroker::new(&settings).map_err(Failure::from).map_err(within)?;
            Ok(Arc::new(broker))
        }
    }
}

/// The brokers of all destinations.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_all(
    config: &Config,
    secrets: &Secrets,
) -> Result<BTreeMap<DestinationId, Arc<dyn Broker>>, Failure> {
    let open = |(id, destination): (&DestinationId, &DestinationConfig)| {
        Ok((id.clone(), open(id, destination, secrets)?))
    };
    config.destinations.iter().map(open).collect()
}

fn webhook(destination: &DestinationConfig, secrets: &Secrets) -> Result<WebhookSettings, Failure> {
    let webhook = &destination.webhook;
    let mut settings = WebhookSettings {
        urls: webhook.allow_urls.then(UrlTopics::default),
        allow_private: webhook.allow_private,
        allow_http: webhook.allow_http.then_some(true),
        deadline: webhook.timeout,
        connections: webhook.connections,
        connections_per_endpoint: webhook.connections_per_endpoint,
        answer_bytes_max: usize::try_from(webhook.response_bytes.bytes()).unwrap_or(usize::MAX),
        ..WebhookSettings::default()
    };
    for (name, configured) in &destination.endpoints {
        let within = |what: &str| format!("endpoint `{}`: {what}", name.as_str());
        let url = secrets.address(&configured.url);
        let url = url.ok_or_else(|| Failure::config(within("its address is missing")))?;
        let mut endpoint = Endpoint::new(url);
        for reference in &configured.keys {
            let key = text(secrets, reference).map_err(|what| Failure::config(within(&what)))?;
            let key = key.parse().map_err(|error: postrider_core::Error| {
                Failure::config(within(&format!("the key of {reference}: {error}")))
            })?;
            endpoint = endpoint.key(key);
        }
        for (header, reference) in &configured.headers {
            let value = text(secrets, reference).map_err(|what| Failure::config(within(&what)))?;
            endpoint = endpoint.header(header.as_str(), value);
        }
        settings = settings.endpoint(name.as_str(), endpoint);
    }
    Ok(settings)
}

/// The text behind a reference.
pub(crate) fn text<'a>(secrets: &'a Secrets, reference: &SecretRef) -> Result<&'a str, String> {
    let secret = secrets.get(reference).ok_or_else(|| format!("{reference} was not read"))?;
    Ok(secret.expose())
}

#[cfg(test)]
mod tests {
    use super::super::{aws, kafka, nats};

    /// A route to a broker that was not built in says which feature to add, and that it is the configuration's fault.
    #[test]
    fn a_client_that_is_not_built_in_names_its_feature() {
        for (failure, feature) in [
            (aws::missing(), "--features aws,"),
            (kafka::missing(), "--features kafka "),
            (nats::missing(), "--features nats,"),
        ] {
            assert_eq!(failure.exit(), crate::failure::Exit::Config);
            let said = failure.plain_text();
            assert!(said.contains(feature) && said.contains("--features full"), "{said}");
        }
    }
}
