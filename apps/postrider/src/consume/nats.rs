//! Streams of NATS as a source, where this program has a client.
//!
//! Invariant: there is always a place for dead letters, and a stream takes it.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Subscription, TargetUrl};

use super::source::Wishes;
use crate::failure::Failure;

/// Subscribes to a stream.
///
/// # Errors
/// A configuration failure, also where this program was built without NATS.
#[cfg(not(feature = "nats"))]
pub(super) async fn subscribe(
    _: &TargetUrl,
    _: &str,
    _: Option<&str>,
    _: &Wishes,
) -> Result<Arc<dyn Subscription>, Failure> {
    std::future::ready(()).await;
    Err(crate::relay::nats::missing())
}

/// Subscribes to a stream.
///
/// # Errors
/// A configuration failure, and what the server says.
#[cfg(feature = "nats")]
pub(super) async fn subscribe(
    server: &TargetUrl,
    stream: &str,
    subject: Option<&str>,
    wishes: &Wishes,
) -> Result<Arc<dyn Subscription>, Failure> {
    let (connection, settings) = settings(server, stream, subject, wishes)?;
    let opened = postrider_nats::NatsSubscription::open(connection, settings).await;
    opened.map(|opened| Arc::new(opened) as Arc<dyn Subscription>).map_err(|error| {
        let failure = Failure::from(error);
        failure.of_source()
    })
}

/// After which time the server gives an event out again, if the group is there.
///
/// # Errors
/// A configuration failure, also where this program was built without NATS.
#[cfg(not(feature = "nats"))]
pub(super) async fn ack_wait(
    _: &TargetUrl,
    _: &str,
    _: Option<&str>,
    _: &Wishes,
) -> Result<Option<Duration>, Failure> {
    std::future::ready(()).await;
    Err(crate::relay::nats::missing())
}

/// After which time the server gives an event out again, if the group is there.
///
/// # Errors
/// A configuration failure, and what the server says.
#[cfg(feature = "nats")]
pub(super) async fn ack_wait(
    server: &TargetUrl,
    stream: &str,
    subject: Option<&str>,
    wishes: &Wishes,
) -> Result<Option<Duration>, Failure> {
    let (connection, settings) = settings(server, stream, subject, wishes)?;
    let asked = postrider_nats::ack_wait(connection, &settings).await;
    asked.map_err(|error| Failure::from(error).of_source())
}

#[cfg(feature = "nats")]
fn settings(
    server: &TargetUrl,
    stream: &str,
    subject: Option<&str>,
    wishes: &Wishes,
) -> Result<(postrider_nats::NatsSettings, postrider_nats::SubscriptionSettings), Failure> {
    use postrider_nats::{NatsSettings, SubscriptionSettings};

    let url = format!("{}://{}", server.scheme(), server.expose());
    let mut connection = match &wishes.nats {
        Some(nats) => crate::nats::settings(&url, &nats.login(), &wishes.secrets)?,
        None => NatsSettings::new(url),
    };
    let mut settings = SubscriptionSettings::new(stream, &wishes.group);
    settings.subject = subject.map(str::to_owned);
    settings.visibility = wishes.visibility;
    if let Some(nats) = &wishes.nats {
        connection.deadline = nats.timeout;
        settings.from_now = nats.from_now;
        if nats.in_order {
            settings.unsettled_max = 1;
        }
    }
    let configured = wishes.nats.as_ref().and_then(|nats| nats.dead_letters.as_deref());
    settings.dead_letters = Some(wishes.burial(configured));
    Ok((connection, settings))
}
