//! What comes to a subscription: the answers to its questions, what is there at once, and what its client cannot read.
//!
//! Invariant: what has come is handed out, whatever went wrong behind it. A delivery that is dropped here comes again when its
//! visibility ends, behind later ones of its key.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_nats::jetstream::message::Message;
use futures_util::StreamExt;
use postrider_core::subscription::{Origin, Receipt};
use postrider_core::{Delivery, Error, Event, Fault, Marks, Result};
use tokio::time::{Instant, timeout_at};

use crate::asking::Asking;
use crate::connection::Up;
use crate::encode::decode;
use crate::granted::{answered, next_of};
use crate::group::Member;
use crate::receipts::Original;
use crate::subscription::{FETCH_MAX, NatsSubscription};

/// How long the next message of an answer may take: they come in one go.
const NEXT_MAX: Duration = Duration::from_millis(200);

/// Who is woken so much later than it wished stood still. A machine with much to do is as late as that at times, and waits once more.
const STILL_MIN: Duration = Duration::from_millis(50);

impl NatsSubscription {
    /// What came to the questions, if that is something for whoever receives: that this user is let receive again is, too. An
    /// error is told when nothing else came, or else at the next receive.
    pub(crate) fn take_arrived(
        &self,
        asking: &mut Asking,
        max: usize,
    ) -> Result<Option<Vec<Delivery>>> {
        let mut deliveries = Vec::new();
        let (mut failed, mut is_let) = (None, false);
        for (at, arrived) in asking.take(max) {
            let delivered = match arrived {
                Ok(None) => {
                    is_let = true;
                    continue;
                }
                Ok(Some((came, message))) => self.deliver(&self.members[at], came, message),
                Err(error) => Err(error),
            };
            match delivered {
                Ok(delivery) => deliveries.push(delivery),
                Err(error) => failed = Some(error),
            }
        }
        let came = self.came(deliveries, failed)?;
        let again = is_let && self.refused.swap(false, Ordering::AcqRel);
        Ok((again || !came.is_empty()).then_some(came))
    }

    /// What the server has at this moment. It says when that is all; where it cannot any more, what came is all.
    pub(crate) async fn fetch_ready(&self, max: usize, mut up: Up) -> Result<Vec<Delivery>> {
        let mut until = Instant::now() + self.connection.settings().deadline;
        // The server holds an answer open that its limit of unsettled deliveries stopped in the middle.
        let member = &self.members[0];
        let limit = member.consumer.cached_info().config.max_ack_pending;
        let limit = usize::try_from(limit).unwrap_or(FETCH_MAX).max(1);
        let (subject, since) = (next_of(&up, &member.consumer), Instant::now());
        let fetch = member.consumer.fetch().max_messages(max.min(limit)).messages().await;
        let mut messages = fetch.map_err(|error| self.lost(&error.to_string()))?;
        let (mut deliveries, mut failed) = (Vec::new(), None);
        let mut stood_still = false;
        loop {
            let next = timeout_at(until, messages.next());
            let next = match answered(&mut up, &subject, since, next).await {
                // A process that stood still finds that its time is over before its client has read what came meanwhile.
                Ok(Err(_)) if until.elapsed() > STILL_MIN && !stood_still => {
                    stood_still = true;
                    until = Instant::now() + self.connection.settings().deadline;
                    continue;
                }
                Ok(next) => next.unwrap_or_default(),
                Err(error) => {
                    if up.is_gone() {
                        self.unreadable.lost(up.epoch());
                    } else {
                        failed = Some(self.of_group(error));
                    }
                    None
                }
            };
            let Some(message) = next else { return self.came(deliveries, failed) };
            let delivered = message.map_err(|error| self.lost(&error.to_string()));
            match delivered.and_then(|message| self.deliver(member, Instant::now(), message)) {
                Ok(delivery) => deliveries.push(delivery),
                // What is behind it may come all the same, and with the last word of the server nothing does.
                Err(error) => failed = Some(error),
            }
            // Nor are those kept waiting that came, while their time runs.
            until = until.min(Instant::now() + NEXT_MAX);
        }
    }

    /// What came, and what went wrong meanwhile.
    fn came(&self, deliveries: Vec<Delivery>, failed: Option<Error>) -> Result<Vec<Delivery>> {
        match failed {
            Some(error) if deliveries.is_empty() => return Err(error),
            Some(error) => *self.owed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
            None => {}
        }
        Ok(deliveries)
    }

    /// What the client cannot read, if that is why connections are lost.
    pub(crate) async fn receive_unreadable(&self, max: usize) -> Result<Vec<Delivery>> {
        let mut up =
            self.connection.up(Instant::now() + self.connection.settings().deadline).await?;
        let (settings, members) = (&self.settings, &self.members[..]);
        let found = self.unreadable.look(&mut up, settings, members, &self.receipts, max).await?;
        let until = Instant::now() + self.settings.visibility;
        let deliver = found.into_iter().map(|found| {
            let (member, receipt) = (&self.members[found.member], found.receipt);
            let topic: Arc<str> = Arc::from(found.original.subject.as_str());
            let count = self.receipts.open(receipt, until, found.reply, found.original, 1);
            self.hand_out(member, receipt, topic, count, Err(found.fault))
        });
        Ok(deliver.collect())
    }

    fn deliver(&self, member: &Member, at: Instant, message: Message) -> Result<Delivery> {
        let info = message.info().map_err(|error| self.lost(&error.to_string()))?;
        let receipt = Receipt { message: info.stream_sequence, token: info.consumer_sequence };
        let delivered = u32::try_from(info.delivered).unwrap_or(u32::MAX);
        let taken = info.published.unix_timestamp_nanos();
        let message = message.message;
        let reply = message.reply.ok_or_else(|| self.lost("it has nowhere to be settled"))?;
        let original = Original {
            subject: message.subject.clone(),
            headers: message.headers.clone(),
            body: message.payload.clone(),
            at: taken,
        };
        let until = at + self.settings.visibility;
        self.given_up.came(member.partition, receipt.message, delivered);
        let count = self.receipts.open(receipt, until, reply, original, delivered);
        let topic: Arc<str> = Arc::from(message.subject.as_str());
        let decoded = decode(&topic, message.headers.as_ref(), message.payload);
        Ok(self.hand_out(member, receipt, topic, count, decoded))
    }

    fn hand_out(
        &self,
        member: &Member,
        receipt: Receipt,
        topic: Arc<str>,
        count: u32,
        decoded: std::result::Result<(Arc<Event>, Marks), Fault>,
    ) -> Delivery {
        let (event, marks) = match decoded {
            Ok((event, marks)) => (Ok(event), marks),
            Err(fault) => (Err(fault), Marks::default()),
        };
        let mut delivery = Delivery::new(event, topic, receipt);
        delivery.marks = marks;
        delivery.count = count;
        let mut origin = Origin::new(crate::SYSTEM);
        origin.group = Some(Arc::clone(&self.group));
        origin.partition = member.partition.map(i32::from);
        origin.offset = i64::try_from(receipt.message).ok();
        delivery.origin = Some(origin);
        delivery
    }
}
