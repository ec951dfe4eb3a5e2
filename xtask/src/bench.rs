//! `cargo x bench`: a benchmark in release mode, its arguments and exit code passed through.

use std::path::Path;
use std::process::ExitCode;

use crate::step;

/// Runs the bench package with `arguments`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let mut command = step::cargo(root, &["run", "--release", "-q", "-p", "postrider-bench"]);
    // Their clients take longer to build than everything else there.
    if arguments.iter().any(|argument| matches!(&**argument, "kafka" | "nats")) {
        command.args(["--features", "brokers"]);
    }
    command.arg("--").args(arguments);
    match command.status() {
        // A benchmark that a signal ended has no code of its own.
        Ok(status) => status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("error: `{}` did not start: {error}", step::shown(&command));
            ExitCode::FAILURE
        }
    }
}
