//! The consumer's side: a member of a consumer group.
//!
//! Invariant: a delivery is settled only by whoever holds its partition, and what nobody settles comes again
//! (INV-1).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::plain::ROUTER_SOURCE;
use postrider_core::subscription::SubscriptionCapabilities;
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Fault, Result, Subscription, Timestamp,
};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use crate::begin;
use crate::bury::DeadLetter;
use crate::client::Client;
use crate::holdings::Holdings;
use crate::membership::Membership;
use crate::settings::{KafkaSettings, wrong};
use crate::transactions;
use crate::wall_clock::{LOOK_EVERY, WallClock};

/// What is consumed, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscriptionSettings {
    /// The topics.
    pub topics: Vec<String>,
    /// The consumer group: instances with the same name share the partitions.
    pub group: String,
    /// How long a delivery is ours without being extended, before it is handed out again. Default 30 s. A
    /// rebalance waits as long for the handlers at work.
    pub visibility: Duration,
    /// How long a member may be silent before its partitions go to others. Default 10 s; the group's server has
    /// limits of its own, 6 s to 30 min.
    pub session: Duration,
    /// Records of one partition that may be unsettled here. Default 1,000: one that is not settled holds up no
    /// more than these.
    pub unsettled_max: usize,
    /// Bytes that may be unsettled here, of all partitions; each has an equal part, and one record always. Default
    /// 16 MiB: as much as the library reads ahead, and with it a quarter of what a small process is given.
    pub unsettled_bytes_max: usize,
    /// Whether a new group begins with what comes from now on. Default: with the oldest record. Its beginning is written
    /// down before it is joined, and what came since is not passed over, whoever dies.
    pub from_now: bool,
    /// How long a transaction of another producer may hold up a partition until
    /// [`hindrance`](Subscription::hindrance) names it. Default 90 s: a producer's are ended by their coordinator after 60 s by
    /// default, and it looks every 10 s.
    pub transaction_max: Duration,
    /// Who acts on the deliveries, as his inbox knows him: written down beside what he has settled. Where a partition comes from
    /// another one, [`Notice::OtherHandler`](crate::Notice::OtherHandler) says so: neither knows what the other did. Default:
    /// nobody.
    pub handler: Option<String>,
    /// The source of events in records that Debezium's router wrote, which say none. With its id that is how an inbox knows an
    /// event. Default `debezium`, which is also what Postrider's rows of the router's table say
    /// ([`ROUTER_SOURCE`](postrider_core::plain::ROUTER_SOURCE)): an event that came by both is one.
    pub router_source: String,
    /// The topic that takes what was refused for good, with the reason as headers. Without one a refused record
    /// is passed over, and stands in its topic as long as that keeps it. It has to be there.
    pub dead_letters: Option<String>,
}

impl SubscriptionSettings {
    /// The defaults, for a topic and a group.
    pub fn new(topic: &str, group: &str) -> SubscriptionSettings {
        SubscriptionSettings {
            topics: vec![topic.to_owned()],
            group: group.to_owned(),
            visibility: Duration::from_secs(30),
            session: Duration::from_secs(10),
            unsettled_max: 1_000,
            unsettled_bytes_max: 16 * 1024 * 1024,
            from_now: false,
            transaction_max: Duration::from_secs(90),
            handler: None,
            router_source: ROUTER_SOURCE.to_owned(),
            dead_letters: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.topics.is_empty() || self.topics.iter().any(String::is_empty) {
            return Err(wrong("`topics` names at least one topic"));
        }
        if self.dead_letters.as_ref().is_some_and(|dead| self.topics.contains(dead)) {
            return Err(wrong(
                "the group's own topics take its dead letters, which would come again as new events: choose \
                 another topic for `dead_letters`",
            ));
        }
        if self.router_source.is_empty() {
            return Err(wrong(
                "`router_source` is not empty: an event without a source is refused",
            ));
        }
        if self.group.is_empty() {
            return Err(wrong("`group` is the name of a consumer group"));
        }
        if self.visibility < Duration::from_millis(100) {
            return Err(wrong("`visibility` is at least 100 ms"));
        }
        if self.session < Duration::from_secs(1) {
            return Err(wrong("`session` is at least 1 s"));
        }
        if !(1..=100_000).contains(&self.unsettled_max) {
            return Err(wrong("`unsettled_max` is 1 to 100,000"));
        }
        match self.unsettled_bytes_max {
            0..65_536 => Err(wrong("`unsettled_bytes_max` is at least 64 KiB")),
            _ => Ok(()),
        }
    }
}

/// A member of a consumer group.
///
/// **Order.** A partition has one owner, and of a key one event is handed out at a time: the order of a key holds
/// across the instances of a group. Events of other keys of the partition go on meanwhile.
/// **Commits.** An offset is committed, at most 100 ms later, when everything before it is settled. A crash
/// brings again what was settled behind something that was not.
/// **Rebalances** are cooperative. A partition is given up when what is handed out of it is settled, at the
/// latest after the visibility; what is then settled too late is `Fenced`.
/// **Counting.** Deliveries are counted in this process, and begin at 1 in the next.
pub struct KafkaSubscription {
    settings: SubscriptionSettings,
    kafka: Arc<KafkaSettings>,
    membership: Mutex<Membership>,
    clock: WallClock,
    /// One joins anew at a time.
    joining: tokio::sync::Mutex<()>,
    buried: Client,
}

impl KafkaSubscription {
    /// Finds the topics and joins the group.
    ///
    /// # Errors
    /// `Unroutable` if there is no such topic, `Config` for settings, `Unavailable` or `Unauthorized` if Kafka
    /// cannot be used in time. With [`from_now`](SubscriptionSettings::from_now) `Conflict` if the group is at work and
    /// has no place in one of the topics.
    pub async fn open(
        kafka: KafkaSettings,
        settings: SubscriptionSettings,
    ) -> Result<KafkaSubscription> {
        kafka.check()?;
        settings.check()?;
        let kafka = Arc::new(kafka);
        // Before the client, so that no step is overlooked.
        let clock = WallClock::new();
        let membership = Membership::begin(&kafka, &settings, None).await?;
        Ok(KafkaSubscription {
            // Each by itself: an answer is about one of them.
            buried: Client::new(&kafka, true, &Arc::default()),
            settings,
            kafka,
            membership: Mutex::new(membership),
            clock,
            joining: tokio::sync::Mutex::default(),
        })
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holdings(&self) -> Arc<Holdings> {
        Arc::clone(&self.membership().holdings)
    }

    /// After a step of the wall clock back the group is joined anew, by another client. What is handed out is not ours any
    /// more, and comes again.
    async fn follow_clock(&self) -> Result<()> {
        if self.clock.to_follow().is_none() {
            return Ok(());
        }
        let _alone = self.joining.lock().await;
        let Some(by) = self.clock.to_follow() else { return Ok(()) };
        self.membership().end();
        self.buried.renew().await;
        self.join_anew().await?;
        self.clock.followed(by, &self.kafka.notices);
        Ok(())
    }

    async fn join_anew(&self) -> Result<()> {
        let before = self.holdings();
        let membership = Membership::begin(&self.kafka, &self.settings, Some(&before)).await?;
        *self.membership() = membership;
        Ok(())
    }

    /// Whatever ended the thread that reads, the group is joined anew; where nobody meant it to, somebody is told.
    ///
    /// # Errors
    /// It ended by a fault.
    async fn outlive_reader(&self) -> Result<()> {
        if !self.membership().is_broken() {
            return Ok(());
        }
        let _alone = self.joining.lock().await;
        let renews = self.membership().renews();
        if self.membership().is_broken() {
            self.join_anew().await?;
        }
        if renews {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Internal, "consume")
            .message(
                "the thread that reads from Kafka broke: a fault of this program's, which it has told on standard error; the \
                 group was joined anew, and what is not settled comes again",
            )
            .context("group", &self.settings.group))
    }

    async fn receive_some(&self, max: usize) -> Result<Vec<Delivery>> {
        loop {
            self.follow_clock().await?;
            self.outlive_reader().await?;
            let holdings = self.holdings();
            // waits: the clock tells nobody of its steps
            let looked = tokio::time::timeout(LOOK_EVERY, holdings.receive(max));
            if let Ok(received) = looked.await {
                return received;
            }
        }
    }
}

impl Subscription for KafkaSubscription {
    fn capabilities(&self) -> SubscriptionCapabilities {
        let mut can = SubscriptionCapabilities::least(self.settings.visibility);
        can.key_order = true;
        can
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(self.receive_some(max))
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { self.holdings().settle(delivery.receipt) })
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.holdings().give_back(delivery.receipt, delay, counted) })
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let (place, record) = self.holdings().find(delivery.receipt)?;
            if let Some(topic) = &self.settings.dead_letters {
                let group = &self.settings.group;
                DeadLetter { topic, group, place: &place, record: &record, fault }
                    .bury(&self.buried, &self.kafka)
                    .await?;
            }
            self.holdings().put_aside(delivery.receipt)
        })
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.holdings().extend(delivery.receipt, by) })
    }

    fn begins_before(&self, age: Duration) -> BoxFuture<'_, Result<bool>> {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        let then = (Timestamp::now().as_micros() / 1_000).saturating_sub(age).max(0);
        let (kafka, settings) = (Arc::clone(&self.kafka), self.settings.clone());
        Box::pin(async move {
            let asking = spawn_blocking(move || begin::is_before(then, &settings, &kafka));
            asking.await.map_err(|error| {
                Error::new(ErrorKind::Internal, "subscribe").message(error.to_string())
            })?
        })
    }

    fn hindrance(&self) -> Option<String> {
        let silent = self.membership().coordinator.hindrance();
        let held_up = || self.holdings().held_up();
        silent.or_else(|| transactions::named(&held_up(), self.settings.transaction_max))
    }

    /// Leaves the group: what is settled is committed, and others need not wait for the end of the session. A server that does
    /// not answer in time is left without a word.
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let mut reading = self.membership().end();
            let gone = async { while reading.changed().await.is_ok() {} };
            timeout_at(Instant::now() + self.kafka.deadline, gone).await.map_err(|_| {
                Error::new(ErrorKind::Timeout, "close")
                    .message(
                        "Kafka did not answer, so the group gives these partitions to others when the session has \
                         ended; what was settled last may come again",
                    )
                    .context("group", &self.settings.group)
            })
        })
    }
}

impl Drop for KafkaSubscription {
    fn drop(&mut self) {
        self.membership().end();
    }
}

impl fmt::Debug for KafkaSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSubscription")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
