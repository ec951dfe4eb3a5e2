//! Postrider's local broker: durable topics and consumer groups in one SQLite file, for demos, tests,
//! and single machines.
//!
//! Nothing needs to be installed, and several processes may share the file: a relay that publishes,
//! consumers that receive, a person who looks. The address is `local://PATH`; the file is created on
//! first use.
//!
//! | Question | Answer |
//! |---|---|
//! | When is an event acknowledged? | When the transaction that stores it is committed and synced to disk. |
//! | What is one batch? | One transaction: after a crash it is there whole or not at all. |
//! | Are duplicates absorbed? | No. A second publish of an id is a second message: consumers need their inbox, and here they can see that they do. |
//! | In what order do consumers receive? | Within a group, a key's next message is handed out, to any instance in any process, only after the one before it is settled or a dead letter. |
//! | Is a lost consumer noticed? | Its deliveries come again when their visibility timeout is over, by the machine's wall clock. |
//! | What is a poison message? | One handed out `deliveries_max` times without being settled, or refused by its consumer. It becomes a dead letter with a reason, and its key goes on. |
//! | What if a call is dropped? | A publish or a settlement that has not begun is not done; one that has may still happen. A dropped `receive` gives back what it took. |
//!
//! ```
//! # use std::sync::Arc;
//! # use postrider_core::{Broker, Event, EventId, Format, Outcome, Outgoing, Subscription};
//! # use postrider_local::{LocalBroker, SubscribeOptions};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> postrider_core::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("queue.db");
//! let broker = LocalBroker::open(&path)?;
//! let outgoing = Outgoing {
//!     event: Arc::new(Event::new(EventId::mint(), "order", "42", "order.placed")),
//!     topic: Arc::from("orders"),
//!     format: Format::Structured,
//!     layout: None,
//!     marks: postrider_core::Marks::default(),
//!     attempt: 1,
//! };
//! assert_eq!(broker.publish(&[outgoing]).await?, [Outcome::Acked]);
//!
//! let orders = broker.subscribe("billing", "orders", SubscribeOptions::default()).await?;
//! for delivery in orders.receive(10).await? {
//!     orders.ack(&delivery).await?;
//! }
//! # Ok(()) }
//! ```

mod broker;
mod claim;
mod database;
mod dead_letter;
mod encode;
mod group;
mod options;
mod purge;
mod read;
mod settle;
mod store;
mod subscription;
mod trouble;
mod worker;

pub use broker::LocalBroker;
pub use dead_letter::DeadLetter;
pub use options::{LocalOptions, PurgeOptions, SubscribeOptions, Topics};
pub use read::StoredMessage;
pub use subscription::LocalSubscription;
