//! Faults against real relay processes and real brokers: whatever is killed, stopped, or restarted, nothing
//! that was committed is lost, nothing else is delivered, and each key keeps its order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures, and skips")]

mod cutting_over;
mod fanning;
mod fault;
mod formats;
mod kafka;
mod killing;
mod late;
mod nats;
mod outage;
mod outbox;
mod outliving;
mod refusing;
mod server;
mod shop;
mod stage;
mod whole_way;
