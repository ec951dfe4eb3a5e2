//! The proof of the snapshot cursor on a real PostgreSQL, one binary: nothing is lost, nothing is read twice
//! without a crash, a key keeps its order, and nothing is delivered that a crash takes back.
//!
//! Each test has a server of its own, started here, because it kills it, or needs settings of its own.
//! Without the programs every test prints why it is skipped. Each rule is seen to matter: readers with a
//! wrong one stand beside the product, and lose events under the same load.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stderr, reason = "figures, and why a test is skipped")]

mod bouncer;
mod cluster;
mod crash;
mod dice;
mod directed;
mod place;
mod property;
mod record;
mod relay;
mod restore;
mod rule;
mod shop;
mod standby;
mod writers;
