//! Change your database and tell the world in one transaction; act once on what comes in.
//!
//! An application stages an event in the transaction that changes its rows. A relay, in this process
//! or another, carries committed events to a broker: at-least-once delivery. A consumer keeps a
//! record of what it has acted on in the transaction of the act: at-most-once effect.
//!
//! # Example
//!
//! Needs nothing installed: a SQLite file is the database, and a second one the broker.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use postrider::inbox::Consumer;
//! use postrider::local::{LocalBroker, SubscribeOptions};
//! use postrider::relay::{Relay, Target};
//! use postrider::sqlite::{Outbox, SqliteStore, Transactional, connect, init};
//! use postrider::{Destination, DestinationId, HandlerName, NewEvent, Route, Verdict};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (shop, queue) = (folder.path().join("shop.db"), folder.path().join("queue.db"));
//! // Postrider's tables stand beside the application's own.
//! init(&shop)?;
//! let mut database = connect(&shop)?;
//! database.execute_batch(
//!     "create table orders (id integer primary key, total integer);
//!      create table invoices (order_id integer primary key);",
//! )?;
//!
//! // The change and the event commit together, or neither does.
//! let tx = database.transaction()?;
//! tx.execute("insert into orders values (42, 1250)", ())?;
//! let event = NewEvent::new("order", "42", "order.placed").json(&1250)?;
//! Outbox::new().enqueue(&tx, &event)?;
//! tx.commit()?;
//!
//! // A relay delivers what is committed now, and stops.
//! let broker = LocalBroker::open(&queue)?;
//! let route = Route::all("{event_type}".parse()?);
//! let destination = Destination::new(DestinationId::new("queue")?, "local", vec![route]);
//! let relay = Relay::builder(Arc::new(SqliteStore::new(&shop)?))
//!     .destination(destination, Arc::new(broker.clone()))
//!     .target(Target::Once)
//!     .start()
//!     .await?;
//! assert_eq!(relay.stopped().await.health.delivered, 1);
//!
//! // A handler acts in the transaction that also records that it did.
//! let billing = Transactional::new(&shop, HandlerName::new("billing")?, |tx, event| {
//!     tx.execute("insert into invoices values (?1)", [&*event.aggregate_id])?;
//!     Ok(Verdict::Done)
//! })?;
//! let orders = broker.subscribe("billing", "order.*", SubscribeOptions::default()).await?;
//! let consumer = Consumer::builder(Arc::new(orders)).receiver(Arc::new(billing)).start()?;
//! consumer.reached(|stats, _| stats.done == 1).await;
//! consumer.drain(Duration::from_secs(5));
//! consumer.stopped().await;
//!
//! let invoices: i64 = database.query_row("select count(*) from invoices", (), |row| row.get(0))?;
//! assert_eq!(invoices, 1);
//! # Ok(()) }
//! ```
//!
//! The examples `producer`, `consumer`, and `both` of this crate show each half alone, and a handler
//! that consumes and produces in one transaction.
//!
//! # What operators do, from code
//!
//! A store is an [`Operator`](operate::Operator) too. What the commands of `postrider` do, an application may do:
//!
//! ```
//! use postrider::operate::{self, Filter, Note, Operator, PageRequest, RowKey, Status, Submission, Verb};
//! # use postrider::sqlite::{SqliteStore, init};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let shop = folder.path().join("shop.db");
//! # init(&shop)?;
//! let store = SqliteStore::new(&shop)?;
//! let mut dead = Filter::default();
//! dead.status = vec![Status::Dead];
//! let letters = store.waiting(&dead, &PageRequest::default()).await?.rows;
//! let key = |row: &operate::WaitingView| RowKey { destination: row.destination.clone(), seq: row.seq };
//! let rows: Vec<RowKey> = letters.iter().map(key).collect();
//! if !rows.is_empty() {
//!     // Written down, and carried out by the relay that owns the partition, in the order of the keys.
//!     let note = Note::new("billing", "the partner has mended it")?;
//!     store.submit(&Submission { verb: Verb::Redrive(rows), note }).await?;
//! }
//! # Ok(()) }
//! ```
//!
//! # The nouns
//!
//! | Noun | What it is | Type |
//! |---|---|---|
//! | event | what the application says; its id is minted once and never changes | [`NewEvent`], [`Event`](struct@Event), [`TypedEvent`] |
//! | key | events of one key are delivered in commit order; by default `aggregate_type/aggregate_id` | [`NewEvent::ordered_by`] |
//! | outbox | stages events in a transaction | [`sqlite::Outbox`], `postgres::Outbox` |
//! | store | the database, as the relay sees it | [`sqlite::SqliteStore`], `postgres::PostgresStore`, [`OutboxSource`] |
//! | relay | carries committed events to destinations | [`relay::Relay`] |
//! | destination, route | where events go, and which of them; kept in the store | [`Destination`], [`Route`] |
//! | broker | what takes the events | [`local::LocalBroker`], [`file::FileBroker`], [`Broker`] |
//! | consumer | receives from a broker and calls a handler | [`inbox::Consumer`] |
//! | inbox | the record of which (source, event id, handler) was done | [`sqlite::Transactional`], [`sqlite::accept`], [`inbox::Leased`] |
//! | dead letter | an event that gave up, kept with its reason | [`DeadKeyPolicy`] |
//!
//! # What it supports
//!
//! * Events in the caller's own transaction: on SQLite of `rusqlite` or (feature `sqlx-sqlite`) of `sqlx`,
//!   on PostgreSQL (feature `store-postgres`) of `tokio-postgres`. The crates `postrider-postgres-sqlx`,
//!   `-diesel`, and `-sea-orm` take the transactions of those. A connection or a pool in place of a
//!   transaction does not compile; with `diesel`, whose types do not tell them apart, it is refused.
//! * Producers in any language: an event is an `INSERT` into a documented table.
//! * Key order under retries, several relays, and takeover; scheduled events; retries, dead letters,
//!   and keys parked behind them, all in the database, so that a restart forgets nothing.
//! * Handlers whose effect is in the database ([`sqlite::Transactional`]) and handlers whose effect is
//!   outside ([`inbox::Leased`], with a key for each external step).
//!
//! # What it does not
//!
//! * Exactly-once delivery: nobody can promise that, and this crate does not. A message may come
//!   twice; the inbox makes the second one harmless.
//! * Order between keys, or between events of one key in two destinations.
//! * Two-phase commit, sagas, or an event store: the outbox is a queue, and may be purged.
//! * Stores other than SQLite and PostgreSQL, and brokers other than the local one, Kafka, NATS JetStream,
//!   SQS, SNS, EventBridge, files, standard output, and webhooks.
//!
//! # Features
//!
//! | Feature | Default | Gives |
//! |---|---|---|
//! | `derive` | yes | [`#[derive(Event)]`](derive@Event): a struct of yours as an event, checked when it is compiled |
//! | `relay` | yes | [`relay`]: a relay inside your process |
//! | `inbox` | yes | [`mod@inbox`]: consumers and leased handlers |
//! | `store-sqlite` | yes | [`sqlite`]: outbox, relay source, and inbox over `rusqlite` |
//! | `sqlx-sqlite` | no | `sqlite::sqlx`: the same promises inside a transaction of `sqlx` |
//! | `store-dynamodb` | no | `dynamodb`: outbox, relay source, and inbox as items, in the application's own transactions |
//! | `store-postgres` | no | `postgres`: outbox, relay source, and inbox over `tokio-postgres` |
//! | `broker-local` | yes | [`local`]: durable topics and groups in one file |
//! | `broker-file` | yes | [`mod@file`]: CloudEvents as lines of a file or of standard output |
//! | `broker-webhook` | yes | [`webhook`]: signed CloudEvents to HTTP endpoints, and their verification |
//! | `broker-nats` | no | `nats`: streams of NATS JetStream, as a destination and as a source |
//! | `broker-kafka` | no | `kafka`: topics of Kafka, as a destination and as a source; builds a library in C |
//! | `broker-kafka-tls` | no | TLS and SCRAM for it, with the system's OpenSSL |
//! | `broker-aws` | no | `aws`: SQS, SNS, and EventBridge as destinations, queues of SQS as a source |
//! | `lambda` | no | `lambda`: a relay and an inbox in functions of AWS Lambda |
//! | `otel` | no | `otel`: OpenTelemetry traces from the enqueue to the handler |
//!
//! An application that only writes events needs `default-features = false, features =
//! ["store-sqlite"]`, and compiles neither engine.
//!
//! `Event` is two things, as serde's `Serialize` is: the struct that handlers receive, and the derive
//! macro. `use postrider::Event` brings both.
#![cfg_attr(feature = "store-postgres", doc = include_str!("postgres.md"))]

#[cfg(feature = "broker-aws")]
#[doc(inline)]
pub use postrider_aws as aws;
#[cfg(feature = "store-dynamodb")]
#[doc(inline)]
pub use postrider_dynamodb as dynamodb;
#[cfg(feature = "broker-file")]
#[doc(inline)]
pub use postrider_file as file;
#[cfg(feature = "inbox")]
#[doc(inline)]
pub use postrider_inbox as inbox;
#[cfg(feature = "broker-kafka")]
#[doc(inline)]
pub use postrider_kafka as kafka;
#[cfg(feature = "lambda")]
#[doc(inline)]
pub use postrider_lambda as lambda;
#[cfg(feature = "broker-local")]
#[doc(inline)]
pub use postrider_local as local;
#[cfg(feature = "broker-nats")]
#[doc(inline)]
pub use postrider_nats as nats;
#[cfg(feature = "otel")]
#[doc(inline)]
pub use postrider_otel as otel;
#[cfg(feature = "store-postgres")]
#[doc(inline)]
pub use postrider_postgres as postgres;
#[cfg(feature = "relay")]
#[doc(inline)]
pub use postrider_relay as relay;
#[cfg(feature = "store-sqlite")]
#[doc(inline)]
pub use postrider_sqlite as sqlite;
#[cfg(feature = "broker-webhook")]
#[doc(inline)]
pub use postrider_webhook as webhook;

#[doc(inline)]
pub use postrider_core::operate;

pub use postrider_core::inbox::{Accepted, Receiver, Verdict};
pub use postrider_core::source::DefinitionChange;
pub use postrider_core::{
    BoxFuture, Broker, Claim, ClaimLease, ClaimRequest, Code, DeadKeyPolicy, Delivery, Destination,
    DestinationId, Error, ErrorKind, Event, EventId, EventLimits, Fault, Format, HandlerName,
    Headers, InboxKey, InboxStore, Invariant, Marks, Match, NewEvent, OutboxSource, Outcome,
    Outgoing, Payload, PayloadCodec, Result, RetryClass, RetryPolicy, Route, Start, Subscription,
    Template, Timestamp, TopicRule, TypedEvent, WindowLimits,
};

/// `#[derive(Event)]`, in use:
///
/// ```
/// use postrider::{Event, NewEvent, TypedEvent};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event(type = "order.placed", version = 2)]
/// #[must_use]
/// struct OrderPlaced {
///     #[event(id)]
///     order_id: u64,
///     #[event(tenant)]
///     shop: Option<String>,
///     total_cents: i64,
/// }
///
/// let placed = OrderPlaced { order_id: 42, shop: None, total_cents: 1250 };
/// let event: NewEvent = placed.to_event()?;
/// assert_eq!(event.key(), "order/42");
/// assert_eq!(OrderPlaced::from_event(event.event())?.total_cents, 1250);
/// # Ok::<(), postrider::Error>(())
/// ```
///
/// A mistake does not compile:
///
/// ```compile_fail
/// #[derive(serde::Serialize, postrider::Event)]
/// #[event(type = "order placed")] // a space
/// struct OrderPlaced {
///     #[event(id)]
///     order_id: u64,
/// }
/// ```
#[cfg(feature = "derive")]
pub use postrider_derive::Event;

/// What the code that `#[derive(Event)]` writes refers to. It may change with any version.
#[doc(hidden)]
pub mod __private {
    pub use postrider_core::typed::Serialize;
    pub use postrider_core::{Headers, Timestamp, TypedEvent};
}

/// The examples of the project's pages, compiled and run as they stand there.
#[cfg(all(
    doctest,
    feature = "derive",
    feature = "relay",
    feature = "inbox",
    feature = "store-sqlite",
    feature = "store-postgres",
    feature = "broker-local"
))]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guide/consuming.md")]
#[doc = include_str!("../../../docs/guide/events.md")]
struct Pages;
