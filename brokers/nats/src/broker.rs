//! The broker: a batch is sent at once, and each event has the answer of its stream.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::publish::PublishAck;
use futures_util::StreamExt as _;
use postrider_core::operate::Finding;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Fault, Format, Outcome, Outgoing,
    Result, Route,
};
use tokio::time::Instant;

use crate::connection::{Connection, Up};
use crate::copy::{self, Look, identity};
use crate::encode::{Documents, encode};
use crate::lossy;
use crate::send::{Answer, Sent, answer, send};
use crate::settings::NatsSettings;

/// A server that is away is asked for so often: what was committed meanwhile is to go out within five seconds when it is back.
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// A broker that publishes to NATS JetStream.
///
/// **Durability.** As the stream is made: see the [crate](crate).
/// **Cancellation.** What a dropped call had given to the client may arrive, at most one batch. So may what a call gave
/// that ended without an answer: the client keeps up to 512 messages that its connection does not take, those of all
/// calls together, and sends them when it has another connection, before anything newer. It takes nothing while it
/// has none, and nothing of a call whose deadline has passed.
pub struct NatsBroker {
    connection: Connection,
    closed: AtomicBool,
}

impl NatsBroker {
    /// Checks the settings and makes a broker. Nobody is called before the first event.
    ///
    /// # Errors
    /// `Config`, naming the setting.
    pub fn new(settings: NatsSettings) -> Result<NatsBroker> {
        Ok(NatsBroker { connection: Connection::new(settings)?, closed: AtomicBool::new(false) })
    }

    async fn publish_batch(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "publish")
                .message("the NATS broker was closed; nothing was sent"));
        }
        let settings = self.connection.settings();
        let deadline = Instant::now() + settings.deadline;
        let mut up = self.connection.up(deadline).await?;
        let (epoch, begun) = (up.epoch(), Instant::now());
        let mut outcomes = match settings.allow_lossy {
            true => lossy::publish(&self.connection, &mut up, batch, deadline).await?,
            false => publish_kept(&mut up, batch, deadline).await,
        };
        self.connection.note_answers(epoch, begun, &outcomes);
        let large = |it: &Outcome| matches!(it, Outcome::Rejected(fault) if fault.kind == ErrorKind::TooLarge);
        // Who sends a dead letter again has raised the limit a moment before.
        if outcomes.iter().any(large) && self.connection.takes_more(&mut up, deadline).await {
            outcomes.iter_mut().filter(|it| large(it)).for_each(|it| *it = Outcome::Skipped);
        }
        Ok(outcomes)
    }
}

/// Copies that are looked at side by side: after a crash a whole batch may be copies.
const LOOKS_MAX: usize = 64;

async fn publish_kept(up: &mut Up, batch: &[Outgoing], deadline: Instant) -> Vec<Outcome> {
    let bytes_max = up.client.max_payload();
    let begun = Instant::now();
    let mut sent = Vec::with_capacity(batch.len());
    let (mut documents, mut subject) = (Documents::default(), Subject::from_static(""));
    for outgoing in batch {
        // All go to one subject, as a rule: it is copied once.
        if *subject != *outgoing.topic {
            subject = Subject::from(&*outgoing.topic);
        }
        match encode(outgoing, identity(outgoing), bytes_max, &mut documents) {
            Ok(message) => match send(up, &subject, message, deadline).await {
                Ok(one) => sent.push(one),
                Err(unsent) => {
                    sent.push(Sent::Decided(unsent.outcome()));
                    break;
                }
            },
            Err(fault) => sent.push(Sent::Decided(Outcome::Rejected(fault))),
        }
    }
    // Nothing behind one that could not be sent is tried.
    sent.resize_with(batch.len(), || Sent::Decided(Outcome::Skipped));
    // Nothing is written any more, and an answer may take long.
    drop(documents);
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut copies = Vec::new();
    for (outgoing, sent) in batch.iter().zip(sent) {
        outcomes.push(match answer(up, &outgoing.topic, sent, begun, deadline).await {
            Answer::Decided(outcome) => outcome,
            Answer::Known(known) => {
                copies.push((outcomes.len(), known));
                // Until it has been looked at.
                Outcome::Skipped
            }
        });
    }
    let looks = copies.into_iter().map(|(index, known)| {
        let mut up = up.clone();
        async move { (index, settle_copy(&mut up, &batch[index], &known, deadline).await) }
    });
    let mut looks = futures_util::stream::iter(looks).buffer_unordered(LOOKS_MAX);
    while let Some((index, outcome)) = looks.next().await {
        outcomes[index] = outcome;
    }
    drop(looks);
    outcomes
}

/// What the stream did not take, because it knows the id: it has the message, or one on another subject.
/// Then this one goes under an id of its own, since another destination's copy is not ours.
async fn settle_copy(
    up: &mut Up,
    outgoing: &Outgoing,
    known: &PublishAck,
    deadline: Instant,
) -> Outcome {
    let (subject, id) = (&*outgoing.topic, outgoing.event.id.to_string());
    if copy::look(up, subject, &id, known, deadline).await == Look::Here {
        return Outcome::Acked;
    }
    let unshown = |kind, what| Outcome::Retry { fault: Fault::new(kind, what), after: None };
    if Instant::now() >= deadline {
        return unshown(
            ErrorKind::Timeout,
            "the stream knows the event's id, and no time was left to see which message it has",
        );
    }
    let (bytes_max, mut documents) = (up.client.max_payload(), Documents::default());
    let mut write = |id| encode(outgoing, id, bytes_max, &mut documents);
    // The longer id may be too much; without one it was not.
    let id = copy::identity_within(outgoing);
    let message = write(Some(id.clone())).or_else(|_| write(None));
    let begun = Instant::now();
    let sent = match message {
        Ok(message) => match send(up, &Subject::from(subject), message, deadline).await {
            Ok(sent) => sent,
            Err(unsent) => return unsent.outcome(),
        },
        Err(fault) => return Outcome::Rejected(fault),
    };
    match answer(up, subject, sent, begun, deadline).await {
        Answer::Decided(outcome) => outcome,
        // Who may not look has to believe it.
        Answer::Known(known) => match copy::look(up, subject, &id, &known, deadline).await {
            Look::Here | Look::Unknown => Outcome::Acked,
            Look::Another => unshown(
                ErrorKind::Unavailable,
                "the stream says that it has the event, and shows another one in its place",
            ),
        },
    }
}

impl Broker for NatsBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        let settings = self.connection.settings();
        let mut can = BrokerCapabilities::least();
        // A refused message does not stop those behind it, so one event of a key is under way at a time.
        can.prefix_order = false;
        can.keeps_key_order = true;
        can.durable = !settings.allow_lossy;
        can.batch_rows_max = 512;
        can.batch_bytes_max = 4 * 1024 * 1024;
        can.batches_in_flight_max = settings.batches_in_flight;
        can.formats = &[Format::Structured, Format::Binary, Format::Plain, Format::Debezium];
        can.endpoint_batches_max = settings.batches_in_flight;
        can.pause_max = PAUSE_MAX;
        can
    }

    fn system(&self) -> &'static str {
        crate::SYSTEM
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(self.publish_batch(batch))
    }

    fn examine<'a>(&'a self, routes: &'a [Route]) -> BoxFuture<'a, Result<Vec<Finding>>> {
        Box::pin(crate::examine::examine(&self.connection, routes))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.closed.store(true, Ordering::Release);
            self.connection.close().await;
            Ok(())
        })
    }
}

impl fmt::Debug for NatsBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsBroker")
            .field("servers", &self.connection.settings().servers)
            .finish_non_exhaustive()
    }
}
