//! What the server has of a group, without joining it.
//!
//! Invariant: nothing is made, and nothing is taken, by asking for it.

use std::time::Duration;

use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamErrorKind};
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout_at};

use crate::bury;
use crate::connection::{Connection, Up};
use crate::domain;
use crate::group;
use crate::partitions;
use crate::settings::NatsSettings;
use crate::settings::SubscriptionSettings;

/// Consumers that are looked at: those of the first partitions. All of a group are made alike.
const LOOKED_AT: u16 = 8;

/// How long the server waits for the group's answer before it gives an event out again; nothing, if the group is not
/// there yet. Of several consumers, the shortest time. It looks also whether a stream takes the group's dead letters.
///
/// # Errors
/// `Unroutable` if there is no such stream, or none for dead letters, `Config` for settings that no server takes, and what
/// keeps the server from answering in time.
pub async fn ack_wait(
    nats: NatsSettings,
    settings: &SubscriptionSettings,
) -> Result<Option<Duration>> {
    let partitions = group::check(settings)?;
    let names = match &partitions {
        None => vec![settings.group.clone()],
        Some(all) => {
            let numbers = 0..all.count().min(LOOKED_AT);
            numbers.map(|number| partitions::consumer(&settings.group, number)).collect()
        }
    };
    let connection = Connection::new(nats)?;
    let until = Instant::now() + connection.settings().deadline;
    let up = connection.up(until).await?;
    let asking = async {
        let wait = ask(&up, &settings.stream, &names).await?;
        bury::find_place(&up, settings, partitions.as_ref()).await?;
        Ok(wait)
    };
    let asked = match timeout_at(until, asking).await {
        Ok(Err(error)) => Err(domain::told_of_the_servers_own(&up, until, error).await),
        Ok(answer) => answer,
        Err(_) => Err(Error::new(ErrorKind::Timeout, "look at group")),
    };
    connection.close().await;
    asked.map_err(|error| connection.settings().within(error))
}

async fn ask(up: &Up, stream: &str, names: &[String]) -> Result<Option<Duration>> {
    let found = up.jetstream.get_stream(stream).await.map_err(|error| match error.kind() {
        GetStreamErrorKind::JetStream(said) if said.code() == 404 => {
            Error::new(ErrorKind::Unroutable, "look at group")
                .message(format!("there is no stream `{stream}`; create it, or correct its name"))
        }
        _ => Error::new(ErrorKind::Unavailable, "look at group").message(error.to_string()),
    })?;
    let mut shortest: Option<Duration> = None;
    for name in names {
        match found.consumer_info(name).await {
            Ok(info) => {
                let wait = info.config.ack_wait;
                shortest = Some(shortest.map_or(wait, |shortest| shortest.min(wait)));
            }
            Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => {}
            Err(error) => {
                let error = error.to_string();
                return Err(Error::new(ErrorKind::Unavailable, "look at group").message(error));
            }
        }
    }
    Ok(shortest)
}
