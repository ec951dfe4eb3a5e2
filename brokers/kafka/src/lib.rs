//! Kafka: a destination of the relay, and a source of the inbox.
//!
//! **What is promised.** `Acked` means that the leader of the partition has the record and so has every
//! replica that was in sync (`acks=all`). How safe that is, the topic decides: its replicas, its
//! `min.insync.replicas`, and whether a replica that lags may become leader. A topic that does not exist is
//! [`Unroutable`](postrider_core::Outcome::Unroutable), and its events wait.
//!
//! **Order.** One event of a key is under way at a time, so a refused one never lets a later one pass. The
//! [record key](RecordKey) follows from the ordering key alone, and the partition from the record key as the
//! Java client chooses it, so all events of a key stand in one partition. When partitions are added, keys move
//! to others: each key's events are still sent in order, and whoever reads two partitions sees no order
//! between them.
//!
//! **Duplicates.** The producer is idempotent: what the client sends again by itself, the partition stores
//! once. What the relay sends again, after an answer that did not come in time, is stored again.
//!
//! **What may be left behind.** A call that was dropped leaves at most its batch in the client's queue, which
//! gives up on each record after five eighths of [`KafkaSettings::deadline`], counted from when it was taken,
//! and looks at that once a second.
//!
//! **As a source** it is a [`KafkaSubscription`]: a member of a consumer group that hands out one event of a key
//! at a time, and commits nothing before it is settled.
//!
//! ```no_run
//! use postrider_kafka::{KafkaBroker, KafkaSettings};
//! # fn main() -> postrider_core::Result<()> {
//! let broker = KafkaBroker::new(KafkaSettings::new("127.0.0.1:9092"))?;
//! # drop(broker);
//! # Ok(()) }
//! ```

mod absence;
mod answer;
mod aside;
mod begin;
mod broker;
mod bury;
mod client;
mod decode;
mod encode;
mod examine;
mod flight;
#[cfg(test)]
mod golden;
mod group;
mod holdings;
mod keys;
mod look;
mod membership;
mod notice;
mod partition;
mod places;
mod reader;
mod record;
mod replaced;
mod resets;
#[cfg(test)]
mod router;
mod servers;
mod settings;
mod standings;
mod stuck;
mod subscription;
mod throttle;
mod topics;
mod transactions;
mod trouble;
mod turn;
mod wall_clock;
mod window;
mod writes;

pub use broker::KafkaBroker;
pub use encode::TOMBSTONE;
pub use look::look;
pub use notice::{Notice, Notices};
pub use postrider_core::RecordKey;
pub use settings::{Compression, KafkaSettings, Mechanism, Sasl, Secret, Tls};
pub use subscription::{KafkaSubscription, SubscriptionSettings};

/// What traces call it.
const SYSTEM: &str = "kafka";

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/kafka.md")]
struct Guide;
