//! What the three functions share: where things are, and how a function is run.
//!
//! Invariant: a function is given no more time than its invocation has left, and what goes wrong in it is an error of
//! the invocation, which the service repeats.

mod place;

use std::error::Error;
use std::time::{Duration, SystemTime};

use lambda_runtime::{Context, LambdaEvent, service_fn};
pub use place::Place;
use serde_json::Value;
use serde_json::value::RawValue;

/// Whatever went wrong. The service invokes again.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Runs a function, until the service ends its process: it is given an invocation's JSON, and the time that is left for
/// it, and answers with JSON. What it logs goes to standard error, a line of JSON each.
///
/// # Errors
/// If the service's runtime goes away.
pub async fn run<F, R>(function: F) -> Result<(), Failure>
where
    F: Fn(Box<RawValue>, Duration) -> R,
    R: Future<Output = Result<Value, Failure>>,
{
    let service = service_fn(|event: LambdaEvent<Box<RawValue>>| {
        // Boxed, as the loop is: the runtime nests what it is given deeper than the compiler computes.
        Box::pin(function(event.payload, remaining(&event.context)))
    });
    Box::pin(lambda_runtime::run(service)).await
}

/// Has what is logged written, before anything else is done.
pub fn log() {
    tracing_subscriber::fmt().json().with_span_list(false).with_writer(std::io::stderr).init();
}

/// The time that an invocation has left, by its deadline and this machine's clock, which the service sets.
fn remaining(context: &Context) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis(context.deadline).saturating_sub(now)
}
