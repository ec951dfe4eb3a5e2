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
  postrider config schema > postrider.schema.json
  postrider config brokers > brokers.json")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    Check(CheckArgs),
    Show(ShowArgs),
    Schema(SchemaArgs),
    Brokers(BrokersArgs),
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

/// Write what each kind of broker takes, as JSON for programs
///
/// Each field with its meaning, type, default, limits, whether it is a secret,
/// what it needs, and what it excludes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider config brokers
  postrider config brokers > brokers.json")]
struct BrokersArgs {}

pub(crate) fn run(args: &ConfigArgs) -> Result<Exit, Failure> {
    match &args.command {
        ConfigCommand::Check(args) => check(args),
        ConfigCommand::Show(args) => show::run(args),
        ConfigCommand::Schema(SchemaArgs {}) => write(&postrider_config::schema()),
        ConfigCommand::Brokers(BrokersArgs {}) => write(&postrider_config::brokers()),
    }
}

fn write(value: &serde_json::Value) -> Result<Exit, Failure> {
    terminal::data(&format!("{value:#}")).map_err(Failure::of_stdout)?;
    Ok(Exit::Success)
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

#[cfg(test)]
mod tests {
    /// Where the fields of each table become a broker's settings.
    const READERS: [(&str, &[&str]); 10] = [
        ("destinations.NAME.webhook", &[include_str!("../relay/brokers.rs")]),
        ("destinations.NAME.endpoints", &[include_str!("../relay/brokers.rs")]),
        (
            "destinations.NAME.kafka",
            &[include_str!("../relay/kafka.rs"), include_str!("../kafka.rs")],
        ),
        ("destinations.NAME.nats", &[include_str!("../relay/nats.rs"), include_str!("../nats.rs")]),
        ("destinations.NAME.sqs", &[include_str!("../relay/aws.rs"), include_str!("../aws.rs")]),
        ("destinations.NAME.sns", &[include_str!("../relay/aws.rs"), include_str!("../aws.rs")]),
        (
            "destinations.NAME.eventbridge",
            &[include_str!("../relay/aws.rs"), include_str!("../aws.rs")],
        ),
        ("consume.NAME.sqs", &[include_str!("../consume/sqs.rs"), include_str!("../aws.rs")]),
        ("consume.NAME.kafka", &[include_str!("../consume/kafka.rs"), include_str!("../kafka.rs")]),
        ("consume.NAME.nats", &[include_str!("../consume/nats.rs"), include_str!("../nats.rs")]),
    ];

    /// Whether a field is read from the table, or from who we are in it.
    fn is_read(field: &str, sources: &[&str]) -> bool {
        let tables =
            ["webhook", "configured", "kafka", "nats", "sqs", "sns", "eventbridge", "login"];
        let reads = tables.map(|table| format!("{table}.{field}"));
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        sources.iter().any(|source| {
            reads.iter().any(|read| {
                let mut found = source.match_indices(read.as_str());
                found.any(|(at, _)| ends(&source[at + read.len()..]))
            })
        })
    }

    /// A field that is declared is read. (One that is read and not declared does not compile.)
    #[test]
    fn every_field_of_a_broker_is_read() {
        let mut seen = 0;
        for kind in postrider_config::brokers().as_array().unwrap() {
            let parts = ["destination", "source"].map(|part| &kind[part]["tables"]);
            for table in parts.into_iter().filter_map(|tables| tables.as_array()).flatten() {
                let name = table["table"].as_str().unwrap();
                let readers = READERS.iter().find(|(known, _)| *known == name);
                let (_, sources) = readers.unwrap_or_else(|| panic!("who reads [{name}]?"));
                for field in table["fields"].as_array().unwrap() {
                    let field = field["name"].as_str().unwrap();
                    assert!(is_read(field, sources), "nobody reads {name}.{field}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 50, "{seen}");
        // Negative control.
        assert!(!is_read("unread", READERS[2].1) && !is_read("time", READERS[2].1));
    }
}
