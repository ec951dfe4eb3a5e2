//! The store's integration tests, one binary, against a real server. Each test has a schema of its own.
//!
//! The server is the one of `cargo x services up pg`; without one every test prints why it is skipped.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says why")]

mod apart;
mod attack;
mod backlog;
mod change;
mod contract;
mod database;
mod enqueue;
mod fetch;
mod inbox;
mod init;
mod late;
mod lease;
mod misplaced;
mod moved;
mod operator;
mod own;
mod page;
mod plans;
mod pool;
mod pooled;
mod ranges;
mod relay;
mod retire;
mod rules;
mod schema;
mod support;
mod together;
mod trouble;
mod undisturbed;
mod vouched;
mod wake;
