//! The durable consumers behind a group: found, or made, and fit for what the engine promises.
//!
//! Invariant (INV-1): no group is joined whose consumer would let a message go that nobody settled.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, Info, PullConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{ConsumerErrorKind, Stream};
use futures_util::{StreamExt, TryStreamExt, stream};
use postrider_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::begin::begin;
use crate::bury;
use crate::connection::Up;
use crate::granted::answered;
use crate::partitions::{self, Partitions};
use crate::place::Places;
use crate::settings::{SubscriptionSettings, wrong};
use crate::unfit::{self, unfit};

/// Below it the server delivers again what is merely on its way.
const VISIBILITY_MIN: Duration = Duration::from_millis(100);

/// Consumers that are looked for or made at once. A cluster needs some time for each.
pub(crate) const JOINED_AT_ONCE: usize = 16;

/// One consumer of a group: all of it, or its part in one partition.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) partition: Option<u16>,
    pub(crate) consumer: PullConsumer,
    /// There was one, and it was made anew.
    pub(crate) anew: Option<Anew>,
}

/// From where a consumer that was made anew goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Anew {
    /// From where its group began.
    Begin,
    /// Behind this message: all up to it was settled.
    Behind(u64),
}

/// What an instance knows of the group that it is in.
pub(crate) struct Before<'a> {
    pub(crate) members: &'a [Member],
    pub(crate) places: &'a Places,
}

/// What a member is to be.
pub(crate) struct Wanted {
    partition: Option<u16>,
    pub(crate) name: String,
    subject: Option<String>,
    /// Deliveries that may be unsettled at once.
    unsettled_max: u32,
}

impl Wanted {
    /// What a member was when it was found fit.
    pub(crate) fn of(member: &Member) -> Wanted {
        let info = member.consumer.cached_info();
        let subject = Some(info.config.filter_subject.clone()).filter(|it| !it.is_empty());
        Wanted { partition: member.partition, name: info.name.clone(), subject, unsettled_max: 0 }
    }
}

/// Refuses what no server would take, before one is asked. Returns the partitions, if the subject has some.
///
/// # Errors
/// `Config`, naming the setting.
pub(crate) fn check(settings: &SubscriptionSettings) -> Result<Option<Partitions>> {
    if settings.visibility < VISIBILITY_MIN {
        return Err(wrong("`visibility` is at least 100 ms"));
    }
    for (name, value) in [("stream", &settings.stream), ("group", &settings.group)] {
        let bad = |c: char| c.is_whitespace() || c.is_control() || ".*>/\\".contains(c);
        if value.is_empty() || value.contains(bad) {
            return Err(wrong(format!(
                "the {name} `{}` cannot be a name at NATS: it has no blanks and none of . * > / \\",
                value.escape_debug()
            )));
        }
    }
    let partitions = Partitions::of(settings.subject.as_deref().unwrap_or_default());
    let partitions = partitions.map_err(wrong)?;
    let subjects = [&settings.subject, &settings.dead_letters];
    if subjects.into_iter().flatten().any(|subject| !is_subject(subject)) {
        return Err(wrong("a subject is made of words with dots between them, and has no blanks"));
    }
    if settings.dead_letters.as_ref().is_some_and(|subject| subject.contains(['*', '>'])) {
        return Err(wrong("`dead_letters` is one subject, without * and >"));
    }
    Ok(partitions)
}

fn is_subject(text: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    text.split('.').all(|word| !word.is_empty() && !word.contains(odd))
}

/// What is told once of consumers that were made anew, if some were: from where the one goes on that is furthest back. What
/// comes again is the inbox's, as far back as that keeps what was done.
pub(crate) fn made_anew(settings: &SubscriptionSettings, joined: &[Member]) -> Option<Error> {
    let again = match joined.iter().filter_map(|member| member.anew).min()? {
        Anew::Behind(sequence) => format!(
            "it goes on behind message {sequence}, up to which all was settled, and what was settled since then comes again; \
             to have all of the stream again, stop each instance of the group before its consumer is deleted"
        ),
        Anew::Begin => format!(
            "{} comes again, and what the inbox no longer keeps is done again; stop this consumer now if that is too far back",
            if settings.from_now {
                "what came since the group began"
            } else {
                "all that the stream has"
            }
        ),
    };
    let told = format!(
        "somebody deleted the group's consumer, or its server lost it, and it was made anew: {again}"
    );
    let error = Error::new(ErrorKind::NotFound, "consume").message(told);
    Some(error.context("stream", &settings.stream).context("group", &settings.group))
}

/// The group's consumers: one, or one for each partition. `before` is what there was, where it may be gone.
///
/// # Errors
/// As [`open`](crate::NatsSubscription::open).
pub(crate) async fn join(
    up: &Up,
    settings: &SubscriptionSettings,
    partitions: Option<&Partitions>,
    before: Option<Before<'_>>,
) -> Result<Vec<Member>> {
    let (mut asking, since) = (up.clone(), Instant::now());
    let asked = format!("{}.STREAM.INFO.{}", up.api, settings.stream);
    let found = answered(&mut asking, &asked, since, up.jetstream.get_stream(&settings.stream));
    let stream = found.await?.map_err(|error| {
        let (kind, said) = match error.kind() {
            GetStreamErrorKind::JetStream(said) if said.code() == 404 => (
                ErrorKind::Unroutable,
                "there is no such stream: create it, or correct its name".to_owned(),
            ),
            // A cluster without a leader, or one that is slow, has said nothing about the stream.
            _ => (ErrorKind::Unavailable, format!("the stream cannot be looked for: {error}")),
        };
        Error::new(kind, "subscribe").message(said).context("stream", &settings.stream)
    })?;
    bury::find_place(up, settings, partitions).await?;
    let wanted = members(settings, partitions);
    let known = before.as_ref().map_or(&[][..], |before| before.members);
    let from = begin(&stream, settings, &wanted, known).await?;
    let places = before.as_ref().map(|before| before.places);
    let found =
        wanted.into_iter().map(|wanted| find(up.clone(), &stream, settings, wanted, from, places));
    stream::iter(found).buffered(JOINED_AT_ONCE).try_collect().await
}

/// What is known of a consumer, if it is there.
pub(crate) async fn look_for(
    stream: &Stream,
    settings: &SubscriptionSettings,
    name: String,
) -> Result<Option<Info>> {
    match stream.consumer_info(&name).await {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => Ok(None),
        Err(error) => {
            // What the server says of itself has nothing to do with what this user may.
            let said = matches!(error.kind(), ConsumerInfoErrorKind::JetStream(_));
            let advice = if said { "" } else { "; this user needs $JS.API.CONSUMER.INFO" };
            let message = format!("the group's consumer cannot be looked for: {error}{advice}");
            let error = Error::new(ErrorKind::Unavailable, "subscribe").message(message);
            Err(error.context("stream", &settings.stream).context("consumer", name))
        }
    }
}

/// Who is to be in the group.
fn members(settings: &SubscriptionSettings, partitions: Option<&Partitions>) -> Vec<Wanted> {
    let Some(partitions) = partitions else {
        return vec![Wanted {
            partition: None,
            name: settings.group.clone(),
            subject: settings.subject.clone(),
            unsettled_max: settings.unsettled_max,
        }];
    };
    let member = |partition| Wanted {
        partition: Some(partition),
        name: partitions::consumer(&settings.group, partition),
        subject: Some(partitions.filter(partition)),
        // With one, the server itself keeps the order of the partition, whoever asks.
        unsettled_max: 1,
    };
    (0..partitions.count()).map(member).collect()
}

/// Finds or makes one. That it is not there is looked for where there was one: when it was made tells nothing, since a
/// server that is started again takes another moment for it.
async fn find(
    mut up: Up,
    stream: &Stream,
    settings: &SubscriptionSettings,
    wanted: Wanted,
    from: DeliverPolicy,
    places: Option<&Places>,
) -> Result<Member> {
    let anew = match places {
        Some(places) if look_for(stream, settings, wanted.name.clone()).await?.is_none() => {
            let place = places.find(stream, wanted.partition).await;
            Some(place.map_or(Anew::Begin, Anew::Behind))
        }
        _ => None,
    };
    let from = match anew {
        Some(Anew::Behind(sequence)) => {
            DeliverPolicy::ByStartSequence { start_sequence: sequence + 1 }
        }
        Some(Anew::Begin) | None => from,
    };
    let config = config(settings, &wanted, from);
    let asked = format!("{}.CONSUMER.INFO.{}.{}", up.api, settings.stream, wanted.name);
    let consumer = stream.get_or_create_consumer(&wanted.name, config);
    let consumer = answered(&mut up, &asked, Instant::now(), consumer).await?;
    let consumer: PullConsumer = consumer.map_err(|error| {
        let is_ours = match error.kind() {
            ConsumerErrorKind::JetStream(said) => said.code() < 500,
            kind => matches!(
                kind,
                ConsumerErrorKind::InvalidConsumerType | ConsumerErrorKind::InvalidName
            ),
        };
        let said = format!("cannot be used: {error}");
        match is_ours {
            true => unfit(settings, &wanted, &said, unfit::advice(&said)),
            false => Error::new(ErrorKind::Unavailable, "subscribe")
                .message(format!("the group's consumer `{}` {said}", wanted.name))
                .context("stream", &settings.stream)
                .context("group", &settings.group),
        }
    })?;
    examine(settings, &wanted, consumer.cached_info())?;
    Ok(Member { partition: wanted.partition, consumer, anew })
}

fn config(settings: &SubscriptionSettings, wanted: &Wanted, from: DeliverPolicy) -> pull::Config {
    pull::Config {
        durable_name: Some(wanted.name.clone()),
        deliver_policy: from,
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.visibility,
        // The server would end a message at its last delivery and say so to nobody.
        max_deliver: -1,
        filter_subject: wanted.subject.clone().unwrap_or_default(),
        max_ack_pending: i64::from(wanted.unsettled_max),
        ..pull::Config::default()
    }
}

/// Whether a filter takes a subject.
pub(crate) fn matches(filter: &str, subject: &str) -> bool {
    let (mut filter, mut subject) = (filter.split('.'), subject.split('.'));
    loop {
        match (filter.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(pattern), Some(word)) if pattern == "*" || pattern == word => {}
            _ => return false,
        }
    }
}

/// A consumer that somebody made, or has changed, may have settings under which messages are lost. One that is paused hands nothing
/// out until then.
pub(crate) fn examine(settings: &SubscriptionSettings, wanted: &Wanted, info: &Info) -> Result<()> {
    if info.paused {
        let left = Duration::from_secs(info.pause_remaining.unwrap_or_default().as_secs());
        let said = format!(
            "the group's consumer `{name}` is paused for another {left:?}, and hands nothing out: `nats consumer resume {} \
             {name}` ends that",
            settings.stream,
            name = wanted.name
        );
        return Err(Error::new(ErrorKind::Unavailable, "subscribe").message(said));
    }
    let found = &info.config;
    let (said, advice) = if found.ack_policy != AckPolicy::Explicit {
        (format!("has the ack policy {:?}", found.ack_policy), "its ack policy must be explicit")
    } else if found.max_deliver > 0 {
        (
            format!("gives a message up after {} deliveries, and tells nobody", found.max_deliver),
            "set its max deliver to -1",
        )
    } else if !found.inactive_threshold.is_zero() {
        (
            format!("is deleted when nobody asks for {:?}", found.inactive_threshold),
            "set its inactive threshold to nothing",
        )
    } else if found.headers_only {
        ("gives no payloads".to_owned(), "it must not give headers only")
    } else if found.ack_wait < VISIBILITY_MIN {
        (format!("waits {:?} for an answer", found.ack_wait), "set its ack wait to 30 s")
    } else if !found.filter_subjects.is_empty()
        || found.filter_subject != wanted.subject.as_deref().unwrap_or_default()
    {
        let mut subjects = found.filter_subjects.clone();
        subjects.extend(Some(found.filter_subject.clone()).filter(|subject| !subject.is_empty()));
        let subjects = if subjects.is_empty() { ">".to_owned() } else { subjects.join(", ") };
        (format!("takes the subjects {subjects}"), "name the same subjects")
    } else if wanted.partition.is_some() && found.max_ack_pending != 1 {
        let most = found.max_ack_pending;
        let said =
            format!("lets {most} deliveries of its partition be in work, so no key is in order");
        (said, "set its max ack pending to 1")
    } else {
        return Ok(());
    };
    Err(unfit(settings, wanted, &said, &format!("{advice}, or choose another group")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_match_as_the_server_matches() {
        for (filter, subject, expected) in [
            (">", "a.b", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("*.b", "a.b", true),
            ("a.b", "a.b", true),
            ("a.b", "a.c", false),
            ("a.b.c", "a.b", false),
        ] {
            assert_eq!(matches(filter, subject), expected, "{filter} {subject}");
        }
    }

    #[test]
    fn names_that_no_server_takes_are_refused() {
        assert!(check(&SubscriptionSettings::new("ORDERS", "billing")).is_ok());
        for (stream, group) in [("", "g"), ("S", ""), ("S", "a.b"), ("S", "a b"), ("S>", "g")] {
            let error = check(&SubscriptionSettings::new(stream, group)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
        }
        for subject in ["", "a..b", "a b", "."] {
            let mut settings = SubscriptionSettings::new("S", "g");
            settings.subject = Some(subject.to_owned());
            assert!(check(&settings).is_err(), "{subject}");
        }
        let mut settings = SubscriptionSettings::new("S", "g");
        settings.dead_letters = Some("dead.*".to_owned());
        assert!(check(&settings).is_err());
    }
}
