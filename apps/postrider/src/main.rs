//! The postrider binary: parses what was asked, runs it, and turns the outcome into an exit code.
//!
//! Invariant: standard output carries data and nothing else; everything for people goes to standard
//! error.

mod adopt;
mod age;
mod apply;
mod audit;
#[cfg(feature = "aws")]
mod aws;
mod bulk;
mod certificate;
mod chaos;
mod cli;
mod completions;
mod config;
mod confirm;
mod consume;
mod crowd;
mod database;
mod dead;
mod demo;
mod destinations;
mod doctor;
mod duration;
mod dynamodb;
mod enqueue;
mod erase;
mod explain;
mod failure;
mod filter;
mod flag;
mod follow;
mod generate;
mod global;
mod hint;
mod inbox;
mod init;
#[cfg(feature = "kafka")]
mod kafka;
mod logs;
mod man;
mod migrate;
#[cfg(feature = "nats")]
mod nats;
mod otel;
mod outbox;
mod output;
mod pace;
mod partitions;
mod queue;
mod reason;
mod reconcile;
mod relay;
mod repair;
mod rows;
mod serve;
mod shape;
mod signals;
mod status;
mod store;
mod table;
mod target;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::failure::{Exit, Failure};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Init(args) => block_on(init::run(args)),
        Command::Relay(args) => block_on(relay::run(args)),
        Command::Consume(args) => block_on(consume::run(args)),
        Command::Status(args) => block_on(status::run(args)),
        Command::Doctor(args) => block_on(doctor::run(args)),
        Command::Enqueue(args) => block_on(enqueue::run(args)),
        Command::Outbox(args) => block_on(outbox::run(args)),
        Command::Dead(args) => block_on(dead::run(args)),
        Command::Queue(args) => block_on(queue::run(args)),
        Command::Config(args) => config::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Inbox(args) => block_on(inbox::run(args)),
        Command::Destinations(args) => block_on(destinations::run(args)),
        Command::Partitions(args) => block_on(partitions::run(args)),
        Command::Reconcile(args) => block_on(reconcile::run(args)),
        Command::Erase(args) => block_on(erase::run(args)),
        Command::Migrate(args) => block_on(migrate::run(args)),
        Command::Repair(args) => block_on(repair::run(args)),
        Command::Adopt(args) => block_on(adopt::run(args)),
        Command::Audit(args) => block_on(audit::run(args)),
        Command::Chaos(args) => block_on(chaos::run(args)),
        Command::Demo(args) => block_on(demo::run(args)),
        Command::DemoRelay(args) => block_on(demo::relay::run(args)),
        Command::DemoMail(args) => block_on(demo::mail::run(args)),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.is_silent() {
                terminal::note(&failure.render(terminal::style()));
            }
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
