//! `postrider config`: looks at the configuration, and changes nothing.

mod load;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use postrider_config::{Environment, Needs};

pub(crate) use load::{load, secrets};

use crate::failure::{Exit, Failure};
use crate::output::Format;
use crate::terminal;

/// Check, explain, or describe the configuration
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider config check --config postrider.toml
  postrider config show --config postrider.toml
  postrider config schema > postrider.schema.json")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Check(CheckArgs),
    Show(ShowArgs),
    Schema(SchemaArgs),
}

/// Say everything that is wrong with a configuration, before anything connects
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider config check --config postrider.toml
  postrider config check --config postrider.toml --no-secrets

Exit codes:
  0   nothing is wrong; warnings may have been written
  78  something is wrong")]
struct CheckArgs {
    /// The configuration; else $POSTRIDER_CONFIG, else the environment alone
    #[arg(long, value_name = "FILE", env = "POSTRIDER_CONFIG")]
    config: Option<PathBuf>,
    /// Do not look whether the secrets can be read
    #[arg(long)]
    no_secrets: bool,
}

/// Show every value that is in effect, and where it comes from
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider config show --config postrider.toml
  POSTRIDER_RELAY__LEASE=20s postrider config show --set --output json")]
pub(crate) struct ShowArgs {
    /// The configuration; else $POSTRIDER_CONFIG, else the environment alone
    #[arg(long, value_name = "FILE", env = "POSTRIDER_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Only what somebody set
    #[arg(long)]
    pub(crate) set: bool,
    /// How to write the answer: table, json, or ndjson
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) output: Format,
}

/// Write the JSON Schema of the configuration, for editors
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider config schema > postrider.schema.json")]
struct SchemaArgs {}

pub(crate) fn run(args: &ConfigArgs) -> Result<Exit, Failure> {
    match &args.command {
        ConfigCommand::Check(args) => check(args),
        ConfigCommand::Show(args) => show::run(args),
        ConfigCommand::Schema(SchemaArgs {}) => {
            terminal::data(&format!("{:#}", postrider_config::schema()))
                .map_err(Failure::of_stdout)?;
            Ok(Exit::Success)
        }
    }
}

fn check(args: &CheckArgs) -> Result<Exit, Failure> {
    let environment = Environment::of_process();
    let loaded = load(args.config.as_deref(), &environment, Needs::NOTHING)?;
    if !args.no_secrets {
        secrets(&loaded, &environment)?;
    }
    let config = &loaded.config;
    let of = |number: usize, noun: &str| match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    };
    terminal::note(&format!(
        "the configuration is right: {}, {}",
        of(config.destinations.len(), "destination"),
        of(config.consume.len(), "consumer")
    ));
    if args.config.is_none() {
        terminal::note(
            "no file was named: this is the environment alone. To check a file: --config FILE",
        );
    }
    Ok(Exit::Success)
}
