//! Postrider's DynamoDB store: outbox and inbox as items, written in the application's own transactions.
//!
//! | To | look at |
//! |---|---|
//! | say where the tables are | [`Settings`], [`Connection`] |
//! | make the tables, and see what is wrong with them | [`init`], [`recipe`], [`findings`] |
//! | write events with a change | [`Outbox`] |
//! | make events of the business items themselves | [`Stamp`], [`Derivation`] |
//! | run a relay on the tables, or operate it | [`DynamoStore`] |
//! | publish in a function that a stream invokes | [`Invocation`], [`Passing`] |
//! | act once on events that come in | [`Inbox`], [`Marker`] |
//! | see why a transaction was cancelled | [`Cancelled`] |
//!
//! The service's limits hold here as they do there: 100 actions and 4 MB a transaction, 400 KB an item.

mod addition;
mod audit;
mod carry_out;
mod collection;
mod connection;
mod control;
mod definitions;
mod derivation;
mod derived;
mod design;
mod document;
mod due;
mod error;
mod examine;
mod fence;
mod fetch;
mod group;
mod heartbeat;
mod inbox;
mod index;
mod invocation;
mod item;
mod job;
mod lag;
mod lease;
mod listed;
mod mapping;
mod mark;
mod operator;
mod options;
mod outbox;
mod passing;
mod permission;
mod progress;
mod reading;
mod recipe;
mod record;
mod release;
mod remembered;
mod removal;
mod remove;
mod request;
mod settings;
mod settle;
mod source;
mod stamp;
mod store;
mod stored;
mod stream;
mod tables;
mod tally;
mod transaction;
mod turns;
mod version;
mod waiting;
mod watch;

pub use connection::Connection;
pub use derivation::Derivation;
pub use examine::findings;
pub use inbox::{Inbox, InboxOptions, Marker};
pub use invocation::{INVOCATION_BYTES_MAX, INVOCATION_RECORDS_MAX, Invocation, StreamRecord};
pub use item::Item;
pub use lag::ShardLag;
pub use mapping::Mapping;
pub use options::Options;
pub use outbox::{Duplicate, Outbox, Staged};
pub use passing::Passing;
pub use recipe::recipe;
pub use remove::remove;
pub use settings::{Names, Settings};
pub use stamp::Stamp;
pub use store::DynamoStore;
pub use tables::{PARTITIONS_DEFAULT, PARTITIONS_MAX, Setup, init};
pub use tally::Tally;
pub use transaction::{
    ACTIONS_MAX, Cancelled, ITEM_BYTES_MAX, Refusal, TRANSACTION_BYTES_MAX, check,
};
pub use version::{ITEM_VERSION_HEADER, Version};

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/dynamodb.md")]
struct Guide;
