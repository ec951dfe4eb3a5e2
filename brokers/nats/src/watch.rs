//! Consumers that somebody changes while they are used.
//!
//! Invariants: no group goes on whose consumer would let a message go that nobody settled, also where somebody makes it so under
//! way (INV-1); and one that somebody paused is no stream in which nothing happens (INV-8).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use futures_util::{StreamExt, stream};
use postrider_core::{Error, ErrorKind};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::given_up::GivenUp;
use crate::group::{JOINED_AT_ONCE, Member, Wanted, examine};
use crate::settings::SubscriptionSettings;

/// How often the server is asked: what a consumer gives up in between is heard of, or known by whoever had it last, or lost. In a
/// group with very many, each has its turn.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long its answer may take, which nobody waits for.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Watch {
    inner: Mutex<Inner>,
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
    pub(crate) fn new() -> Watch {
        let due = Instant::now() + LOOK_EVERY;
        Watch { inner: Mutex::new(Inner { due, next: 0, found: None, told: None }) }
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
        let looked_at = members.len().min(JOINED_AT_ONCE);
        let members: Vec<Member> =
            members.iter().cycle().skip(first).take(looked_at).cloned().collect();
        let (watch, told, settings) = (Arc::clone(self), Arc::clone(told), settings.clone());
        let given_up = Arc::clone(given_up);
        tokio::spawn(async move {
            let looks = members.into_iter().map(|member| async move {
                let info = timeout(LOOK_MAX, member.consumer.get_info()).await;
                (member, info)
            });
            let mut looks = stream::iter(looks).buffer_unordered(JOINED_AT_ONCE);
            while let Some((member, info)) = looks.next().await {
                // That it is gone, or silent, whoever receives finds out.
                let Ok(Ok(info)) = info else { continue };
                given_up.looked_at(member.partition, &info);
                if let Some(error) = watch.judge(&settings, &member, &info) {
                    watch.lock().found = Some(error);
                    return told.notify_one();
                }
            }
        });
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
