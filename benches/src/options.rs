//! The command line after the benchmark's name.
//!
//! Invariant: everything that decides how long a run takes has an upper bound.

use std::path::PathBuf;

use crate::Result;
use crate::tuning::Tuning;

/// The most rows of any benchmark: at some 700 bytes each, 10 million are 7 GB of temporary file.
const ROWS_MAX: u64 = 10_000_000;

/// The most rounds: medians do not become better after that.
const ROUNDS_MAX: u64 = 30;

/// The longest look at an idle relay, and the longest stream of events, in seconds.
const IDLE_MAX: u64 = 600;

/// What the options are, for a person.
pub(crate) const USAGE: &str = "\
options:
  --store NAME            sqlite; postgres, which has drain, enqueue, latency, idle, memory, and those that say so;
                          dynamodb, which has drain and units
  --broker NAME           where the relay delivers: noop acknowledges at once; local; with postgres also kafka
                          and nats, for drain, memory, latency, and consumer
  --rows N                events, or transactions for `enqueue`
  --rounds N              how often each contender is measured; medians are reported
  --seconds N             how long events come in `writer`
  --idle-seconds N        how long `latency`, `idle`, and `interval` look at an idle relay
  --tune LIST             `drain` and `memory` with kafka or nats: other settings than the defaults, as
                          partitions=64,batches=16,linger=10,memory=32,rows=10000 (milliseconds, MiB)
  --binary PATH           the `postrider` that `start` starts; without it, this program
  --json                  one JSON object on one line";

/// Where the events are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// A file of the benchmark's own.
    Sqlite,
    /// A server of the benchmark's own, with fsync on.
    Postgres,
    /// An emulator of DynamoDB, by its address in the environment.
    Dynamodb,
}

impl StoreKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            StoreKind::Sqlite => "sqlite",
            StoreKind::Postgres => "postgres",
            StoreKind::Dynamodb => "dynamodb",
        }
    }
}

/// What the relay delivers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokerKind {
    /// Acknowledges at once and keeps nothing.
    Noop,
    /// The local broker, in a file of its own.
    Local,
    /// A server of Apache Kafka of the benchmark's own.
    Kafka,
    /// A server of NATS with JetStream of the benchmark's own.
    Nats,
}

impl BrokerKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            BrokerKind::Noop => "noop",
            BrokerKind::Local => "local",
            BrokerKind::Kafka => "kafka",
            BrokerKind::Nats => "nats",
        }
    }

    /// Whether it is a server, which only some benchmarks know.
    pub(crate) const fn is_server(self) -> bool {
        matches!(self, BrokerKind::Kafka | BrokerKind::Nats)
    }

    pub(crate) fn parse(text: &str) -> Result<BrokerKind> {
        match text {
            "noop" => Ok(BrokerKind::Noop),
            "local" => Ok(BrokerKind::Local),
            "kafka" => Ok(BrokerKind::Kafka),
            "nats" => Ok(BrokerKind::Nats),
            other => {
                Err(format!("there is no broker `{other}` here: noop, local, kafka, nats").into())
            }
        }
    }
}

/// How a benchmark is run. What is `None` is the benchmark's own choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) store: StoreKind,
    pub(crate) broker: BrokerKind,
    pub(crate) rows: Option<u64>,
    pub(crate) rounds: Option<u32>,
    pub(crate) idle_seconds: Option<u64>,
    pub(crate) seconds: Option<u64>,
    /// The program that `start` starts; without one it starts itself.
    pub(crate) binary: Option<PathBuf>,
    /// What a benchmark with a broker has instead of the defaults.
    pub(crate) tuning: Tuning,
    pub(crate) json: bool,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Options> {
        let mut options = Options {
            store: StoreKind::Sqlite,
            broker: BrokerKind::Noop,
            rows: None,
            rounds: None,
            idle_seconds: None,
            seconds: None,
            binary: None,
            tuning: Tuning::default(),
            json: false,
        };
        let mut left = arguments.iter();
        while let Some(argument) = left.next() {
            let mut value = || left.next().ok_or_else(|| format!("`{argument}` needs a value"));
            match argument.as_str() {
                "--json" => options.json = true,
                "--store" => match value()?.as_str() {
                    "sqlite" => options.store = StoreKind::Sqlite,
                    "postgres" => options.store = StoreKind::Postgres,
                    "dynamodb" => options.store = StoreKind::Dynamodb,
                    other => return Err(format!("there is no store `{other}` here").into()),
                },
                "--broker" => options.broker = BrokerKind::parse(value()?)?,
                "--rows" => options.rows = Some(number(argument, value()?, ROWS_MAX)?),
                "--rounds" => {
                    let rounds = number(argument, value()?, ROUNDS_MAX)?;
                    options.rounds = Some(u32::try_from(rounds)?);
                }
                "--seconds" => options.seconds = Some(number(argument, value()?, IDLE_MAX)?),
                "--idle-seconds" => {
                    options.idle_seconds = Some(number(argument, value()?, IDLE_MAX)?);
                }
                "--tune" => options.tuning = Tuning::parse(value()?)?,
                "--binary" => options.binary = Some(PathBuf::from(value()?)),
                other => return Err(format!("unknown option `{other}`\n{USAGE}").into()),
            }
        }
        Ok(options)
    }
}

fn number(name: &str, text: &str, max: u64) -> Result<u64> {
    match text.replace('_', "").parse() {
        Ok(number) if (1..=max).contains(&number) => Ok(number),
        _ => Err(format!("`{name} {text}`: a number from 1 to {max}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options> {
        Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_in_any_order() {
        let options = parse("--json --rows 1_000 --broker local --store sqlite").unwrap();
        assert_eq!((options.rows, options.json), (Some(1_000), true));
        assert_eq!(options.broker, BrokerKind::Local);
    }

    #[test]
    fn what_is_unknown_or_unbounded_is_refused() {
        for bad in
            ["--rows", "--rows 0", "--rows 99999999999", "--store oracle", "--broker x", "--fast"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
