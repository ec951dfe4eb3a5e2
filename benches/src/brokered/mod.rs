//! The benchmarks with Kafka and NATS behind PostgreSQL: servers of their own, and each broker's own client
//! as the baseline.

mod bare;
mod consumer;
mod drain;
mod latency;
mod memory;
mod producer;
mod server;

use std::sync::Arc;

use postrider_core::{Format, Route, Template};
use postrider_postgres::PostgresStore;
use serde_json::Value;

use crate::options::Options;
use crate::outcome::Outcome;
use crate::tuning::Tuning;
use crate::{Result, child};

/// Runs a benchmark by its name.
pub(crate) fn run(name: &str, options: &Options) -> Result<Outcome> {
    match name {
        "consumer" => consumer::run(options),
        "drain" => drain::run(options),
        "latency" => latency::run(options),
        "memory" => memory::run(options),
        other => {
            let broker = options.broker.as_str();
            Err(format!("`{other}` is not measured with {broker}").into())
        }
    }
}

/// The side of a child: what needs a process of its own, so that its processor time and memory are its own.
pub(crate) fn child(words: &[&str]) -> Result<()> {
    let answer = match *words {
        ["drain", url, rows, kind, address, topic, format, tuning] => {
            let tuning = Tuning::parse(tuning)?;
            drain::relay(url, rows.parse()?, (kind, address), route(topic, format)?, &tuning)?
        }
        ["produce", url, rows, kind, address, topic] => {
            producer::round(url, rows.parse()?, kind, address, topic)?
        }
        ["relay", url, kind, address, topic, nudged] => {
            return latency::relay(url, kind, address, topic, nudged == "nudged");
        }
        _ => return Err("a child is started by its parent only".into()),
    };
    println!("{answer}");
    Ok(())
}

/// Asks a child, and reads figures out of its answer.
fn ask(words: &[&str]) -> Result<impl Fn(&str) -> f64 + use<>> {
    let answer = child::ask(&[&["brokered"], words].concat())?;
    Ok(move |name: &str| answer.get(name).and_then(Value::as_f64).unwrap_or_default())
}

fn store(url: &str) -> Result<Arc<PostgresStore>> {
    Ok(Arc::new(PostgresStore::new(url)?))
}

/// All events to a topic.
fn route(topic: &str, format: &str) -> Result<Route> {
    let mut route = Route::all(topic.parse::<Template>()?);
    route.format = match format {
        "structured" => Format::Structured,
        "binary" => Format::Binary,
        "debezium" => Format::Debezium,
        other => return Err(format!("there is no format `{other}` here").into()),
    };
    Ok(route)
}
