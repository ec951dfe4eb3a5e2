//! Postrider's PostgreSQL store: an append-only outbox read by snapshot cursors, and the inbox, in the
//! application's own database.

mod names;
pub use marker::Inbox;
pub use names::Names;
pub use outbox::Outbox;
#[cfg(feature = "tokio-postgres")]
pub use prepared::PreparedOutbox;
#[doc(hidden)]
pub use staged::{Staged, Value};
#[doc(hidden)]
pub use state::of_state;

#[cfg(feature = "tokio-postgres")]
mod accept;
#[cfg(feature = "store")]
mod address;
#[cfg(feature = "store")]
mod again;
#[cfg(feature = "store")]
mod answer;
#[cfg(feature = "store")]
mod apart;
#[cfg(feature = "store")]
mod carry_out;
#[cfg(feature = "store")]
mod connect;
#[cfg(feature = "store")]
mod connection;
#[cfg(feature = "store")]
mod cursor;
#[cfg(feature = "store")]
mod destination;
#[cfg(feature = "store")]
mod due;
#[cfg(feature = "tokio-postgres")]
mod enqueue;
#[cfg(feature = "tokio-postgres")]
mod error;
#[cfg(feature = "store")]
mod fetch;
#[cfg(feature = "store")]
mod gap;
#[cfg(feature = "store")]
mod gather;
#[cfg(feature = "store")]
mod gone_back;
#[cfg(feature = "store")]
mod group;
#[cfg(feature = "store")]
mod holdings;
#[cfg(feature = "store")]
mod identity;
#[cfg(feature = "store")]
mod inbox;
#[cfg(feature = "store")]
mod lease;
#[cfg(feature = "store")]
mod leaving;
#[cfg(feature = "store")]
mod load;
#[cfg(feature = "store")]
mod maintain;
mod marker;
#[cfg(feature = "store")]
mod migrate;
#[cfg(feature = "store")]
mod nudge;
#[cfg(feature = "store")]
mod open;
#[cfg(feature = "store")]
mod operator;
mod outbox;
#[cfg(feature = "store")]
mod own;
#[cfg(feature = "store")]
mod place;
#[cfg(feature = "store")]
mod places;
#[cfg(feature = "store")]
mod pooler;
#[cfg(feature = "store")]
mod pooler_news;
#[cfg(feature = "tokio-postgres")]
mod prepared;
#[cfg(feature = "store")]
mod question;
#[cfg(feature = "store")]
mod remembered;
#[cfg(feature = "store")]
mod retire;
#[cfg(feature = "store")]
mod room;
#[cfg(feature = "store")]
mod row;
#[cfg(feature = "store")]
mod schedule;
#[cfg(feature = "store")]
mod schema;
#[cfg(feature = "store")]
mod session;
#[cfg(feature = "store")]
mod sessions;
#[cfg(feature = "store")]
mod settle;
#[cfg(feature = "store")]
mod setup;
#[cfg(feature = "store")]
mod silence;
#[cfg(feature = "store")]
mod since;
mod sql;
mod staged;
#[cfg(feature = "store")]
mod standby;
mod state;
#[cfg(feature = "store")]
mod store;
mod thresholds;
#[cfg(feature = "store")]
mod tick;
#[cfg(feature = "store")]
mod tls;
#[cfg(feature = "store")]
mod together;
#[cfg(feature = "store")]
mod transactional;
#[cfg(feature = "tokio-postgres")]
mod typed;
#[cfg(feature = "store")]
mod waiting;
#[cfg(feature = "store")]
mod wake;

#[cfg(feature = "store")]
pub use apart::saves_apart;
#[cfg(feature = "store")]
pub use holdings::{Holdings, holdings};
#[cfg(feature = "store")]
pub use migrate::{MigrationState, Migrations, init, init_within, migrations, remove, revert};
#[cfg(feature = "store")]
pub use nudge::Nudger;
#[cfg(feature = "store")]
pub use operator::SequenceRepair;
#[cfg(feature = "store")]
pub use own::{Comparison, Mapping, OwnTable, Settled};
#[cfg(feature = "store")]
pub use pooler::Pooler;
#[cfg(feature = "store")]
pub use schema::Schema;
#[cfg(feature = "store")]
pub use setup::{Layout, PARTITIONS_MAX, Setup};
#[cfg(feature = "store")]
pub use standby::PublishAfter;
#[cfg(feature = "store")]
pub use store::{Options, PostgresStore};
pub use thresholds::Thresholds;
#[cfg(feature = "store")]
pub use transactional::{HandlerError, Transactional};

#[cfg(feature = "tokio-postgres")]
pub use accept::accept;
