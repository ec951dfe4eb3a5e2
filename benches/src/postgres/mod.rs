//! The benchmarks on PostgreSQL: a server of their own, with fsync on, and baselines on that server.

mod backlog;
mod drain;
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
        other => Err(format!("`{other}` is not measured on PostgreSQL").into()),
    }
}
