//! From when on the doctor takes something for an illness.

use std::time::Duration;

/// What an examination takes for too much. The defaults suit a database that other programs use as well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thresholds {
    /// For how long a transaction may be open: it keeps rows from being cleaned away, and numbers from being
    /// retired, while events go on flowing. Twelve times as long is critical: somebody has forgotten it. Default
    /// 5 minutes, which few reports take.
    pub transaction_open: Duration,
    /// How many dead rows a table may have, if they are more than the living. Default 100,000: some ten
    /// megabytes, which a look at the table still reads at once.
    pub dead_rows: u64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { transaction_open: Duration::from_secs(300), dead_rows: 100_000 }
    }
}
