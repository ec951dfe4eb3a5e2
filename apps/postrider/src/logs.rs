//! Logs: what happens, a line each on standard error, for people or as JSON for machines.
//!
//! Invariant: keys, ids, topics, and answers are logged; payloads and secrets never are. The levels:
//! error, something is lost to a person (a dead letter); warn, something failed and is tried again;
//! info, something changed hands; debug, every delivery.

use std::io::IsTerminal as _;
use std::str::FromStr;
use std::sync::OnceLock;

use clap::ValueEnum;
use postrider_config::LogLevel;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::failure::Failure;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = Failure;

    fn from_str(text: &str) -> Result<LogFormat, Failure> {
        <LogFormat as ValueEnum>::from_str(text, false).map_err(|_| {
            let text = text.escape_debug();
            Failure::config(format!("the log format `{text}` is unknown; write text or json"))
        })
    }
}

/// The level, as the filter of log lines spells it.
pub(crate) const fn level(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Off => "off",
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

impl From<postrider_config::LogFormat> for LogFormat {
    fn from(format: postrider_config::LogFormat) -> LogFormat {
        match format {
            postrider_config::LogFormat::Json => LogFormat::Json,
            postrider_config::LogFormat::Text => LogFormat::Text,
        }
    }
}

/// Begins to log. `levels` is one level, or levels by module: `warn,postrider_relay=debug`.
///
/// # Errors
/// A configuration failure if the levels cannot be read. Starting twice changes nothing.
pub(crate) fn start(levels: &str, format: LogFormat) -> Result<(), Failure> {
    let levels = read(levels)?;
    let (levels, handle) = reload::Layer::new(levels);
    let registry = tracing_subscriber::registry().with(levels);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let begun = match format {
        LogFormat::Json => registry
            .with(lines.json().flatten_event(true).with_current_span(true).with_span_list(false))
            .try_init(),
        LogFormat::Text => registry
            .with(lines.with_ansi(std::io::stderr().is_terminal()).without_time())
            .try_init(),
    };
    if begun.is_ok() {
        // Nobody sets it before: the subscriber is ours.
        let _ = HANDLE.set(handle);
    }
    // Somebody else's subscriber is there, in a test that runs a command twice: it gets the lines.
    begun.or(Ok(()))
}

/// The levels that are in force, to be exchanged.
static HANDLE: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Logs at other levels from now on.
///
/// # Errors
/// A configuration failure if the levels cannot be read; the present ones stay.
pub(crate) fn change(levels: &str) -> Result<(), Failure> {
    let levels = read(levels)?;
    if let Some(handle) = HANDLE.get() {
        handle
            .reload(levels)
            .map_err(|error| Failure::plain(format!("the log levels: {error}")))?;
    }
    Ok(())
}

/// Reads levels. A word alone must be a level: the filter itself would take it for a module.
fn read(levels: &str) -> Result<Targets, Failure> {
    let refuse = |why: String| {
        Failure::config(format!("the log levels `{}`: {why}", levels.escape_debug())).advice(
            "Write error, warn, info, debug, trace, or off; or levels by module, like \
             warn,postrider_relay=debug.",
        )
    };
    let word = levels
        .split(',')
        .map(str::trim)
        .find(|part| !part.contains('=') && part.parse::<LevelFilter>().is_err());
    if let Some(word) = word {
        return Err(refuse(format!("`{}` is no level", word.escape_debug())));
    }
    let read: Targets = levels.parse().map_err(|error| refuse(format!("{error}")))?;
    let is_wanted = levels.contains(CLIENT_OF_NATS)
        || read.default_level().is_some_and(|level| level > LevelFilter::INFO);
    Ok(if is_wanted { read } else { read.with_target(CLIENT_OF_NATS, LevelFilter::OFF) })
}

/// It tells of each connection that it could not make, twice, and each second while its servers are away: hundreds of lines in ten
/// minutes, and none that is not said by our own. Who names it, or wants more than `info` of everybody, gets it.
const CLIENT_OF_NATS: &str = "async_nats";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_that_cannot_be_read_are_refused_with_what_can() {
        let text = start("loud", LogFormat::Text).unwrap_err().plain_text();
        assert!(text.contains("loud") && text.contains("warn,postrider_relay=debug"), "{text}");
        assert!("xml".parse::<LogFormat>().is_err());
    }

    /// A server that is away for ten minutes writes no hundreds of lines between ours, unless somebody wants them.
    #[test]
    fn the_client_of_nats_is_silent_unless_it_is_wanted() {
        let tells = |levels: &str| {
            let levels = read(levels).unwrap();
            assert!(levels.would_enable("postrider_relay", &tracing::Level::WARN));
            levels.would_enable("async_nats::connector", &tracing::Level::ERROR)
        };
        assert!(!tells("info") && !tells("warn,postrider_relay=debug"));
        assert!(tells("info,async_nats=info") && tells("debug") && tells("info,async_nats=error"));
    }
}
