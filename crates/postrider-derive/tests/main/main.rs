//! The macro as an application meets it: what it writes, what it refuses, and its events on their way
//! from a transaction to a handler.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod compile;
mod delivery;
mod written;
