//! Kafka, against real servers of the tests' own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

mod beginning;
mod copies;
mod encryption;
mod examining;
mod full;
mod growing;
mod heavy;
mod holding;
mod identity;
mod keys;
mod mocked;
mod proxied;
mod publishing;
mod rebalancing;
mod server;
mod stalling;
mod subscribing;
mod suite;
mod topics;
mod transactions;
mod trouble;
mod unreadable;
mod weighing;
