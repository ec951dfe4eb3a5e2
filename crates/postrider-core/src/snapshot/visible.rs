//! Which transactions a snapshot sees.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind};

/// The transactions that were finished at one moment, as `pg_current_snapshot()` prints them:
/// `xmin:xmax:xip,…`.
///
/// ```
/// use postrider_core::snapshot::Snapshot;
/// let snapshot: Snapshot = "10:20:10,14".parse()?;
/// assert!(snapshot.sees(9) && snapshot.sees(13) && !snapshot.sees(14) && !snapshot.sees(20));
/// assert_eq!(snapshot.to_string(), "10:20:10,14");
/// # Ok::<(), postrider_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    xmin: u64,
    xmax: u64,
    /// Ascending, each once, all of them from `xmin` and below `xmax`.
    xip: Box<[u64]>,
}

impl Snapshot {
    /// A snapshot from its three parts.
    ///
    /// # Errors
    /// `Invalid` unless `xmin <= xmax` and the running transactions are ascending, each named once,
    /// and lie from `xmin` to below `xmax`.
    pub fn new(xmin: u64, xmax: u64, xip: Vec<u64>) -> Result<Snapshot, Error> {
        let ascending = xip.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = xip.first().is_none_or(|first| *first >= xmin)
            && xip.last().is_none_or(|last| *last < xmax);
        if xmin > xmax || !ascending || !inside {
            return Err(refused("its numbers contradict each other"));
        }
        Ok(Snapshot { xmin, xmax, xip: xip.into_boxed_slice() })
    }

    /// The snapshot of a server that has given every number below `xmax`, with these of them running.
    /// They need not be in order.
    pub fn with_running(xmax: u64, running: impl IntoIterator<Item = u64>) -> Snapshot {
        let mut xip: Vec<u64> = running.into_iter().filter(|xid| *xid < xmax).collect();
        xip.sort_unstable();
        xip.dedup();
        let xmin = xip.first().copied().unwrap_or(xmax);
        Snapshot { xmin, xmax, xip: xip.into_boxed_slice() }
    }

    /// Everything below it was finished.
    pub fn xmin(&self) -> u64 {
        self.xmin
    }

    /// One past the last transaction that was finished. Nothing from it on was.
    pub fn xmax(&self) -> u64 {
        self.xmax
    }

    /// The transactions below `xmax` that were running, ascending.
    pub fn xip(&self) -> &[u64] {
        &self.xip
    }

    /// Whether a transaction was finished: what it wrote is seen if it committed, and never will be
    /// if it did not.
    pub fn sees(&self, xid: u64) -> bool {
        xid < self.xmin || (xid < self.xmax && self.xip.binary_search(&xid).is_err())
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin, self.xmax)?;
        for (index, xid) in self.xip.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{xid}")?;
        }
        Ok(())
    }
}

impl FromStr for Snapshot {
    type Err = Error;

    fn from_str(text: &str) -> Result<Snapshot, Error> {
        let mut parts = text.splitn(3, ':');
        let xmin = number(parts.next())?;
        let xmax = number(parts.next())?;
        let running = parts.next().ok_or_else(|| refused("it has fewer than three parts"))?;
        let xip = match running {
            "" => Vec::new(),
            listed => listed.split(',').map(|xid| number(Some(xid))).collect::<Result<_, _>>()?,
        };
        Snapshot::new(xmin, xmax, xip)
    }
}

/// Digits only: `parse` alone would take a sign.
fn number(text: Option<&str>) -> Result<u64, Error> {
    let text = text.unwrap_or_default();
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refused("a number has something else in it than digits"));
    }
    text.parse().map_err(|_| refused("a number is missing or too large"))
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::Invalid, "read snapshot").message(format!("not a snapshot: {why}"))
}
