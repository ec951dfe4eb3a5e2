//! The postrider binary: parses what was asked, runs it, and turns the outcome into an exit code.
//!
//! Invariant: standard output carries data and nothing else; everything for people goes to standard
//! error.

mod cli;
mod demo;
mod duration;
mod failure;
mod init;
mod relay;
mod signals;
mod store;
mod target;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::failure::{Exit, Failure};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Init(args) => init::run(&args),
        Command::Relay(args) => block_on(relay::run(args)),
        Command::Demo(args) => block_on(demo::run(args)),
        Command::DemoRelay(args) => block_on(demo::relay::run(args)),
        Command::DemoMail(args) => block_on(demo::mail::run(args)),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            terminal::note(&failure.render(terminal::style()));
            failure.exit().into()
        }
    }
}

/// Runs a command that waits for things.
fn block_on(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::plain(format!("the runtime cannot be started: {e}")))?;
    let outcome = runtime.block_on(command);
    // A clerk of an interrupted demo may still be in a transaction: the process does not wait.
    runtime.shutdown_background();
    outcome
}
