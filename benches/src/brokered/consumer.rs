//! `consumer`: the consumer engine with the transactional inbox on PostgreSQL, against a bare consumer that
//! does the same business write in a transaction and forgets what it has done. Ours is measured twice: an event in a
//! transaction, and up to [`GROUP`] of them in one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Event, Format, HandlerName, Marks, NewEvent, Outcome as Published,
    Outgoing, Payload, Subscription,
};
use postrider_inbox::{Consumer, ConsumerOptions};
use postrider_kafka::{KafkaSettings, KafkaSubscription};
use postrider_nats::{NatsSettings, NatsSubscription};
use postrider_postgres::{Options as StoreOptions, Transactional};
use serde_json::json;
use tokio::sync::watch;
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::bare;
use super::server::{self, Server};
use crate::backlog::{KEYS, payload};
use crate::measure::{Contender, cpu_seconds, median, ratio, take_turns};
use crate::options::{Options, StoreKind};
use crate::outcome::{Outcome, rounded};
use crate::postgres::server::Server as Postgres;
use crate::tuning::Tuning;
use crate::{Result, progress, relay};

const EVENTS: u64 = 20_000;
const ROUNDS: u32 = 3;

/// Transactions at once, of both: a partition of the topic each.
pub(super) const WORKERS: usize = 8;

/// Events in a transaction, of ours in groups.
const GROUP: usize = 16;

/// Ours, of what the bare one reaches.
const AIM: f64 = 0.8;

const CUSTOMERS: u64 = 1_000;
const PATIENCE: Duration = Duration::from_secs(60);
const BATCH: u64 = 500;

/// Counts effects, and knows when the first and the last of them was.
pub(super) struct Tally {
    events: u64,
    count: AtomicU64,
    first: OnceLock<Instant>,
    last: OnceLock<Instant>,
    done: watch::Sender<bool>,
}

impl Tally {
    fn new(events: u64) -> Arc<Tally> {
        Arc::new(Tally {
            events,
            count: AtomicU64::new(0),
            first: OnceLock::new(),
            last: OnceLock::new(),
            done: watch::Sender::new(false),
        })
    }

    pub(super) fn count(&self) {
        self.first.get_or_init(Instant::now);
        if self.count.fetch_add(1, Ordering::AcqRel) + 1 == self.events {
            self.last.get_or_init(Instant::now);
            self.done.send_replace(true);
        }
    }

    pub(super) fn done(&self) -> watch::Receiver<bool> {
        self.done.subscribe()
    }

    /// Effects per second, from the first to the last.
    fn per_s(&self) -> f64 {
        let span = self.first.get().zip(self.last.get()).map(|(first, last)| *last - *first);
        self.events.saturating_sub(1) as f64 / span.unwrap_or_default().as_secs_f64().max(1e-9)
    }
}

/// The effect: what the application does with an event.
pub(super) async fn business(
    tx: &Transaction<'_>,
    number: u64,
) -> std::result::Result<(), tokio_postgres::Error> {
    const UPDATE: &str = include_str!("../../sql/postgres/business_update.sql");
    const INSERT: &str = include_str!("../../sql/postgres/business_insert.sql");
    let customer = (number % CUSTOMERS).cast_signed() + 1;
    let values = [(&customer as _, Type::INT8), (&1_250_i64 as _, Type::INT8)];
    tx.execute_typed(UPDATE, &values).await?;
    tx.execute_typed(INSERT, &values).await?;
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let events = options.rows.unwrap_or(EVENTS);
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let runtime = relay::runtime()?;
    let postgres = Postgres::start(&runtime)?;
    let server = Server::start(options.broker)?;
    let tables = include_str!("../../sql/postgres/business_tables.sql");
    postgres.batch(&runtime, tables)?;
    progress(format_args!("publishing {events} events"));
    runtime.block_on(publish(&server, options, events))?;
    let number = RefCell::new(0u32);
    let cpu = RefCell::new(BTreeMap::<&'static str, Vec<f64>>::new());
    let round = |name: &'static str| -> Result<f64> {
        *number.borrow_mut() += 1;
        let group = format!("group-{}", number.borrow());
        let empty = postgres.sql(include_str!("../../sql/postgres/business_empty.sql"));
        postgres.batch(&runtime, &format!("{empty}; checkpoint"))?;
        let tally = Tally::new(events);
        let before = cpu_seconds();
        runtime.block_on(async {
            let url = postgres.url();
            let consuming = async {
                match name {
                    "ours" => consume(&server, &url, &group, &tally, 1).await,
                    "ours_grouped" => consume(&server, &url, &group, &tally, GROUP).await,
                    _ => bare::consume(&server, &url, TOPIC, &group, &tally).await,
                }
            };
            tokio::time::timeout(2 * PATIENCE, consuming).await?
        })?;
        let spent = (cpu_seconds() - before) * 100_000.0 / events as f64;
        cpu.borrow_mut().entry(name).or_default().push(spent);
        check(&runtime, &postgres, events)?;
        Ok(tally.per_s())
    };
    let mut contenders = ["ours", "bare_consumer", "ours_grouped"]
        .map(|name| Contender::new(name, move || round(name)));
    let series = take_turns(rounds, &mut contenders)?;
    drop(contenders);
    let cpu = cpu.into_inner();
    let cpu: BTreeMap<_, _> =
        cpu.iter().map(|(name, spent)| (*name, rounded(median(spent)))).collect();
    let outcome = Outcome::new("consumer", options.broker.as_str(), events, rounds, &series)
        .on(StoreKind::Postgres, &postgres.version(&runtime)?);
    let bare = outcome.ratio("bare_consumer");
    let [_, baseline, grouped] = &series[..] else { return Err("three were measured".into()) };
    let of_groups = ratio(grouped.median(), baseline.median());
    Ok(outcome
        .add("transactions_at_once", WORKERS as u64)
        .add("cpu_s_per_100k", json!(cpu))
        .add("group_max", GROUP as u64)
        .add("grouped_within_one_round", json!(grouped.ratio_range(baseline).map(rounded)))
        .aim_at_least("ours / bare_consumer", AIM, bare)
        .aim_at_least("ours_grouped / bare_consumer", AIM, of_groups)
        .note("the bare one acts again on what comes again, and its offsets are saved now and then")
        .note("the bare one commits each event by itself, as ours does that is not in groups"))
}

const TOPIC: &str = "orders";

/// Each event had its effect, and had it once.
fn check(runtime: &tokio::runtime::Runtime, postgres: &Postgres, events: u64) -> Result<()> {
    let found = runtime.block_on(async {
        let statement = include_str!("../../sql/postgres/orders_count.sql");
        let row = postgres.connect().await?.query_one(statement, &[]).await?;
        Ok::<i64, Box<dyn std::error::Error + Send + Sync>>(row.get(0))
    })?;
    match found.cast_unsigned() {
        found if found == events => Ok(()),
        found => Err(format!("{events} events had {found} effects").into()),
    }
}

/// Fills the topic with our own broker.
async fn publish(server: &Server, options: &Options, events: u64) -> Result<()> {
    server.create(TOPIC, Tuning::default().partitions()).await?;
    let broker = server::open(options.broker, &server.address(), &Tuning::default())?;
    for first in (0..events).step_by(usize::try_from(BATCH)?) {
        let numbers = first..events.min(first + BATCH);
        let batch = numbers.map(outgoing).collect::<Result<Vec<_>>>()?;
        let outcomes = broker.publish(&batch).await?;
        if outcomes.iter().any(|outcome| *outcome != Published::Acked) {
            return Err("an event was not published".into());
        }
    }
    broker.close().await?;
    Ok(())
}

fn outgoing(number: u64) -> Result<Outgoing> {
    let new = NewEvent::new("order", (number % KEYS).to_string(), "order.placed")
        .source("/bench")
        .payload(Payload::json(payload(number))?, "application/json");
    Ok(Outgoing {
        event: Arc::new(new.event().clone()),
        topic: TOPIC.into(),
        format: Format::Structured,
        layout: None,
        marks: Marks::default(),
        attempt: 1,
    })
}

/// The inbox, with what it did counted.
struct Counting {
    inner: Transactional,
    tally: Arc<Tally>,
}

impl Receiver for Counting {
    fn handler(&self) -> &HandlerName {
        self.inner.handler()
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, postrider_core::Result<Verdict>> {
        Box::pin(async move {
            let verdict = self.inner.receive(event, delivery).await;
            match &verdict {
                Ok(Verdict::Done) => self.tally.count(),
                other => progress(format_args!("an event was not consumed: {other:?}")),
            }
            verdict
        })
    }
}

/// In groups of one there are as many events in work as transactions. Larger ones are made of what waits: so many
/// are in work that every transaction can be full, and the next one as well.
async fn consume(
    server: &Server,
    url: &str,
    group: &str,
    tally: &Arc<Tally>,
    group_max: usize,
) -> Result<()> {
    let subscription: Arc<dyn Subscription> = match server {
        Server::Kafka(_) => {
            let settings = postrider_kafka::SubscriptionSettings::new(TOPIC, group);
            let kafka = KafkaSettings::new(&server.address());
            Arc::new(KafkaSubscription::open(kafka, settings).await?)
        }
        Server::Nats(_) => {
            let settings = postrider_nats::SubscriptionSettings::new(TOPIC, group);
            let nats = NatsSettings::new(server.address());
            Arc::new(NatsSubscription::open(nats, settings).await?)
        }
    };
    let mut store = StoreOptions::default();
    store.transactions_max = WORKERS;
    store.group_max = group_max;
    let name = HandlerName::new("billing")?;
    let inner = Transactional::with(url, &store, name, |tx, event| {
        Box::pin(async move {
            let number = event.aggregate_id.parse::<u64>()?;
            business(tx, number).await?;
            Ok(Verdict::Done)
        })
    })?;
    let receiver = Arc::new(Counting { inner, tally: Arc::clone(tally) });
    let in_flight_max = if group_max > 1 { 2 * WORKERS * group_max } else { WORKERS };
    let options = ConsumerOptions { in_flight_max, ..ConsumerOptions::default() };
    let consumer = Consumer::builder(subscription).receiver(receiver).options(options).start()?;
    let mut done = tally.done();
    if tokio::time::timeout(PATIENCE, done.wait_for(|done| *done)).await.is_err() {
        return Err(format!("not everything came: {:?}", consumer.stats()).into());
    }
    consumer.drain(PATIENCE);
    consumer.stopped().await;
    Ok(())
}
