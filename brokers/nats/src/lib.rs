//! NATS JetStream: a destination of the relay, and a source of the inbox.
//!
//! **What is promised.** `Acked` means that a stream took the event and the server that leads the stream
//! said so, with as many replicas as the stream is made with. How safe that is, the stream decides: file or
//! memory, one replica or three, and how often the server forces its files to the disk. A subject that no
//! stream takes is [`Unroutable`](postrider_core::Outcome::Unroutable): nothing is sent into the void, as
//! core NATS would.
//!
//! **Order.** One event of a key is under way at a time, so a refused one never lets a later one pass.
//! What a connection that was lost had taken with it is unknown, counts as not published, and is sent again
//! under the same `Nats-Msg-Id`: the stream drops the copy within its duplicate window.
//!
//! **Without JetStream** ([`NatsSettings::allow_lossy`]) an acknowledgement says that the server has read
//! the event, and nothing about whether anybody else did.
//!
//! ```no_run
//! use postrider_nats::{NatsBroker, NatsSettings};
//! # fn main() -> postrider_core::Result<()> {
//! let broker = NatsBroker::new(NatsSettings::new("nats://127.0.0.1:4222"))?;
//! # drop(broker);
//! # Ok(()) }
//! ```

mod advisory;
mod answer;
mod asking;
mod begin;
mod broker;
mod bury;
mod connection;
mod copy;
mod denied;
mod diagnosis;
mod dialing;
mod domain;
mod encode;
mod examine;
mod given_up;
#[cfg(test)]
mod golden;
mod granted;
mod group;
mod limit;
mod look;
mod lossy;
mod monitor;
mod options;
mod overtaken;
mod partitions;
mod passed;
mod place;
mod question;
mod receipts;
mod receiving;
mod send;
mod settings;
mod silence;
mod standing;
mod subscription;
mod takers;
mod unfit;
mod unreadable;
mod watch;

pub use broker::NatsBroker;
pub use look::ack_wait;
pub use settings::{Credentials, NatsSettings, Secret, SubscriptionSettings, Tls};
pub use subscription::NatsSubscription;

/// What traces call it.
const SYSTEM: &str = "nats";

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/nats.md")]
struct Guide;
