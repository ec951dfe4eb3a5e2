//! Spans as an exporter gets them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod brokers;
mod create;
mod flow;
mod process;
mod send;
