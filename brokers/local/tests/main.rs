//! The local broker against its contract, its file's faults, and other processes.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

mod consuming;
mod dead_letters;
mod faults;
mod processes;
mod publishing;
mod retention;
mod suite;
mod support;
