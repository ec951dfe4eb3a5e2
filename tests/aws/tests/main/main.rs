//! The whole way on AWS: an outbox in DynamoDB or PostgreSQL, the relay, a FIFO queue of SQS or a bus of EventBridge
//! with a queue behind it, a consumer with its inbox in DynamoDB, and the effect, while everything is killed, stopped,
//! and cut off.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures, and skips")]

mod bank;
mod fault;
mod line;
mod minute;
mod numbered;
mod outbox;
mod producers;
mod queue;
mod refused;
mod rounds;
mod whole_way;
