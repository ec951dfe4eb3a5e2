//! The webhook broker against its contract, servers that misbehave, and addresses it may not call.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

mod answers;
mod guide;
mod misbehaving;
mod private;
mod reload;
mod requests;
mod signing;
mod suite;
mod support;
mod tls;
