//! The benchmarks on PostgreSQL: a server of their own, with fsync on, and baselines on that server.

pub(crate) mod backlog;
mod dead;
mod drain;
mod enqueue;
mod hot;
mod idle;
mod interval;
pub(crate) mod latency;
mod live;
mod loops;
pub(crate) mod memory;
mod own;
mod peer;
pub(crate) mod plain;
pub(crate) mod server;
mod settled;
mod writer;

use crate::Result;
use crate::options::Options;
use crate::outcome::Outcome;

/// Runs a benchmark by its name.
pub(crate) fn run(name: &str, options: &Options) -> Result<Outcome> {
    match name {
        "drain" => drain::run(options),
        "enqueue" => enqueue::run(options),
        "dead" => dead::run(options),
        "hot" => hot::run(options),
        "idle" => idle::run(options),
        "interval" => interval::run(options),
        "latency" => latency::run(options),
        "live" => live::run(options),
        "memory" => memory::run(options),
        "own" => own::run(options),
        "peer" => peer::run(options),
        "settled" => settled::run(options),
        "writer" => writer::run(options),
        other => Err(format!("`{other}` is not measured on PostgreSQL").into()),
    }
}

/// A benchmark that other stores do not have.
pub(crate) fn only(_: &Options) -> Result<Outcome> {
    Err("this is measured with `--store postgres` only".into())
}
