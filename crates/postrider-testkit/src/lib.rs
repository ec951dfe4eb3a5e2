//! Postrider's test kit: contract suites that every backend passes, a memory store and broker to
//! test against, and scripted faults.
//!
//! | To | use |
//! |---|---|
//! | prove that a store or broker keeps its contract | [`store_suite!`], [`source_suite!`], [`broker_suite!`], [`inbox_suite!`] |
//! | run an engine with nothing installed and a clock of the test's own | [`memory`] |
//! | let a call fail before, after, or in the middle | [`fault`] |
//! | find a real server | [`services`] |
//! | start a PostgreSQL server of the test's own (feature `cluster`) | `cluster` |
//! | count the round trips to it | [`turns`] |
//! | test the crate of another driver of it | [`driver`] |
//! | start a NATS or a Kafka server of the test's own (feature `kafka`: with a client), or DynamoDB Local | [`nats`], [`kafka`], [`dynamodb`] |
//! | let a seed decide what happens next | [`dice`] |
//! | sign certificates (feature `authority`) | `authority` |
//! | vouch for a user of NATS (feature `nats-operator`) | `nats_operator` |
//! | give a server a disk that can be full | [`disk`] |
//! | put a network between a client and a server that loses and delays | [`proxy`] |
//! | let the name of a server lead a process elsewhere, under way | [`names`] |
//! | carry events to a broker as the relay does, and look at the order | [`carry`] |
//! | show that a broker outlives such a network | [`wire`] |
//! | judge what happened | the crate `postrider-history` |

#[cfg(feature = "authority")]
pub mod authority;
pub mod carry;
#[cfg(all(feature = "cluster", unix))]
pub mod cluster;
pub mod dice;
#[cfg(unix)]
pub mod disk;
pub mod driver;
pub mod dynamodb;
pub mod fault;
pub mod kafka;
pub mod memory;
pub mod names;
pub mod nats;
#[cfg(feature = "nats-operator")]
pub mod nats_operator;
pub mod own_server;
pub mod proxy;
pub mod registries;
pub mod services;
pub mod suite;
mod template;
pub mod turns;
pub mod wall_clock;
pub mod wire;
