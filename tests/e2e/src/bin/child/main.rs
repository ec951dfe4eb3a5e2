//! One process that a test may stop, kill, and start again: `child ROLE --name value …`.
//!
//! It says what it does on standard output, a line each, after it is true. It ends when its standard
//! input ends, so that no child outlives the test that started it.

mod args;
mod asked;
mod careless;
mod consumer;
mod halt;
mod hooks;
mod mail;
mod producer;
mod receiver;
mod record;
mod relay;
mod twice;
mod words;

use std::process::ExitCode;

use postrider_core::{Error, ErrorKind};

use crate::args::Args;
use crate::asked::Asked;
use crate::halt::Halt;
use crate::words::say;

#[tokio::main]
async fn main() -> ExitCode {
    match play().await {
        Ok(code) => code,
        Err(error) => {
            let code = error.operator_code().map(|code| code.to_string()).unwrap_or_default();
            say(&format!("refused {code} {:?} {error}", error.kind()));
            ExitCode::FAILURE
        }
    }
}

async fn play() -> postrider_core::Result<ExitCode> {
    let args = Args::read()?;
    let asked = Asked::listen();
    let halt = Halt::from_args(&args, &asked)?;
    match args.role() {
        "relay" => relay::run(&args, halt, asked).await,
        "producer" => producer::run(&args, &halt),
        "consumer" => consumer::run(&args, halt, asked).await,
        "hooks" => hooks::run(&args, halt, asked).await,
        "receiver" => receiver::run(&args, halt, asked).await,
        "careless" => careless::run(&args, &halt).await,
        other => Err(Error::new(ErrorKind::Config, "start").message(format!("no role `{other}`"))),
    }
}
