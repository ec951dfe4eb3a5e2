//! Partitions in which the library goes on somewhere else than behind what it read: the servers had let that place go. It says
//! so in its log, and nowhere else.
//!
//! Invariant (INV-1): what is let go under a member that lags behind is told of, as it is told to one that comes later.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::holdings::Place;

/// How the library's line stands: `orders [0]: offset reset (at offset 7 (leader epoch 0), broker 1) to …`.
const SAID: &str = "]: offset reset (at offset ";

/// Partitions that are remembered until somebody looks: more than a member has.
const PLACES_MAX: usize = 4_096;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Resets(Mutex<Vec<(Place, i64)>>);

impl Resets {
    /// The library says something. Its own threads do.
    pub(crate) fn hear(&self, said: &str) {
        let Some(reset) = read(said) else { return };
        let mut known = self.lock();
        if known.len() < PLACES_MAX {
            known.push(reset);
        }
    }

    /// These partitions were to be read on at these offsets, and are read somewhere else.
    pub(crate) fn take(&self) -> Vec<(Place, i64)> {
        std::mem::take(&mut *self.lock())
    }

    /// Whoever was to be told of these could not be, and asks again.
    pub(crate) fn put_back(&self, resets: impl IntoIterator<Item = (Place, i64)>) {
        self.lock().extend(resets);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Place, i64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(said: &str) -> Option<(Place, i64)> {
    let (place, rest) = said.split_once(SAID)?;
    let (before, partition) = place.rsplit_once(" [")?;
    // Behind the name of the thread.
    let topic = before.rsplit(' ').next()?;
    let digits = rest.split(|it: char| !it.is_ascii_digit()).next()?;
    Some(((topic.into(), partition.parse().ok()?), digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_is_read() {
        let resets = Resets::default();
        for said in [
            "[thrd:main]: shop.order [12]: offset reset (at offset 70 (leader epoch 3), broker 1) to cached BEGINNING \
             offset offset 0 (leader epoch -1): fetch failed due to requested offset not available on the broker: \
             Broker: Offset out of range",
            "a [0]: offset reset (at offset 7, broker 1) to offset BEGINNING: x",
            "a [0]: offset reset (at offset INVALID, broker -1) to offset BEGINNING: x",
            "a [0]: offset commit",
        ] {
            resets.hear(said);
        }
        assert_eq!(resets.take(), [(("shop.order".into(), 12), 70), (("a".into(), 0), 7)]);
        assert_eq!(resets.take(), []);
    }
}
