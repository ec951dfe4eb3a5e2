//! What the consumer engine promises, tested against the memory store and broker in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod alone;
mod bench;
mod consumer;
mod large;
mod leased;
mod machine;
mod stopping;
mod suspects;
mod tries;
mod unheard;
mod world;
