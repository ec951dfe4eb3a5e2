//! Functions, on DynamoDB Local and LocalStack, in tables and queues of the tests' own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

mod claims;
mod derived;
mod fresh;
mod giving;
mod line;
mod partial;
mod queue;
mod sweep;
