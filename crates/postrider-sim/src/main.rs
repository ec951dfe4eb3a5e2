//! `postrider-sim`: runs worlds from seeds, and says what broke. `cargo x sim` builds and starts it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command's output is its purpose")]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main(std::env::args().skip(1).collect())
}
