//! EventBridge, SQS, and SNS: destinations of the relay, and queues of SQS as a source of the inbox.
//!
//! **What is promised.** `Acked` means that the service's answer names the event as taken. SQS keeps it then on
//! several servers of the region until a consumer deletes it, or the queue's retention ends.
//!
//! **Order.** One event of a key is under way at a time: a call that refuses its first entry takes the others. In
//! queues and topics of the kind FIFO the key is the group, so a key's order holds to the consumer.
//!
//! **Duplicates.** FIFO absorbs a copy of an id for five minutes. Nothing else here does: an inbox does.
//!
//! ```no_run
//! use postrider_aws::{AwsSettings, SqsBroker};
//! # fn main() -> postrider_core::Result<()> {
//! let broker = SqsBroker::new(AwsSettings::new("eu-west-1"))?;
//! # drop(broker);
//! # Ok(()) }
//! ```

mod answer;
mod attributes;
mod burial;
mod call;
mod capabilities;
mod connection;
mod dead_letters;
mod deleting;
mod envelope;
mod eventbridge;
mod examine;
mod fifo;
#[cfg(test)]
mod golden;
mod message;
mod polling;
mod pushed;
mod queues;
mod receipts;
mod redrive;
mod settings;
mod sns;
mod sqs;
mod subscription;
mod topics;
mod trial;

pub use dead_letters::{DeadLetters, Heap, Others};
pub use eventbridge::EventBridgeBroker;
pub use examine::queue as examine_queue;
pub use pushed::{PUSHED_BYTES_MAX, PUSHED_MAX, Pushed};
pub use redrive::{Progress, Redrive};
pub use settings::{AwsSettings, Credentials, Secret};
pub use sns::SnsBroker;
pub use sqs::SqsBroker;
pub use subscription::{SqsSubscription, SubscriptionSettings};
pub use trial::TrialQueue;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/aws.md")]
struct Guide;
