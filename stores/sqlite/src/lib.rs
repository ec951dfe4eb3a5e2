//! Postrider's SQLite store: outbox, relay source, and inbox in the application's own database
//! file.
//!
//! The application writes its change and the event in one transaction; a relay reads what was
//! committed, in commit order, through [`SqliteStore`].
//!
//! ```
//! use postrider_core::NewEvent;
//! use postrider_sqlite::{Outbox, connect, init};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("shop.db");
//! init(&path)?;
//! let mut connection = connect(&path)?;
//! connection.execute_batch("create table orders (id integer primary key, total integer)")?;
//!
//! let outbox = Outbox::new();
//! let tx = connection.transaction()?;
//! tx.execute("insert into orders values (42, 1250)", ())?;
//! let event = NewEvent::new("order", "42", "order.placed").json(&1250)?;
//! outbox.enqueue(&tx, &event)?;
//! tx.commit()?; // both, or neither
//! # Ok(()) }
//! ```
//!
//! | To | look at |
//! |---|---|
//! | create or migrate the tables | [`init`], [`Schema`] |
//! | open the application's connection as it should be | [`connect`] |
//! | stage events in a transaction | [`Outbox`] |
//! | run a relay on the file | [`SqliteStore`] |
//! | act once on events that come in | [`accept`], [`Transactional`], and [`SqliteStore`] as an inbox with leases |
//!
//! The tables are a contract: any program that speaks SQLite 3.40 or newer may insert into
//! `outbox`. It is written down, column by column, in `docs/reference/sqlite.md`.
//!
//! **Supported**: one file on a local disk, any number of processes on one machine, several relays
//! of which one works, scheduled events, erasure. **Not supported**: files on a network share
//! (SQLite's locks do not hold there), more than one partition, and `synchronous = OFF`.

mod carry_out;
mod connection;
mod destination;
mod due;
mod endpoint;
mod error;
mod file;
mod inbox;
mod lease;
mod operator;
mod outbox;
mod page;
mod range;
mod retire;
mod row;
mod schedule;
mod schema;
mod settle;
mod signal;
mod sql;
#[cfg(feature = "sqlx")]
pub mod sqlx;
mod store;
mod transactional;
mod turnstile;
mod waiting;
mod wake;
mod worker;

pub use connection::connect;
pub use inbox::accept;
pub use outbox::Outbox;
pub use schema::{Schema, init, init_as};
pub use store::SqliteStore;
pub use transactional::{HandlerError, Transactional};
