//! Messages that a stream let go before their group had settled them.
//!
//! Invariant (INV-1): what retention took from a group is said, where the server shows it. It does not where the group takes
//! some subjects of the stream alone: what is gone may have been for others. What is taken under an instance at work, the instance
//! knows: see `overtaken`.

use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::stream;
use postrider_core::{Error, ErrorKind};

use crate::connection::Up;
use crate::group::Member;
use crate::partitions::Partitions;
use crate::settings::SubscriptionSettings;

/// What is gone behind the place that a group had come to, and that place.
pub(crate) async fn passed(
    up: &Up,
    settings: &SubscriptionSettings,
    members: &[Member],
) -> Option<(u64, Error)> {
    // That it cannot be looked at is said elsewhere: the group has just been found in it.
    let stream = up.jetstream.get_stream(&settings.stream).await.ok()?;
    let infos: Vec<&Info> = members.iter().map(|it| it.consumer.cached_info()).collect();
    told(settings, stream.cached_info(), &infos)
}

/// The same by what the server said of all the group's consumers, and before that of the stream: what was settled in between, and then
/// let go, is not gone.
pub(crate) fn told(
    settings: &SubscriptionSettings,
    stream: &stream::Info,
    infos: &[&Info],
) -> Option<(u64, Error)> {
    let partitions = Partitions::of(settings.subject.as_deref().unwrap_or_default()).ok()?;
    let (place, gone, how) = match (partitions, infos) {
        (None, [info]) => gone(info, stream).map(|(place, gone)| (place, gone, "most"))?,
        (Some(partitions), infos) => gone_of(infos, &partitions.all(), stream)?,
        _ => return None,
    };
    let first = stream.state.first_sequence;
    let error = Error::new(ErrorKind::NotFound, "consume").message(format!(
        "the stream has let messages go that the group had not settled, {gone} at {how}: the group had come to {place}, and the \
         stream begins with {first} now; let the stream keep them longer than the group may stand still"
    ));
    Some((place, error.context("stream", &settings.stream).context("group", &settings.group)))
}

/// Whether all of a stream is a group's: only then it can be told what is gone by where the stream begins.
pub(crate) fn takes_all(settings: &SubscriptionSettings, stream: &stream::Info) -> bool {
    let subject = settings.subject.as_deref().unwrap_or_default();
    let all = Partitions::of(subject).ok().flatten().map(|partitions| partitions.all());
    let all = all.as_deref().unwrap_or(subject);
    all.is_empty() || stream.config.subjects == [all]
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

/// The furthest place of a group's partitions, if all of the stream is theirs. What lies behind it was given to none of them: so
/// many are gone at least, and what was gone before of those that stood still longer, nobody knows any more.
fn gone_of(infos: &[&Info], all: &str, stream: &stream::Info) -> Option<(u64, u64, &'static str)> {
    let takes_all = stream.config.subjects == [all];
    let has_begun = infos.iter().any(|info| info.delivered.consumer_sequence > 0);
    let place = infos.iter().map(|info| info.delivered.stream_sequence).max()?;
    let gone = stream.state.first_sequence.saturating_sub(place + 1);
    (takes_all && has_begun && gone > 0).then_some((place, gone, "least"))
}
