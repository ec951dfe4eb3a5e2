//! Where a group begins whose consumer has to be made, and whether that is with what is too old.
//!
//! Invariant: what comes after a group began is handed out, whoever of its members dies (INV-1).

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use futures_util::{StreamExt, TryStreamExt, stream};
use postrider_core::{Error, ErrorKind, Result};

use crate::connection::Up;
use crate::group::{JOINED_AT_ONCE, Member, Wanted, look_for};
use crate::settings::SubscriptionSettings;

/// Whether one of the consumers has never given anything out, and begins with a message from before then. Where an operator
/// has chosen another beginning, that is his word.
///
/// # Errors
/// The server did not say.
pub(crate) async fn begins_before(
    up: &Up,
    settings: &SubscriptionSettings,
    members: &[Member],
    then: i128,
) -> Result<bool> {
    let failed = |error: String| {
        Error::new(ErrorKind::Unavailable, "subscribe")
            .message(format!("the group cannot be looked at: {error}"))
            .context("stream", &settings.stream)
            .context("group", &settings.group)
    };
    let stream = up.jetstream.get_stream(&settings.stream).await;
    let stream = stream.map_err(|error| failed(error.to_string()))?;
    let state = &stream.cached_info().state;
    if state.messages == 0 || state.first_timestamp.unix_timestamp_nanos() >= then {
        return Ok(false);
    }
    for member in members {
        let info = member.consumer.get_info().await.map_err(|error| failed(error.to_string()))?;
        let begins = info.delivered.consumer_sequence == 0;
        if !begins || info.config.deliver_policy != DeliverPolicy::All {
            continue;
        }
        let subject = Some(&*info.config.filter_subject).filter(|subject| !subject.is_empty());
        match stream.get_first_raw_message_by_subject(subject.unwrap_or(">"), 1).await {
            Ok(first) if first.time.unix_timestamp_nanos() >= then => {}
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {}
            // Who may not read the stream is told by its first message, whoever that is for.
            Ok(_) | Err(_) => return Ok(true),
        }
    }
    Ok(false)
}

/// Where a consumer begins that has to be made. A partition that a group did not have so far begins when the group
/// did: what has come into it since then is the group's. So is what came since then where all of its consumers are gone, and
/// somebody still knows of them.
pub(crate) async fn begin(
    stream: &Stream,
    settings: &SubscriptionSettings,
    members: &[Wanted],
    known: &[Member],
) -> Result<DeliverPolicy> {
    if !settings.from_now {
        return Ok(DeliverPolicy::All);
    }
    let names: Vec<String> = members.iter().map(|wanted| wanted.name.clone()).collect();
    let asked = names.into_iter().map(|name| look_for(stream, settings, name));
    let found: Vec<_> = stream::iter(asked).buffered(JOINED_AT_ONCE).try_collect().await?;
    let known = known.iter().map(|member| member.consumer.cached_info().created);
    let first = found.into_iter().flatten().map(|info| info.created).chain(known).min();
    Ok(first.map_or(DeliverPolicy::New, |start_time| DeliverPolicy::ByStartTime { start_time }))
}
