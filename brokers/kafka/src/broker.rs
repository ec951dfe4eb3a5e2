//! The broker: a batch is given to the client at once, and each event has the answer of its partition.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_core::operate::Finding;
use postrider_core::{
    BoxFuture, Broker, BrokerCapabilities, Error, ErrorKind, Format, Outcome, Outgoing, Result,
    Route,
};
use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::{Instant, timeout_at};

use crate::answer::{is_too_large, judge, keyless, throttled, too_large, unheard};
use crate::client::{Client, Producer};
use crate::encode::{Encoded, encode, unusable};
use crate::examine::examine;
use crate::flight::{Answer, Flight};
use crate::settings::{BYTES_MAX, Compression, KafkaSettings, ROWS_MAX};
use crate::standings::Standings;
use crate::topics::{Facts, Standing, Topics};
use crate::trouble::Trouble;
use crate::wall_clock::WallClock;

/// Servers that are away are asked for so often: what was committed meanwhile is to go out within five seconds when they are
/// back, and the client takes up to one of them to find that out.
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// A broker that publishes to Kafka.
///
/// **Durability.** As the topic is made: see the [crate](crate).
/// **Cancellation.** What a dropped call had queued may arrive until its delivery time is over, at most one
/// batch.
pub struct KafkaBroker {
    settings: Arc<KafkaSettings>,
    trouble: Arc<Trouble>,
    /// Sends as one what goes to one partition.
    together: Client,
    /// Sends each record by itself: what was refused together is judged one by one.
    alone: Client,
    topics: Topics,
    clock: WallClock,
    closed: AtomicBool,
}

/// What was given to the client, how large each record is, and whether it has a key.
struct Sending {
    flight: Arc<Flight>,
    bytes: Vec<u64>,
    keyed: Vec<bool>,
    /// Where each document is written: the client has a copy of its own.
    document: Vec<u8>,
}

impl Sending {
    fn new(batch: &[Outgoing]) -> Sending {
        let (flight, bytes) = (Flight::new(batch.len()), vec![0; batch.len()]);
        Sending { flight, bytes, keyed: vec![true; batch.len()], document: Vec::new() }
    }
}

impl KafkaBroker {
    /// Checks the settings and makes a broker. Nobody is called before the first event.
    ///
    /// # Errors
    /// `Config`, naming the setting.
    pub fn new(settings: KafkaSettings) -> Result<KafkaBroker> {
        settings.check()?;
        let settings = Arc::new(settings);
        let trouble = Arc::new(Trouble::default());
        let together = Client::new(&settings, false, &trouble);
        together.check()?;
        Ok(KafkaBroker {
            together,
            alone: Client::new(&settings, true, &trouble),
            topics: Topics::new(&settings, &trouble),
            settings,
            trouble,
            clock: WallClock::new(),
            closed: AtomicBool::new(false),
        })
    }

    async fn publish_batch(&self, batch: &[Outgoing]) -> Result<Vec<Outcome>> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "publish")
                .message("the Kafka broker was closed; nothing was sent"));
        }
        let begun = Instant::now();
        let ready = begun + self.settings.preparation();
        let deadline = begun + self.settings.deadline;
        self.follow_clock(ready).await;
        let together = self.producer(&self.together, ready).await?;
        let standings = self.standings(&together, batch, ready).await?;
        let mut outcomes: Vec<Option<Outcome>> =
            batch.iter().map(|outgoing| standings.closed(&outgoing.topic)).collect();
        self.send_all(batch, &standings, &mut outcomes, &together, deadline).await;
        if self.doubt(batch, &standings, &mut outcomes, begun) {
            // Unless it can be asked for, nothing is refused.
            let now = self.standings(&together, batch, deadline - self.settings.delivery()).await;
            if let Ok(standings) = now {
                self.send_all(batch, &standings, &mut outcomes, &together, deadline).await;
            }
        }
        Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or(Outcome::Skipped)).collect())
    }

    /// After a step of the wall clock back nothing is given to the clients from before.
    async fn follow_clock(&self, until: Instant) {
        let Some(by) = self.clock.to_follow() else { return };
        let renew = async { tokio::join!(self.together.renew(), self.alone.renew()) };
        // Where a client is just being made, the next batch looks again.
        if timeout_at(until, renew).await.is_ok() {
            self.topics.forget();
            self.clock.followed(by, &self.settings.notices);
        }
    }

    /// One by one where that is known to be needed, the rest together; and then one by one what was refused for
    /// its company.
    async fn send_all(
        &self,
        batch: &[Outgoing],
        standings: &Standings,
        outcomes: &mut [Option<Outcome>],
        together: &Producer,
        deadline: Instant,
    ) {
        self.send_alone(batch, standings, outcomes, deadline).await;
        self.send_together(batch, standings, outcomes, together, deadline).await;
        self.send_alone(batch, standings, outcomes, deadline).await;
    }

    /// Takes back what a limit refused that was asked for before this call, and has it asked for again: who sends a
    /// dead letter again has raised it a moment before. Returns whether there was any.
    fn doubt(
        &self,
        batch: &[Outgoing],
        standings: &Standings,
        outcomes: &mut [Option<Outcome>],
        begun: Instant,
    ) -> bool {
        let mut doubted = false;
        for (outgoing, outcome) in batch.iter().zip(outcomes) {
            let topic = &outgoing.topic;
            let refused = matches!(outcome, Some(Outcome::Rejected(fault)) if fault.kind == ErrorKind::TooLarge);
            if refused && standings.facts(topic).is_some_and(|facts| facts.is_from_before(begun)) {
                self.topics.doubt(topic);
                *outcome = None;
                doubted = true;
            }
        }
        doubted
    }

    /// A producer, made in time.
    async fn producer(&self, client: &Client, until: Instant) -> Result<Arc<Producer>> {
        let made = timeout_at(until, client.producer()).await;
        made.unwrap_or_else(|_| Err(self.trouble.unreachable(&self.settings.shown())))
    }

    /// How each topic of a batch stands: a batch has one, as a rule.
    async fn standings(
        &self,
        producer: &Arc<Producer>,
        batch: &[Outgoing],
        until: Instant,
    ) -> Result<Standings> {
        let mut standings = Standings::default();
        for outgoing in batch {
            let topic = &outgoing.topic;
            if standings.of(topic).is_some() {
                continue;
            }
            let standing = match unusable(topic) {
                Some(fault) => Standing::Closed(fault),
                None => {
                    let clients = (producer, &self.alone);
                    self.topics.look(clients, topic, until, batch.len() == 1).await?
                }
            };
            standings.add(topic, standing);
        }
        Ok(standings)
    }

    async fn send_together(
        &self,
        batch: &[Outgoing],
        standings: &Standings,
        outcomes: &mut [Option<Outcome>],
        producer: &Producer,
        deadline: Instant,
    ) {
        let mut sending = Sending::new(batch);
        for (index, outgoing) in batch.iter().enumerate() {
            if outcomes[index].is_none() && !standings.is_alone(&outgoing.topic) {
                let facts = standings.facts(&outgoing.topic);
                outcomes[index] = self.send(producer, outgoing, facts, &mut sending, index);
            }
        }
        // Nothing is written any more, and an answer may take long.
        sending.document = Vec::new();
        // What is not answered by then stays unanswered.
        let _ = timeout_at(deadline, sending.flight.landed()).await;
        for (index, answer) in sending.flight.answers().into_iter().enumerate() {
            let sent = outcomes[index].is_none() && sending.bytes[index] > 0;
            if !sent {
                continue;
            }
            let topic = &batch[index].topic;
            match answer {
                // Of the whole request or of this record: only by itself does it show.
                Some(Err(code)) if is_too_large(code) => {
                    standings.facts(topic).into_iter().for_each(Facts::send_alone);
                }
                answer => {
                    outcomes[index] = Some(self.judge(
                        topic,
                        standings.facts(topic),
                        answer,
                        sending.keyed[index],
                    ));
                }
            }
        }
        if outcomes.contains(&Some(Outcome::Acked)) {
            self.trouble.forget();
        }
    }

    /// Sends one by one what has no outcome yet and belongs to a topic that wants it so, while there is time
    /// for a delivery.
    async fn send_alone(
        &self,
        batch: &[Outgoing],
        standings: &Standings,
        outcomes: &mut [Option<Outcome>],
        deadline: Instant,
    ) {
        let begin = deadline - self.settings.delivery();
        let open = |(outgoing, outcome): (&Outgoing, &Option<Outcome>)| {
            outcome.is_none() && standings.is_alone(&outgoing.topic)
        };
        let any = batch.iter().zip(outcomes.iter()).any(open);
        if !any || Instant::now() > begin {
            return;
        }
        // Without one they were not tried.
        let Ok(producer) = self.producer(&self.alone, begin).await else { return };
        let mut sending = Sending::new(batch);
        for (index, outgoing) in batch.iter().enumerate() {
            if outcomes[index].is_none() && standings.is_alone(&outgoing.topic) {
                let facts = standings.facts(&outgoing.topic);
                outcomes[index] = self.send(&producer, outgoing, facts, &mut sending, index);
            }
        }
        sending.document = Vec::new();
        let _ = timeout_at(deadline, sending.flight.landed()).await;
        for (index, answer) in sending.flight.answers().into_iter().enumerate() {
            let bytes = sending.bytes[index];
            if outcomes[index].is_some() || bytes == 0 {
                continue;
            }
            let topic = &batch[index].topic;
            let bytes_max = standings.facts(topic).and_then(|facts| facts.bytes_max);
            outcomes[index] = Some(match answer {
                Some(Err(code)) if is_too_large(code) => {
                    Outcome::Rejected(too_large(topic, bytes, bytes_max))
                }
                answer => self.judge(topic, standings.facts(topic), answer, sending.keyed[index]),
            });
        }
    }

    /// Gives a record to the client, or says at once what becomes of its event.
    fn send(
        &self,
        producer: &Producer,
        outgoing: &Outgoing,
        facts: Option<&Facts>,
        sending: &mut Sending,
        index: usize,
    ) -> Option<Outcome> {
        let record = match encode(outgoing, &self.settings.record_key, &mut sending.document) {
            Ok(record) => record,
            Err(fault) => return Some(Outcome::Rejected(fault)),
        };
        if let Some(max) = self.bytes_max(facts).filter(|max| record.bytes > *max) {
            return Some(Outcome::Rejected(too_large(&outgoing.topic, record.bytes, Some(max))));
        }
        sending.bytes[index] = bytes_of(&record);
        sending.keyed[index] = record.key.is_some();
        let partition =
            facts.zip(record.key.as_deref()).and_then(|(facts, key)| facts.partition(key));
        producer.send(&outgoing.topic, partition, record, sending.flight.board(index));
        None
    }

    /// What is certainly too large need not be sent; of what is compressed, only the server can tell.
    fn bytes_max(&self, facts: Option<&Facts>) -> Option<u64> {
        facts?.bytes_max.filter(|_| self.settings.compression == Compression::None)
    }

    fn judge(
        &self,
        topic: &str,
        of: Option<&Facts>,
        answer: Option<Answer>,
        keyed: bool,
    ) -> Outcome {
        let trouble = || of.and_then(|it| it.limping.clone()).or_else(|| self.trouble.said());
        let outcome = match answer {
            Some(Ok(())) => return Outcome::Acked,
            Some(Err(Code::InvalidRecord)) if !keyed => Outcome::Rejected(keyless(topic)),
            Some(Err(code)) => judge(topic, code, trouble()),
            None => unheard(trouble()),
        };
        let outcome = throttled(outcome, || self.trouble.throttle.said(std::time::Instant::now()));
        // What is wrong with the topic, the next call asks and says in plain words.
        if !matches!(outcome, Outcome::Rejected(_) | Outcome::Skipped) {
            self.topics.suspect(topic);
        }
        outcome
    }
}

/// Never nothing: a record without a key, headers, and value takes its frame.
fn bytes_of(record: &Encoded<'_>) -> u64 {
    record.bytes.max(1)
}

impl Broker for KafkaBroker {
    fn capabilities(&self) -> BrokerCapabilities {
        let mut can = BrokerCapabilities::least();
        // A refused record does not stop those behind it in other requests, so one event of a key is under
        // way at a time.
        can.prefix_order = false;
        can.keeps_key_order = self.settings.record_key != crate::RecordKey::none();
        can.durable = true;
        can.formats = &[Format::Structured, Format::Binary, Format::Plain, Format::Debezium];
        can.message_keys = true;
        can.batch_rows_max = ROWS_MAX;
        can.batch_bytes_max = BYTES_MAX;
        can.batches_in_flight_max = self.settings.batches_in_flight;
        can.endpoint_batches_max = self.settings.batches_in_flight;
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
        Box::pin(examine(&self.settings, &self.trouble, routes))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            self.closed.store(true, Ordering::Release);
            tokio::join!(self.together.close(), self.alone.close());
            Ok(())
        })
    }
}

impl fmt::Debug for KafkaBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaBroker")
            .field("servers", &self.settings.shown())
            .finish_non_exhaustive()
    }
}
