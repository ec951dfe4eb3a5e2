//! Messages that a stream let go before their group had settled them.
//!
//! Invariant (INV-1): what retention took from a group is said, where the server shows it. It does not where the group takes
//! some subjects of the stream alone: what is gone may have been for others. An operator who purges the stream moves the group
//! as well, and was asked.

use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::stream;
use postrider_core::{Error, ErrorKind};

use crate::connection::Up;
use crate::group::Member;
use crate::settings::SubscriptionSettings;

/// What is gone behind the place that a group had come to, and that place.
pub(crate) async fn passed(
    up: &Up,
    settings: &SubscriptionSettings,
    members: &[Member],
) -> Option<(u64, Error)> {
    let [member] = members else { return None };
    let info = member.consumer.cached_info();
    // That it cannot be looked at is said elsewhere: the group has just been found in it.
    let stream = up.jetstream.get_stream(&settings.stream).await.ok()?;
    let (place, gone) = gone(info, stream.cached_info())?;
    let first = place + gone + 1;
    let error = Error::new(ErrorKind::NotFound, "consume").message(format!(
        "the stream has let messages go that the group had not settled, {gone} at most: the group had come to {place}, and the \
         stream begins with {first} now; let the stream keep them longer than the group may stand still"
    ));
    Some((place, error.context("stream", &settings.stream).context("group", &settings.group)))
}

/// The group's place, and how many messages behind it are gone at most.
fn gone(consumer: &Info, stream: &stream::Info) -> Option<(u64, u64)> {
    let filter = &consumer.config.filter_subject;
    let takes_all = filter.is_empty() || stream.config.subjects == [filter.as_str()];
    let has_begun = consumer.delivered.consumer_sequence > 0;
    let place = consumer.ack_floor.stream_sequence;
    let gone = stream.state.first_sequence.saturating_sub(place + 1);
    (takes_all && has_begun && gone > 0).then_some((place, gone))
}
