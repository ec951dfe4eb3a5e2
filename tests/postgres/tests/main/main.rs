//! Faults against real processes on a real PostgreSQL: whatever is killed, stopped, or cut off, nothing that
//! was committed is lost, nothing else is delivered, and each key keeps its order.
//!
//! Each test has a server of its own; without the programs it prints why it is skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stderr, reason = "figures, and why a test is skipped")]

mod backlog;
mod clocks;
mod disk;
mod faults;
mod own_table;
mod points;
mod producers;
mod promoted;
mod rights;
mod stage;
mod versions;
mod watch;
mod whose;
