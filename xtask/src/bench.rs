//! `cargo x bench`: a benchmark in release mode, its arguments and exit code passed through.

use std::path::Path;
use std::process::ExitCode;

use crate::{services, step};

/// The peer that a drain is compared with: its engine, and its connector for PostgreSQL.
const DEBEZIUM: [&str; 2] = [
    "io.debezium:debezium-embedded:3.6.1.Final",
    "io.debezium:debezium-connector-postgres:3.6.1.Final",
];

/// Runs the bench package with `arguments`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let mut command = step::cargo(root, &["run", "--release", "-q", "-p", "postrider-bench"]);
    // Their clients take longer to build than everything else there.
    if arguments.iter().any(|argument| matches!(&**argument, "kafka" | "nats")) {
        command.args(["--features", "brokers"]);
    }
    if arguments.iter().any(|argument| argument == "dynamodb") {
        command.args(["--features", "dynamodb"]);
        // Fetches its program as well, from which each contender starts an emulator of its own.
        command.envs(services::provide(&["ddb"]).0);
    }
    if arguments.iter().any(|argument| argument == "peer") {
        match services::jars("debezium", &DEBEZIUM) {
            Ok(jars) => command.env("POSTRIDER_BENCH_DEBEZIUM", jars),
            Err(reason) => {
                eprintln!("error: the peer cannot be had: {reason}");
                return ExitCode::FAILURE;
            }
        };
    }
    command.arg("--").args(arguments);
    step::pass_through(&mut command)
}
