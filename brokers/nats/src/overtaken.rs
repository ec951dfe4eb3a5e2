//! Messages that a stream lets go while a group is behind them, whatever took them: retention, a limit, somebody who purges.
//!
//! A stream does not say of what is gone whose it was. So a message that a consumer has yet to be given is remembered, and looked
//! for again: where it is gone, and the consumer was not given it, it is told of.
//!
//! Invariant (INV-1, INV-7): what is told of is gone, and was not given to the group. The next message is asked for before the
//! consumer's place, so that what was given, settled, and let go in between counts as given.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use postrider_core::{Error, ErrorKind};
use tokio::time::{Instant, timeout};

use crate::group::Member;
use crate::settings::SubscriptionSettings;

/// While a group stays behind its stream's retention, each look finds more. It is told of so often.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Whoever may not ask is refused, and written down by the server, each time.
const REFUSED_FOR: Duration = Duration::from_secs(300);

/// How long an answer may take, which nobody waits for.
const ASK_MAX: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub(crate) struct Overtaken {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Of each consumer, the next message that it has to be given.
    next: HashMap<Option<u16>, Next>,
    /// What is not told yet.
    gone: Option<Gone>,
    told: Option<Instant>,
    /// Nobody answered, or this user may not ask for messages: not before then again.
    not_before: Option<Instant>,
}

/// A message that a consumer has yet to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Next {
    sequence: u64,
    /// When its consumer was made: one of that name that is made anew begins somewhere else.
    made: i128,
    /// How many deliveries it had made when the message was yet to come.
    deliveries: u64,
    /// How many were yet to come then.
    pending: u64,
}

/// What there is from a message on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// This is the next.
    At(u64),
    /// None, and the stream had come to this number a moment later.
    NoneUpTo(u64),
}

/// Numbers of the stream between which messages of the group are gone, and how many these are at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gone {
    first: u64,
    before: u64,
    most: u64,
}

impl Overtaken {
    /// Looks for what is gone of a consumer's; `now` is asked for what it is now.
    pub(crate) async fn look(
        &self,
        stream: &Stream<()>,
        member: &Member,
        now: impl Future<Output = Option<Info>>,
    ) -> Option<Info> {
        let known = self.lock().next.get(&member.partition).copied();
        // First this, and then the consumer's place: see above.
        let found = match known {
            Some(known) => self.next(stream, member, known.sequence).await,
            None => None,
        };
        let info = now.await?;
        if let (Some(known), Some(found)) = (known, found) {
            self.compare(member.partition, known, found, &info);
        }
        let is_known = self.lock().next.contains_key(&member.partition);
        if !is_known && info.num_pending > 0 {
            let behind = info.delivered.stream_sequence + 1;
            if let Some(Found::At(sequence)) = self.next(stream, member, behind).await {
                let next = Next {
                    sequence,
                    made: info.created.unix_timestamp_nanos(),
                    deliveries: info.delivered.consumer_sequence,
                    pending: info.num_pending,
                };
                self.lock().next.insert(member.partition, next);
            }
        }
        Some(info)
    }

    /// The next message from a number on, or that there is none; nothing where nobody says it.
    async fn next(&self, stream: &Stream<()>, member: &Member, from: u64) -> Option<Found> {
        if self.lock().not_before.is_some_and(|then| Instant::now() < then) {
            return None;
        }
        let filter = &member.consumer.cached_info().config.filter_subject;
        let filter = if filter.is_empty() { ">" } else { filter };
        let asked = stream.get_first_raw_message_by_subject(filter, from);
        match timeout(ASK_MAX, asked).await {
            Ok(Ok(message)) => Some(Found::At(message.sequence)),
            Ok(Err(error)) if error.kind() == RawMessageErrorKind::NoMessageFound => {
                let info = timeout(ASK_MAX, stream.get_info()).await.ok()?.ok()?;
                Some(Found::NoneUpTo(info.state.last_sequence))
            }
            Ok(Err(_)) | Err(_) => {
                self.lock().not_before = Some(Instant::now() + REFUSED_FOR);
                None
            }
        }
    }

    /// `found` is what there was from the known message on, before the consumer was what it is `now`.
    fn compare(&self, partition: Option<u16>, known: Next, found: Found, now: &Info) {
        let mut inner = self.lock();
        if now.created.unix_timestamp_nanos() != known.made {
            inner.next.remove(&partition);
            return;
        }
        let has_come = now.delivered.stream_sequence >= known.sequence;
        let is_there = found == Found::At(known.sequence);
        if has_come || !is_there {
            inner.next.remove(&partition);
        }
        // A consumer comes behind a message by being given it, or since it was let go: then fewer were given than wait less. What came
        // anew can only hide that, and so can what was given twice.
        let given = now.delivered.consumer_sequence.saturating_sub(known.deliveries);
        let fewer = known.pending.saturating_sub(now.num_pending);
        if is_there || (has_come && fewer <= given) {
            return;
        }
        let before = match found {
            Found::At(next) => next,
            Found::NoneUpTo(last) => last.saturating_add(1),
        };
        inner.add(known.sequence, before.max(known.sequence + 1));
    }

    /// What is gone, if it is time to tell of it.
    pub(crate) fn take(&self, settings: &SubscriptionSettings) -> Option<Error> {
        if !self.is_due() {
            return None;
        }
        let Gone { first, before, most } = self.lock().gone.take()?;
        self.tells();
        let last = before - 1;
        let told = Error::new(ErrorKind::NotFound, "consume").message(format!(
            "the stream has let messages go that the group had not been given, {most} at most, between {first} and {last}: its limits \
             took them, or somebody who purged it; let the stream keep them longer than the group may be behind"
        ));
        Some(told.context("stream", &settings.stream).context("group", &settings.group))
    }

    /// Whether it is time to tell of something.
    pub(crate) fn is_due(&self) -> bool {
        let told = self.lock().told;
        told.is_none_or(|told| Instant::now() >= told + TELL_EVERY)
    }

    /// Something is told.
    pub(crate) fn tells(&self) {
        self.lock().told = Some(Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn add(&mut self, first: u64, before: u64) {
        let more = Gone { first, before, most: before - first };
        self.gone = Some(self.gone.map_or(more, |gone| Gone {
            first: gone.first.min(first),
            before: gone.before.max(before),
            // Of several partitions each number is counted for each.
            most: (gone.most + more.most).min(gone.before.max(before) - gone.first.min(first)),
        }));
    }
}
