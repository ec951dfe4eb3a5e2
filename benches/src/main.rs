//! Postrider's benchmarks: each against named baselines, in the same run and the same process.
//!
//! Invariant: every figure is measured by the run that prints it. A benchmark that did not deliver
//! what it should have fails instead of printing a rate.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command's output is its purpose")]

mod backlog;
mod bare_client;
mod broker;
#[cfg(feature = "brokers")]
mod brokered;
mod child;
mod counted;
mod drain;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod enqueue;
mod idle;
mod latency;
mod measure;
mod memory;
mod options;
mod outcome;
mod plain;
mod poll;
mod postgres;
mod producer;
mod receiver;
mod relay;
mod sql;
mod start;
mod textbook;
mod tuning;
mod webhook;

use std::process::ExitCode;

use options::{Options, StoreKind};
use outcome::Outcome;
use tuning::Tuning;

/// Whatever went wrong: a benchmark stops at the first error.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A benchmark: its name, what it measures, and how it is run.
struct Benchmark {
    name: &'static str,
    about: &'static str,
    run: fn(&Options) -> Result<Outcome>,
}

const BENCHMARKS: [Benchmark; 17] = [
    Benchmark {
        name: "enqueue",
        about: "a business transaction with the event, against the same without",
        run: enqueue::run,
    },
    Benchmark {
        name: "drain",
        about: "a backlog through the whole relay, against a plain read and the textbook loop",
        run: drain::run,
    },
    Benchmark {
        name: "memory",
        about: "peak memory of a relay that drains a large backlog, against a small one",
        run: memory::run,
    },
    Benchmark {
        name: "latency",
        about: "commit to delivery of a running relay, against a loop that polls; and idleness",
        run: latency::run,
    },
    Benchmark {
        name: "webhook",
        about: "signed webhooks through the whole relay, against the bare HTTP client",
        run: webhook::run,
    },
    Benchmark {
        name: "idle",
        about: "what a relay costs while nothing happens, against a loop that polls and a bare process",
        run: idle::run,
    },
    Benchmark {
        name: "interval",
        about: "postgres: how long events wait in an idle outbox, and what it costs, by the poll interval",
        run: postgres::only,
    },
    Benchmark {
        name: "start",
        about: "from the start of a relay's process to its first delivery, against a bare process",
        run: start::run,
    },
    Benchmark {
        name: "settled",
        about: "postgres: a drain beside millions of settled rows, against one in an empty table",
        run: postgres::only,
    },
    Benchmark {
        name: "hot",
        about: "postgres: a backlog of one key, against one of ten thousand",
        run: postgres::only,
    },
    Benchmark {
        name: "own",
        about: "postgres: a table of the application's own through the whole relay, against the loops on that table",
        run: postgres::only,
    },
    Benchmark {
        name: "writer",
        about: "postgres: a stream and a drain beside a transaction that stays open, against without it",
        run: postgres::only,
    },
    Benchmark {
        name: "live",
        about: "postgres: producers beside a relay, against producers alone",
        run: postgres::only,
    },
    Benchmark {
        name: "dead",
        about: "postgres: a destination beside a dead one, against alone",
        run: postgres::only,
    },
    Benchmark {
        name: "peer",
        about: "postgres: a drain to nothing, against Debezium's embedded engine on the same server",
        run: postgres::only,
    },
    Benchmark {
        name: "consumer",
        about: "kafka, nats: a consumer with the inbox on postgres, against a bare one with the same write",
        run: postgres::only,
    },
    Benchmark {
        name: "units",
        about: "dynamodb: what events and idleness cost in units and calls, against the design of the articles",
        run: |_| Err("this is measured with `--store dynamodb` only".into()),
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(inner) = cause {
                eprintln!("  because: {inner}");
                cause = inner.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: &[String]) -> Result<()> {
    let Some(name) = arguments.first() else {
        list();
        return Ok(());
    };
    if name == child::FLAG {
        return child::run(&arguments[1..]);
    }
    let Some(benchmark) = BENCHMARKS.iter().find(|benchmark| benchmark.name == name) else {
        list();
        return Err(format!("there is no benchmark `{name}`").into());
    };
    let options = Options::parse(&arguments[1..])?;
    let brokers = options.store == StoreKind::Postgres && options.broker.is_server();
    if options.tuning != Tuning::default()
        && !(brokers && ["drain", "memory"].contains(&name.as_str()))
    {
        return Err("`--tune` is for `drain` and `memory` with kafka or nats".into());
    }
    let before = measure::load_average();
    let outcome = match options.store {
        StoreKind::Postgres if brokers => brokered(name, &options)?,
        StoreKind::Postgres => postgres::run(name, &options)?,
        StoreKind::Sqlite => (benchmark.run)(&options)?,
        StoreKind::Dynamodb => on_dynamodb(name, &options)?,
    };
    let outcome = outcome.add(
        "load_average",
        serde_json::json!({ "before": before, "after": measure::load_average() }),
    );
    if options.json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        print!("{outcome}");
    }
    Ok(())
}

#[cfg(feature = "brokers")]
fn brokered(name: &str, options: &Options) -> Result<Outcome> {
    brokered::run(name, options)
}

#[cfg(not(feature = "brokers"))]
fn brokered(_: &str, options: &Options) -> Result<Outcome> {
    let broker = options.broker.as_str();
    Err(format!("{broker} is not built in: build postrider-bench with the feature `brokers`")
        .into())
}

#[cfg(feature = "dynamodb")]
fn on_dynamodb(name: &str, options: &Options) -> Result<Outcome> {
    Ok(dynamodb::run(name, options)?.on(StoreKind::Dynamodb, "an emulator"))
}

#[cfg(not(feature = "dynamodb"))]
fn on_dynamodb(_: &str, _: &Options) -> Result<Outcome> {
    Err("dynamodb is not built in: build postrider-bench with the feature `dynamodb`".into())
}

fn list() {
    println!("usage: cargo x bench NAME [options]\n");
    for benchmark in &BENCHMARKS {
        println!("  {:<9} {}", benchmark.name, benchmark.about);
    }
    println!("\n{}", options::USAGE);
}

/// Says on standard error what is being done, for whoever waits.
fn progress(text: impl std::fmt::Display) {
    eprintln!("{text}");
}
