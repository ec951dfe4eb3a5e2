//! What a server gives up of a group's, since somebody gave its consumer a max deliver while it was used.
//!
//! Invariant (INV-1): it is among the dead letters, as far as anybody can know of it. The server tells of a message that it gives up at
//! its last delivery, once, to whoever listens; of one that was handed out more often by then it says nothing, and
//! whoever had it last knows. Rather a dead letter of what somebody has done meanwhile than none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use postrider_core::{Error, ErrorKind, Fault, Result};
use tokio::time::Instant;

use crate::bury::DeadLetter;
use crate::connection::Up;
use crate::group::Member;
use crate::receipts::Receipts;
use crate::subscription::NatsSubscription;
use crate::unreadable::as_stored;

/// Messages that came here and are not settled, of which is known how often they did: as many as receipts know of. The oldest go
/// first, which somebody else has settled most likely.
const SEEN_MAX: usize = 10_000;
/// Messages that wait to be buried. A server gives no more up at once than a consumer may have in work, by far.
const LOST_MAX: usize = 65_536;
/// Of these in one go, before others are received.
const BURIED_MAX: usize = 256;
/// How long nobody tries again after a dead letter that was not kept: what comes goes on meanwhile.
const AGAIN: Duration = Duration::from_secs(5);

/// Which of the group's consumers: that of a partition, or the only one.
pub(crate) type Whose = Option<u16>;

/// See the module.
pub(crate) struct GivenUp {
    receipts: Arc<Receipts>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// How often what came here, and is not settled, was handed out.
    seen: BTreeMap<u64, Times>,
    /// After how many deliveries a consumer gives a message up, where it does.
    limits: BTreeMap<Whose, u32>,
    /// What is given up.
    lost: BTreeMap<u64, Times>,
    not_before: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Times {
    whose: Whose,
    deliveries: u32,
}

impl GivenUp {
    /// Of a group whose open deliveries these are.
    pub(crate) fn new(receipts: Arc<Receipts>) -> GivenUp {
        GivenUp { receipts, inner: Mutex::default() }
    }

    /// A message came, for the so-manieth time.
    pub(crate) fn came(&self, whose: Whose, sequence: u64, deliveries: u32) {
        let mut inner = self.lock();
        inner.seen.insert(sequence, Times { whose, deliveries });
        if inner.seen.len() > SEEN_MAX {
            inner.seen.pop_first();
        }
    }

    /// It was settled, or buried.
    pub(crate) fn settled(&self, sequence: u64) {
        let mut inner = self.lock();
        inner.seen.remove(&sequence);
        inner.lost.remove(&sequence);
    }

    /// The server says that it has given a message up.
    pub(crate) fn announced(&self, whose: Whose, sequence: u64, deliveries: u32) {
        let mut inner = self.lock();
        if inner.lost.len() < LOST_MAX {
            inner.lost.insert(sequence, Times { whose, deliveries });
        }
        inner.limits.insert(whose, deliveries);
    }

    /// All of the group's consumers are fit, and were just looked at.
    pub(crate) fn joined(&self, members: &[Member]) {
        for member in members {
            self.looked_at(member.partition, member.consumer.cached_info());
        }
    }

    /// How a consumer is set now, and how far it has come.
    pub(crate) fn looked_at(&self, whose: Whose, info: &Info) {
        let mut inner = self.lock();
        if let Ok(limit @ 1..) = u32::try_from(info.config.max_deliver) {
            inner.limits.insert(whose, limit);
            return;
        }
        self.gather(&mut inner);
        inner.limits.remove(&whose);
        let floor = info.ack_floor.stream_sequence;
        inner.seen.retain(|sequence, times| times.whose != whose || *sequence > floor);
    }

    /// Whether something is.
    pub(crate) fn is_due(&self) -> bool {
        let inner = self.lock();
        !inner.lost.is_empty() && inner.not_before.is_none_or(|at| Instant::now() >= at)
    }

    /// What is to be buried now.
    fn due(&self) -> Vec<(u64, Times)> {
        let mut inner = self.lock();
        if inner.not_before.is_some_and(|at| Instant::now() < at) {
            return Vec::new();
        }
        inner.not_before = None;
        self.gather(&mut inner);
        inner.lost.iter().take(BURIED_MAX).map(|(sequence, times)| (*sequence, *times)).collect()
    }

    /// What came here as often as its consumer lets it, and nobody here has any more, does not come again.
    fn gather(&self, inner: &mut Inner) {
        if inner.limits.is_empty() {
            return;
        }
        let is_lost = |sequence: u64, times: &Times| {
            let limit = inner.limits.get(&times.whose);
            limit.is_some_and(|limit| times.deliveries >= *limit)
                && !self.receipts.is_open(sequence)
        };
        let found: Vec<(u64, Times)> = inner
            .seen
            .iter()
            .filter(|(sequence, times)| is_lost(**sequence, times))
            .map(|(sequence, times)| (*sequence, *times))
            .collect();
        for (sequence, times) in found {
            inner.lost.entry(sequence).or_insert(times);
        }
    }

    fn put_off(&self) {
        self.lock().not_before = Some(Instant::now() + AGAIN);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NatsSubscription {
    /// Makes dead letters of what the server has given up.
    ///
    /// # Errors
    /// That it has, and where these messages are; or that one was not kept, and then it is tried again.
    pub(crate) async fn bury_given_up(&self) -> Result<()> {
        let due = self.given_up.due();
        let (Some((first, times)), Some((last, _))) = (due.first().copied(), due.last().copied())
        else {
            return Ok(());
        };
        let deadline = self.connection.settings().deadline;
        let mut up = self.connection.up(Instant::now() + deadline).await?;
        let mut gone = 0;
        for (sequence, times) in &due {
            let kept = self.bury_one(&mut up, *sequence, *times, Instant::now() + deadline).await;
            gone += u64::from(!kept.inspect_err(|_| self.given_up.put_off())?);
            self.given_up.settled(*sequence);
            self.receipts.forget(*sequence);
        }
        let place = match &self.settings.dead_letters {
            Some(subject) => format!("they are among the dead letters of `{subject}`"),
            None => "without `dead_letters` they are in the stream alone".to_owned(),
        };
        let gone = if gone > 0 {
            format!("; the stream has let {gone} of them go")
        } else {
            String::new()
        };
        let message = format!(
            "NATS gave {} messages up, {first} to {last}, after {} deliveries, since somebody gave the group's consumer a max \
             deliver: {place}{gone}; what was done of them meanwhile the inbox knows",
            due.len(),
            times.deliveries
        );
        Err(self.of_group(Error::new(ErrorKind::NotFound, "consume").message(message)))
    }

    /// Whether it is kept; not where its stream has it no more, or nobody wants dead letters.
    async fn bury_one(
        &self,
        up: &mut Up,
        sequence: u64,
        times: Times,
        until: Instant,
    ) -> Result<bool> {
        let Some(subject) = &self.settings.dead_letters else { return Ok(true) };
        let member = self.members.iter().find(|member| member.partition == times.whose);
        let Some(member) = member else { return Ok(true) };
        let stored = as_stored(up, member.consumer.cached_info(), sequence).await;
        let Some(original) = stored.map_err(|said| self.lost(&said))? else { return Ok(false) };
        let fault = Fault::new(
            ErrorKind::Config,
            format!(
                "the server gave it up after {} deliveries, since somebody changed the max deliver of the group's consumer; \
                 nobody may have acted on it",
                times.deliveries
            ),
        );
        let letter = DeadLetter {
            original: &original,
            subject,
            stream: &self.settings.stream,
            group: &self.settings.group,
            sequence,
            fault: &fault,
        };
        letter.bury(up, until).await.map(|()| true)
    }
}
