//! The whole way on AWS: an outbox in DynamoDB, the relay, a FIFO queue of SQS, a consumer with its inbox in
//! DynamoDB, and the effect, while everything is killed, stopped, and cut off.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "figures, and skips")]

mod bank;
mod fault;
mod line;
mod queue;
mod whole_way;
