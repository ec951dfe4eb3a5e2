//! Postrider's NDJSON destinations: standard output and append-only files.
//!
//! One CloudEvents document per line. Addresses are `stdout` and `file://PATH`.
//!
//! | Question | Answer |
//! |---|---|
//! | When is an event acknowledged? | A file: when its line is written and synced to disk. Standard output and other writers: when the write and the flush returned. |
//! | Are duplicates absorbed? | No. A crash, or a deadline, between writing and acknowledging leaves a line that is written again. |
//! | What does a crash leave? | At most one partial last line, never acknowledged. It is cut off, back to the last line break, when the file is opened and before each batch. A last line that is not ours is completed by a line break instead. |
//! | May several processes append? | To a file, yes: each batch is written under the file's lock. |
//! | May the file be rotated? | Yes: when the path leads to another file, or to none, it is opened again before the next batch. |
//! | Do payloads keep their bytes? | Except for line breaks between the tokens of JSON, which become spaces: a line is a line. |
//!
//! ```
//! # use std::sync::Arc;
//! # use postrider_core::{Broker, Event, EventId, Format, Outcome, Outgoing};
//! # use postrider_file::FileBroker;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> postrider_core::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("events.ndjson");
//! let broker = FileBroker::open(&path)?;
//! let outgoing = Outgoing {
//!     event: Arc::new(Event::new(EventId::mint(), "order", "42", "order.placed")),
//!     topic: Arc::from("orders"),
//!     format: Format::Structured,
//!     layout: None,
//!     marks: postrider_core::Marks::default(),
//!     attempt: 1,
//! };
//! assert_eq!(broker.publish(&[outgoing]).await?, [Outcome::Acked]);
//! assert_eq!(std::fs::read_to_string(&path).expect("the file").lines().count(), 1);
//! # Ok(()) }
//! ```

mod archive;
mod broker;
mod encode;
mod file;
mod trouble;
mod writer;

pub use archive::FileArchive;
pub use broker::{FileBroker, FileOptions};
