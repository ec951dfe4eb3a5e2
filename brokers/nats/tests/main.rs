//! NATS JetStream, against real servers of the tests' own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

mod burying;
mod changed;
mod denied;
mod domains;
mod examining;
mod fetching;
#[cfg(unix)]
mod full;
mod given_up;
mod granting;
mod heavy;
mod leaving;
mod orphaned;
mod partitioned;
mod passed;
mod promised;
mod proxied;
mod publishing;
mod raw;
mod secure;
mod server;
mod spread;
mod stalling;
mod suite;
mod trouble;
mod unreadable;
