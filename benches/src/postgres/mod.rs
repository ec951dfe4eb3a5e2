//! The benchmarks on PostgreSQL: a server of their own, with fsync on, and baselines on that server.

mod backlog;
mod drain;
mod enqueue;
mod idle;
mod latency;
mod loops;
mod plain;
mod server;

use crate::Result;
use crate::options::Options;
use crate::outcome::Outcome;

/// Runs a benchmark by its name.
pub(crate) fn run(name: &str, options: &Options) -> Result<Outcome> {
    match name {
        "drain" => drain::run(options),
        "enqueue" => enqueue::run(options),
        "idle" => idle::run(options),
        "latency" => latency::run(options),
        other => Err(format!("`{other}` is not measured on PostgreSQL").into()),
    }
}
