//! The configuration as its users meet it: files that are wrong, variables, secrets, and what follows
//! from a file that is right.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by failing")]

mod bad;
mod brokers;
mod definition;
mod environment;
mod example;
mod hostile;
mod reload;
mod schema;
mod secrets;
mod values;

use postrider_config::{Environment, Loaded, Loader, Problem};

/// Reads a text with variables.
fn load_with(text: &str, variables: &[(&str, &str)]) -> Result<Loaded, Vec<Problem>> {
    let environment: Environment = variables.iter().copied().collect();
    Loader::new(&environment).text("postrider.toml", text).load()
}

/// Reads a text that is right.
fn load(text: &str) -> Loaded {
    load_with(text, &[]).unwrap_or_else(|problems| panic!("{}", said(&problems)))
}

/// What is said about a text that is wrong.
fn refused(text: &str, variables: &[(&str, &str)]) -> String {
    said(&load_with(text, variables).unwrap_err())
}

fn said(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect::<Vec<_>>().join("\n")
}

/// The example that the documentation explains.
const EXAMPLE: &str = include_str!("../../examples/postrider.toml");
