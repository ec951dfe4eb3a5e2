//! Postrider's DynamoDB store: outbox and inbox as items, written in the application's own transactions.
//!
//! | To | look at |
//! |---|---|
//! | say where the tables are | [`Settings`], [`Connection`] |
//! | make the tables, and see what is wrong with them | [`init`], [`findings`] |
//! | write events with a change | [`Outbox`] |
//! | see why a transaction was cancelled | [`Cancelled`] |
//!
//! The service's limits hold here as they do there: 100 actions and 4 MB a transaction, 400 KB an item.

#![allow(dead_code, reason = "the source that uses the rest of these modules follows")]

mod connection;
mod control;
mod error;
mod item;
mod outbox;
mod record;
mod settings;
mod tables;
mod transaction;

pub use connection::Connection;
pub use item::Item;
pub use outbox::{Duplicate, Outbox, Staged};
pub use settings::{Names, Settings};
pub use tables::{PARTITIONS_DEFAULT, PARTITIONS_MAX, Setup, findings, init};
pub use transaction::{
    ACTIONS_MAX, Cancelled, ITEM_BYTES_MAX, Refusal, TRANSACTION_BYTES_MAX, check,
};
