//! The three functions as the service runs them: real processes that fetch recorded invocations from its runtime's
//! interface, on DynamoDB Local and LocalStack.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stdout, reason = "a skipped test says why")]

mod charging;
mod cloud;
mod publishing;
mod service;
