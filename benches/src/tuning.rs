//! What a benchmark with a broker is run with instead of the defaults, as `--tune partitions=64,memory=32`.
//!
//! Invariant: without the option everything is as a user has it who sets nothing.

use std::time::Duration;

#[cfg(feature = "brokers")]
use postrider_relay::Settings;

use crate::Result;

/// Partitions of a topic: as many as a small cluster's topics have, and more than this machine's processors.
#[cfg(feature = "brokers")]
const PARTITIONS: u32 = 8;

/// What is not named is the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// As it was given, for a child.
    pub(crate) text: String,
    partitions: Option<u32>,
    pub(crate) batches: Option<u32>,
    pub(crate) linger: Option<Duration>,
    memory_mib: Option<u32>,
    rows: Option<u32>,
}

impl Tuning {
    /// Reads `name=number` with commas between; an empty text changes nothing.
    pub(crate) fn parse(text: &str) -> Result<Tuning> {
        let mut tuning = Tuning { text: text.to_owned(), ..Tuning::default() };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let wrong = || {
                format!(
                    "`{part}`: partitions, batches, linger, memory, or rows, and `=` and a number"
                )
            };
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let value: u32 = value.parse().map_err(|_| wrong())?;
            let bounded = |max: u32| match value {
                1.. if value <= max => Ok(Some(value)),
                _ => Err(format!("`{part}`: a number from 1 to {max}")),
            };
            match name {
                "partitions" => tuning.partitions = bounded(1_000)?,
                "batches" => tuning.batches = bounded(256)?,
                "linger" => {
                    tuning.linger = bounded(500)?.map(|ms| Duration::from_millis(ms.into()));
                }
                "memory" => tuning.memory_mib = bounded(1_024)?,
                "rows" => tuning.rows = bounded(10_000)?,
                _ => return Err(wrong().into()),
            }
        }
        Ok(tuning)
    }

    /// How many partitions a topic of Kafka has.
    #[cfg(feature = "brokers")]
    pub(crate) fn partitions(&self) -> u32 {
        self.partitions.unwrap_or(PARTITIONS)
    }

    /// The relay's settings.
    #[cfg(feature = "brokers")]
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        let window = &mut settings.window;
        if let Some(mib) = self.memory_mib {
            window.memory_bytes_max = u64::from(mib) * 1024 * 1024;
            window.total_bytes_max = window.total_bytes_max.max(window.memory_bytes_max);
        }
        if let Some(rows) = self.rows {
            window.rows_max = rows;
        }
        settings
    }
}

#[cfg(all(test, feature = "brokers"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_changed_and_nothing_else() {
        assert_eq!(Tuning::parse("").unwrap().settings().window, Settings::default().window);
        assert_eq!(Tuning::default().partitions(), 8);
        let tuning = Tuning::parse("partitions=64,memory=32,linger=10").unwrap();
        assert_eq!(tuning.partitions(), 64);
        assert_eq!(tuning.settings().window.memory_bytes_max, 32 * 1024 * 1024);
        assert_eq!(tuning.linger, Some(Duration::from_millis(10)));
        for bad in ["partitions", "partitions=0", "partitions=many", "speed=9", "batches=300"] {
            assert!(Tuning::parse(bad).is_err(), "{bad}");
        }
    }
}
