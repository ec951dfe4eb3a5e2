//! Consumers that somebody changes while they are used.
//!
//! Invariants: no group goes on whose consumer would let a message go that nobody settled, also where somebody makes it so under
//! way (INV-1); and one that somebody paused is no stream in which nothing happens (INV-8).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::stream::{self, Stream};
use futures_util::StreamExt;
use postrider_core::{Error, ErrorKind};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::connection::Up;
use crate::given_up::GivenUp;
use crate::group::{JOINED_AT_ONCE, Member, Wanted, examine};
use crate::overtaken::Overtaken;
use crate::passed;
use crate::settings::SubscriptionSettings;

/// How often the server is asked: what a consumer gives up in between is heard of, or known by whoever had it last, or lost. In a
/// group with very many, each has its turn.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long its answer may take, which nobody waits for.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Watch {
    inner: Mutex<Inner>,
    /// Where its messages are, if it can be named.
    stream: Option<Stream<()>>,
    overtaken: Overtaken,
    /// The group's place behind which messages are gone, once that was told, and one more.
    passed: AtomicU64,
    /// Some of the stream's subjects are others'.
    is_partial: AtomicBool,
}

struct Inner {
    due: Instant,
    /// Whose turn it is.
    next: usize,
    found: Option<Error>,
    /// What was told already, of what does no harm to what is stored.
    told: Option<String>,
}

impl Watch {
    /// Of a group that was just found fit.
    pub(crate) async fn of(up: &Up, settings: &SubscriptionSettings) -> Watch {
        let due = Instant::now() + LOOK_EVERY;
        Watch {
            inner: Mutex::new(Inner { due, next: 0, found: None, told: None }),
            // Nobody is asked for that.
            stream: up.jetstream.get_stream_no_info(&settings.stream).await.ok(),
            overtaken: Overtaken::default(),
            passed: AtomicU64::new(0),
            is_partial: AtomicBool::new(false),
        }
    }

    /// Whether it was not told yet that messages are gone behind this place; it is told now.
    pub(crate) fn is_new(&self, place: u64) -> bool {
        self.passed.swap(place + 1, Ordering::AcqRel) != place + 1
    }

    /// When to look again.
    pub(crate) fn due(&self) -> Instant {
        self.lock().due
    }

    /// Looks at the next occasion.
    pub(crate) fn hasten(&self) {
        self.lock().due = Instant::now();
    }

    /// What was found since.
    pub(crate) fn take(&self) -> Option<Error> {
        self.lock().found.take()
    }

    /// Looks, if it is time to, while messages are waited for; `told` hears of what is found.
    pub(crate) fn look(
        self: &Arc<Self>,
        settings: &SubscriptionSettings,
        members: &[Member],
        given_up: &Arc<GivenUp>,
        told: &Arc<Notify>,
    ) {
        let now = Instant::now();
        let first = {
            let mut inner = self.lock();
            if now < inner.due {
                return;
            }
            inner.due = now + LOOK_EVERY;
            let first = inner.next % members.len().max(1);
            inner.next = first + JOINED_AT_ONCE;
            first
        };
        let (all, looked_at) = (members.len(), members.len().min(JOINED_AT_ONCE));
        let members: Vec<Member> =
            members.iter().cycle().skip(first).take(looked_at).cloned().collect();
        let (watch, told, settings) = (Arc::clone(self), Arc::clone(told), settings.clone());
        let given_up = Arc::clone(given_up);
        let whole = looked_at == all;
        tokio::spawn(async move {
            let asked = &*watch;
            let begins = match &asked.stream {
                // Of some of a group's partitions nothing could be told.
                Some(stream) if whole => asked.begins(&settings, stream).await,
                _ => None,
            };
            let mut infos = Vec::new();
            let looks = members.into_iter().map(|member| async move {
                // That it is gone, or silent, whoever receives finds out.
                let now = async { timeout(LOOK_MAX, member.consumer.get_info()).await.ok()?.ok() };
                let info = match &asked.stream {
                    Some(stream) => asked.overtaken.look(stream, &member, now).await,
                    None => now.await,
                };
                (member, info)
            });
            let mut looks = futures_util::stream::iter(looks).buffer_unordered(JOINED_AT_ONCE);
            while let Some((member, info)) = looks.next().await {
                let Some(info) = info else { continue };
                given_up.looked_at(member.partition, &info);
                if let Some(error) = watch.judge(&settings, &member, &info) {
                    watch.lock().found = Some(error);
                    return told.notify_one();
                }
                infos.push(info);
            }
            let infos: Vec<&Info> = infos.iter().collect();
            let passed = begins.filter(|_| infos.len() == all);
            let passed = passed.and_then(|stream| passed::told(&settings, &stream, &infos));
            let found = match passed {
                Some((place, error)) if watch.overtaken.is_due() && watch.is_new(place) => {
                    watch.overtaken.tells();
                    Some(error)
                }
                _ => watch.overtaken.take(&settings),
            };
            if let Some(error) = found {
                watch.lock().found = Some(error);
                told.notify_one();
            }
        });
    }

    /// Where the stream begins, if all of it is the group's.
    async fn begins(
        &self,
        settings: &SubscriptionSettings,
        stream: &Stream<()>,
    ) -> Option<stream::Info> {
        if self.is_partial.load(Ordering::Relaxed) {
            return None;
        }
        let info = timeout(LOOK_MAX, stream.get_info()).await.ok()?.ok()?;
        let takes_all = passed::takes_all(settings, &info);
        self.is_partial.store(!takes_all, Ordering::Relaxed);
        takes_all.then_some(info)
    }

    fn judge(&self, settings: &SubscriptionSettings, member: &Member, now: &Info) -> Option<Error> {
        let before = &member.consumer.cached_info().config;
        if let Err(error) = examine(settings, &Wanted::of(member), now) {
            return Some(error);
        }
        let (wait, most) = (now.config.ack_wait, now.config.max_ack_pending);
        let said = if wait < settings.visibility {
            format!(
                "waits {wait:?} for an answer, and this instance believes {:?}",
                settings.visibility
            )
        } else if before.max_ack_pending == 1 && most != 1 {
            format!(
                "lets {most} deliveries be in work, so no key is in order across instances any more"
            )
        } else {
            return None;
        };
        let mut inner = self.lock();
        if inner.told.as_ref() == Some(&said) {
            return None;
        }
        let message = format!(
            "somebody has changed the group's consumer `{}`: it {said}; change it back, or start the group's instances anew",
            now.name
        );
        inner.told = Some(said);
        let error = Error::new(ErrorKind::Config, "consume").message(message);
        Some(error.context("stream", &settings.stream).context("group", &settings.group))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
