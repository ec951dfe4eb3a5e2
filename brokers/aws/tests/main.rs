//! EventBridge, SQS, and SNS, as LocalStack has them, and a server of the tests' own that says what LocalStack never
//! says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

mod answers;
mod cloud;
mod examining;
mod fanout;
mod handed_on;
mod publishing;
mod redriving;
mod stub;
mod subscribing;
mod suite;
mod tasks;
