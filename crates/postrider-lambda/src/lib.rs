//! Postrider in functions of AWS Lambda. There is no runtime of Lambda in here: a function of yours hands on the
//! JSON that it was invoked with and the time that it has left, and answers with what comes back.
//!
//! | To | look at |
//! |---|---|
//! | publish what a stream of DynamoDB tells of | [`Publisher::publish`] |
//! | publish, on a schedule, what was left over | [`Publisher::sweep`] |
//! | act once on messages of SQS | [`Worker::receive`] |
//!
//! **What is promised.** The same as of a relay and a consumer that run all the time: at-least-once delivery, in a key's
//! order, and at-most-once effect. An invocation that ends early, or is killed, has lost nothing: what it did not
//! settle is still pending in the table, or comes again.
//!
//! **Partial failures.** Both kinds of event source need `ReportBatchItemFailures`. Without it the service takes
//! any answer for success.

mod answer;
mod lanes;
mod options;
mod publisher;
mod settle;
mod worker;

pub use answer::{Failures, Published, Received, Swept};
pub use options::WorkerOptions;
pub use publisher::{Publisher, RESERVE};
pub use worker::Worker;
