//! The consumer's side: durable pull consumers of a stream, shared by the instances of a group.
//!
//! Invariant: a delivery is settled only by a confirmed answer to the server, and what nobody settles comes
//! again (INV-1).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_nats::Request;
use async_nats::client::RequestErrorKind;
use async_nats::jetstream::AckKind;
use postrider_core::subscription::SubscriptionCapabilities;
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Fault, Result, Subscription, Timestamp,
};
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::advisory::{self, Listening, Told};
use crate::asking::{Asking, With};
use crate::begin;
use crate::bury::DeadLetter;
use crate::connection::Connection;
use crate::domain;
use crate::given_up::GivenUp;
use crate::granted::answered;
use crate::group::{self, Before, Member};
use crate::partitions::Partitions;
use crate::passed::passed;
use crate::place::{Place, Places};
use crate::question::Books;
use crate::receipts::Receipts;
use crate::settings::{NatsSettings, SubscriptionSettings};
use crate::unreadable::Unreadable;
use crate::watch::Watch;

/// Deliveries fetched at once, whatever is asked for: more would only wait here while their time runs.
pub(crate) const FETCH_MAX: usize = 512;

/// A subscription to a stream of NATS JetStream.
///
/// **Order.** The server hands out in the order of the stream, to whoever asks first: across the instances
/// of a group, and across a crash or a connection that is lost with messages on their way, a key has no order, and otherwise within
/// one process the consumer engine keeps it.
/// A group with one unsettled delivery at a time ([`SubscriptionSettings::unsettled_max`]) has the stream's,
/// and one with partitions ([`SubscriptionSettings::subject`]) has the order of each partition: the server hands
/// out no next event of it before the one before is settled, whoever has it, or had it and died.
/// **Counting.** The server counts every delivery. One that was merely somebody else's turn is taken off
/// here, in this process.
/// **Extending** prolongs by the visibility of the consumer, however much is asked for.
pub struct NatsSubscription {
    pub(crate) connection: Connection,
    pub(crate) group: Arc<str>,
    pub(crate) settings: SubscriptionSettings,
    partitions: Option<Partitions>,
    pub(crate) members: Vec<Member>,
    pub(crate) receipts: Arc<Receipts>,
    pub(crate) unreadable: Arc<Unreadable>,
    places: Arc<Places>,
    watch: Arc<Watch>,
    pub(crate) given_up: Arc<GivenUp>,
    _listening: Option<Listening>,
    asking: Mutex<Asking>,
    /// One of the questions has an answer.
    told: Arc<Notify>,
    /// What is told at the next receive, since something came with it.
    pub(crate) owed: std::sync::Mutex<Option<Error>>,
    /// A receive failed: the consumer may be gone.
    suspect: AtomicBool,
    /// This user was not let receive, and has not been since.
    pub(crate) refused: AtomicBool,
}

impl NatsSubscription {
    /// Finds the stream, and finds or makes the group's consumer. One that is there keeps its settings: its
    /// ack wait is the visibility then.
    ///
    /// # Errors
    /// `Unroutable` if there is no such stream, or none that takes the dead letters; `Config` if the group
    /// has a consumer that would lose messages or takes other subjects; `Unavailable` if NATS cannot be
    /// reached in time.
    pub async fn open(
        nats: NatsSettings,
        mut settings: SubscriptionSettings,
    ) -> Result<NatsSubscription> {
        let partitions = group::check(&settings)?;
        let connection = Connection::new(nats)?;
        let until = Instant::now() + connection.settings().deadline;
        let up = connection.up(until).await?;
        let members = group::join(&up, &settings, partitions.as_ref(), None).await;
        let members = match members {
            Ok(members) => members,
            Err(error) => {
                let error = domain::told_of_the_servers_own(&up, until, error).await;
                return Err(connection.settings().within(error));
            }
        };
        // The server's word counts: whoever made a consumer may have chosen another time.
        let waits = members.iter().map(|member| member.consumer.cached_info().config.ack_wait);
        settings.visibility = waits.min().unwrap_or(settings.visibility);
        let asking = Asking::of(members.len());
        let passed = timeout_at(until, passed(&up, &settings, &members)).await.ok().flatten();
        let places = Arc::new(Places::new(settings.visibility));
        let unreadable = Arc::new(Unreadable::new(settings.visibility));
        let watch = Arc::new(Watch::of(&up, &settings).await);
        let owed = passed.filter(|(place, _)| watch.is_new(*place)).map(|(_, told)| told);
        let (told, receipts) = (Arc::<Notify>::default(), Arc::<Receipts>::default());
        let given_up = Arc::new(GivenUp::new(Arc::clone(&receipts)));
        let hears = Told {
            given_up: Arc::clone(&given_up),
            watch: Arc::clone(&watch),
            notify: Arc::clone(&told),
        };
        let domain = connection.settings().domain.as_deref();
        let listening = advisory::listen(&up, until, domain, &settings, &members, hears).await;
        Ok(NatsSubscription {
            connection,
            group: Arc::from(settings.group.as_str()),
            settings,
            partitions,
            members,
            receipts,
            unreadable,
            places,
            watch,
            given_up,
            _listening: listening,
            asking: Mutex::new(asking),
            told,
            owed: std::sync::Mutex::new(owed),
            suspect: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        })
    }

    /// Receives; after a failure with a consumer that is there, or made anew where somebody deleted it: then what was
    /// settled last comes again, or all of the stream. That the server has answered is an answer of its own: a stream in which nothing happens
    /// would leave who asked with the failure.
    async fn receive_some(&self, max: usize) -> Result<Vec<Delivery>> {
        self.bury_given_up().await?;
        if self.suspect.load(Ordering::Acquire) {
            // Also while nothing is received: how long a consumer gives messages up.
            self.watch.look(&self.settings, &self.members, &self.given_up, &self.told);
            let until = Instant::now() + self.connection.settings().deadline;
            let up = self.connection.up(until).await?;
            let partitions = self.partitions.as_ref();
            let before = Before { members: &self.members, places: &self.places };
            let joined = group::join(&up, &self.settings, partitions, Some(before));
            let joined = timeout_at(until, joined).await;
            let joined = joined.map_err(|_| self.lost("it did not answer in time"))??;
            self.given_up.joined(&joined);
            // It stays suspect: that all is well is the next answer.
            if let Some(told) = group::made_anew(&self.settings, &joined) {
                return Err(told);
            }
            let passed = timeout_at(until, passed(&up, &self.settings, &joined)).await;
            if let Some((place, told)) = passed.ok().flatten()
                && self.watch.is_new(place)
            {
                return Err(told);
            }
            self.suspect.store(false, Ordering::Release);
            return Ok(Vec::new());
        }
        let received = self.receive_asked(max).await;
        match &received {
            Ok(_) => {}
            // The consumer is there: that it can be looked at would not say that all is well.
            Err(error) if error.kind() == ErrorKind::Unauthorized => {
                self.refused.store(true, Ordering::Release);
            }
            Err(_) => self.suspect.store(true, Ordering::Release),
        }
        received
    }

    async fn receive_asked(&self, max: usize) -> Result<Vec<Delivery>> {
        let max = max.clamp(1, FETCH_MAX);
        // Questions are kept while they are waited for: whoever drops this call leaves them to the next.
        let mut asking = self.asking.lock().await;
        if let Some(owed) = self.owed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(owed);
        }
        loop {
            self.watch.look(&self.settings, &self.members, &self.given_up, &self.told);
            if self.given_up.is_due() {
                // Buried by the next receive, which is asked for at once.
                return Ok(Vec::new());
            }
            if let Some(error) = self.watch.take() {
                // What came to them is given back before somebody else has it.
                asking.withdraw().await;
                return Err(error);
            }
            if self.unreadable.is_due() {
                let unreadable = self.receive_unreadable(max).await?;
                if !unreadable.is_empty() {
                    return Ok(unreadable);
                }
            }
            if let Some(arrived) = self.take_arrived(&mut asking, max)? {
                return Ok(arrived);
            }
            if asking.is_idle() {
                let deadline = self.connection.settings().deadline;
                let up = self.connection.up(Instant::now() + deadline).await?;
                // One delivery at a time needs no question that fetches many.
                if self.partitions.is_none() {
                    let ready = self.fetch_ready(max, up.clone()).await?;
                    if !ready.is_empty() || self.refused.swap(false, Ordering::AcqRel) {
                        return Ok(ready);
                    }
                }
                let books = Books {
                    receipts: Arc::clone(&self.receipts),
                    unreadable: Arc::clone(&self.unreadable),
                };
                let with = With {
                    members: &self.members,
                    up: &up,
                    patience: self.settings.visibility / 2,
                    books: &books,
                    told: &self.told,
                };
                asking.ask(max, &with);
            }
            tokio::select! {
                () = self.told.notified() => {}
                // waits: nobody is told that a consumer was changed
                () = sleep_until(self.watch.due()) => {}
            }
        }
    }

    /// Tells the server, and waits until it has heard. The client's own way takes it for heard where nobody is there to
    /// hear it, and opens a subscription for each.
    async fn settle(&self, delivery: &Delivery, kind: AckKind) -> Result<()> {
        let settled = self.tell(delivery, kind).await;
        settled.map_err(|error| self.connection.settings().within(error))
    }

    async fn tell(&self, delivery: &Delivery, kind: AckKind) -> Result<()> {
        let reply = self.receipts.find(delivery.receipt)?;
        let until = Instant::now() + self.connection.settings().deadline;
        let mut up = self.connection.up(until).await?;
        let client = up.client.clone();
        let told = Request::new().payload(kind.into()).timeout(None);
        let since = Instant::now();
        let heard = timeout_at(until, client.send_request(reply.clone(), told));
        match answered(&mut up, &reply, since, heard).await.map_err(|error| self.of_group(error))? {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                Err(self.lost("its consumer is gone, or has no leader now"))
            }
            Ok(Err(error)) => Err(self.lost(&error.to_string())),
            Err(_) => Err(self.lost("it did not answer in time")),
        }
    }

    /// A message was settled, and does not come again.
    fn gone_for_good(&self, delivery: &Delivery) {
        let receipt = delivery.receipt;
        let partition = delivery.origin.as_ref().and_then(|origin| origin.partition);
        let is_its = |member: &&Member| member.partition.map(i32::from) == partition;
        if let (Ok(original), Some(member)) =
            (self.receipts.original(receipt), self.members.iter().find(is_its))
        {
            self.places.settled(member, Place { sequence: receipt.message, at: original.at });
        }
        self.receipts.close(receipt);
        self.receipts.forget(receipt.message);
        self.given_up.settled(receipt.message);
    }

    /// Keeps a copy where dead letters go, and only then lets the message go.
    async fn bury(&self, delivery: &Delivery, fault: &Fault) -> Result<()> {
        let Some(subject) = &self.settings.dead_letters else { return Ok(()) };
        let original = self.receipts.original(delivery.receipt)?;
        let until = Instant::now() + self.connection.settings().deadline;
        let mut up = self.connection.up(until).await?;
        let letter = DeadLetter {
            original: &original,
            subject,
            stream: &self.settings.stream,
            group: &self.settings.group,
            sequence: delivery.receipt.message,
            fault,
        };
        letter.bury(&mut up, until).await
    }

    pub(crate) fn lost(&self, said: &str) -> Error {
        self.of_group(
            Error::new(ErrorKind::Unavailable, "consume")
                .message(format!("NATS: {said}; what is not settled comes again")),
        )
    }

    /// The error, and whose it is.
    pub(crate) fn of_group(&self, error: Error) -> Error {
        error.context("stream", &self.settings.stream).context("group", &self.settings.group)
    }
}

impl Subscription for NatsSubscription {
    fn capabilities(&self) -> SubscriptionCapabilities {
        let mut can = SubscriptionCapabilities::least(self.settings.visibility);
        can.counts_deliveries = true;
        let unsettled = |it: &Member| it.consumer.cached_info().config.max_ack_pending;
        can.key_order = self.members.iter().all(|member| unsettled(member) == 1);
        can
    }

    fn receive(&self, max: usize) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let received = self.receive_some(max).await;
            self.connection.note_receipt(&received);
            received.map_err(|error| self.connection.settings().within(error))
        })
    }

    fn ack<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.settle(delivery, AckKind::Ack).await?;
            self.gone_for_good(delivery);
            Ok(())
        })
    }

    fn nack<'a>(
        &'a self,
        delivery: &'a Delivery,
        delay: Duration,
        counted: bool,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let delay = (!delay.is_zero()).then_some(delay);
            self.settle(delivery, AckKind::Nak(delay)).await?;
            self.receipts.close(delivery.receipt);
            if !counted {
                self.receipts.discount(delivery.receipt.message);
            }
            Ok(())
        })
    }

    fn reject<'a>(&'a self, delivery: &'a Delivery, fault: &'a Fault) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.bury(delivery, fault).await?;
            self.settle(delivery, AckKind::Term).await?;
            self.gone_for_good(delivery);
            Ok(())
        })
    }

    fn extend<'a>(&'a self, delivery: &'a Delivery, by: Duration) -> BoxFuture<'a, Result<()>> {
        let _ = by;
        Box::pin(async {
            // From before the question: the server counts from when it hears it.
            let asked = Instant::now();
            self.settle(delivery, AckKind::Progress).await?;
            self.receipts.extend(delivery.receipt, asked + self.settings.visibility);
            Ok(())
        })
    }

    fn begins_before(&self, age: Duration) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let then = i128::from(Timestamp::now().as_micros()) * 1_000
                - i128::try_from(age.as_nanos()).unwrap_or(i128::MAX);
            let until = Instant::now() + self.connection.settings().deadline;
            let up = self.connection.up(until).await?;
            let asked = begin::begins_before(&up, &self.settings, &self.members, then);
            let asked = timeout_at(until, asked).await;
            asked.map_err(|_| self.lost("it did not answer in time"))?
        })
    }

    fn rest(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.connection.rest();
            self.asking.lock().await.withdraw().await;
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.rest()
    }
}

impl std::fmt::Debug for NatsSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsSubscription").field("settings", &self.settings).finish_non_exhaustive()
    }
}
