//! The DynamoDB store, on DynamoDB Local, in tables of the tests' own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

mod beyond;
mod credentials;
mod derived;
mod derived_settled;
mod derived_waiting;
mod endpoints;
mod examine;
mod far;
mod foreign;
mod fresh;
mod front;
mod halfway;
mod handed_on;
mod inbox;
mod kept;
mod lease;
mod mark;
mod mark_first;
mod operating;
mod operator;
mod outbox;
mod paths;
mod proxy;
mod recipe;
mod refused;
mod relay;
mod removal;
mod removal_race;
mod shards;
mod shared;
mod shop;
mod skew;
mod split;
mod stream;
mod suite;
mod tables;
mod unordered;
mod waiting;
