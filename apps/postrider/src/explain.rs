//! `postrider explain`: the page about an operator's code, without a network.

use clap::Args;
use postrider_core::Code;

use crate::failure::{Exit, Failure};
use crate::terminal;

/// Explain an error code: what happened, what was not lost, what to do
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider explain PR-1007
  postrider explain --list")]
pub(crate) struct ExplainArgs {
    /// The code, like PR-1007
    #[arg(value_name = "CODE", required_unless_present = "list")]
    code: Option<String>,
    /// List every code with its name
    #[arg(long, conflicts_with = "code")]
    list: bool,
}

pub(crate) fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let text = match &args.code {
        Some(code) => code.parse::<Code>()?.page().to_owned(),
        None => Code::ALL.iter().map(|code| format!("{code} {code:?}\n")).collect(),
    };
    terminal::data(text.trim_end()).map_err(Failure::of_stdout)?;
    Ok(Exit::Success)
}
