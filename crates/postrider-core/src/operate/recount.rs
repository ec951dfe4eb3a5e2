//! What a recount comes to, and which events a difference of two sums means.

use std::collections::{HashMap, HashSet};

use super::Difference;

/// What a recount of a destination came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recounted {
    /// The buckets that differ.
    pub differences: Vec<Difference>,
    /// Events that were looked at and that the destination has not passed: they are on their way, and are
    /// judged when it has. There may be more behind them.
    pub not_passed: u64,
    /// Events of a bucket that the kept history begins in. Its log counts what is gone, too, so of these
    /// nothing can be said.
    pub at_beginning: u64,
}

/// Of so many events any three are tried: half a million looks.
const THREES_MAX: usize = 1_024;

/// So many digests around those that were found tell whether ids are made by counting.
const SAMPLE: usize = 256;

/// Which events of a bucket its log has missed, by how many it is short of, and by how much the sum of their
/// digests. `rows` are the number and the digest of each event that was passed, by number.
///
/// One, two, or three are found wherever they are, if nothing else of the bucket has their sum; of more,
/// neighbours, as a cursor leaps over them. `None` where nothing like that fits, and where something else
/// may be meant: an id occurs twice, or ids are made by counting, so that sums of different ones are the same.
///
/// ```
/// use postrider_core::operate::missing;
/// let rows = [(7, 100), (9, 20), (12, 3), (15, 4_000), (16, 17)];
/// assert_eq!(missing(&rows, 2, 23), Some(vec![9, 12]));
/// assert_eq!(missing(&rows, 2, 104), None);
/// let rows = [(7, 1), (9, 2), (12, 3), (15, 4)];
/// assert_eq!(missing(&rows, 2, 5), None, "1 + 4, or 2 + 3");
/// ```
#[must_use]
pub fn missing(rows: &[(u64, u64)], count: u64, sum: u64) -> Option<Vec<u64>> {
    let count = usize::try_from(count).ok().filter(|count| (1..=rows.len()).contains(count))?;
    let places: HashMap<u64, usize> =
        rows.iter().enumerate().map(|(place, row)| (row.1, place)).collect();
    if places.len() < rows.len() {
        return None;
    }
    let found = match count {
        _ if count == rows.len() => neighbours(rows, count, sum)?,
        1 => vec![*places.get(&sum)?],
        2 => {
            let firsts = (0..rows.len()).map(|first| vec![first]);
            only(firsts.filter_map(|chosen| completed(rows, &places, chosen, sum)))?
        }
        3 if rows.len() <= THREES_MAX => {
            let pairs = |first: usize| (first + 1..rows.len()).map(move |next| vec![first, next]);
            let pairs = (0..rows.len()).flat_map(pairs);
            only(pairs.filter_map(|chosen| completed(rows, &places, chosen, sum)))?
        }
        _ => {
            let found = neighbours(rows, count, sum)?;
            let from = found[0].saturating_sub(SAMPLE / 2);
            let around = &rows[from..rows.len().min(from + SAMPLE)];
            are_scattered(around).then_some(found)?
        }
    };
    Some(found.into_iter().map(|place| rows[place].0).collect())
}

/// What comes, if it is alone.
fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    let one = found.next()?;
    found.next().is_none().then_some(one)
}

/// Whether no two of them have the sum of another two, as numbers have that were counted.
fn are_scattered(rows: &[(u64, u64)]) -> bool {
    let mut sums = HashSet::with_capacity(rows.len() * rows.len() / 2);
    let mut pairs = rows
        .iter()
        .enumerate()
        .flat_map(|(place, one)| rows[place + 1..].iter().map(|other| one.1.wrapping_add(other.1)));
    pairs.all(|sum| sums.insert(sum))
}

/// The only ones in a row, so many, that come to the sum.
fn neighbours(rows: &[(u64, u64)], count: usize, sum: u64) -> Option<Vec<usize>> {
    let add = |sum: u64, row: &(u64, u64)| sum.wrapping_add(row.1);
    let mut came_to = rows[..count].iter().fold(0, add);
    let firsts = (0..=rows.len() - count).filter(|first| {
        let fits = came_to == sum;
        let next = rows.get(first + count).map_or(0, |row| row.1);
        came_to = came_to.wrapping_sub(rows[*first].1).wrapping_add(next);
        fits
    });
    only(firsts).map(|first| (first..first + count).collect())
}

/// Some that were chosen, with one behind them that makes up the sum.
fn completed(
    rows: &[(u64, u64)],
    places: &HashMap<u64, usize>,
    mut chosen: Vec<usize>,
    sum: u64,
) -> Option<Vec<usize>> {
    let rest = chosen.iter().fold(sum, |rest, place| rest.wrapping_sub(rows[*place].1));
    let last = *places.get(&rest)?;
    if chosen.last().is_none_or(|before| last <= *before) {
        return None;
    }
    chosen.push(last);
    Some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventId;
    use proptest::prelude::*;

    /// Random ids, each time the same.
    fn rows(count: u64) -> Vec<(u64, u64)> {
        let mut state = 7u128;
        let mut digest = || {
            state = state.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(1);
            EventId::from_u128(state ^ (state >> 64)).digest()
        };
        (1..=count).map(|n| (n * 3, digest())).collect()
    }

    /// Ids that somebody counted.
    fn counted(count: u64) -> Vec<(u64, u64)> {
        (1..=count).map(|n| (n, EventId::from_u128(u128::from(n)).digest())).collect()
    }

    fn sum(rows: &[(u64, u64)]) -> u64 {
        rows.iter().fold(0, |sum, row| sum.wrapping_add(row.1))
    }

    #[test]
    fn an_id_that_occurs_twice_leaves_it_open() {
        let mut rows = rows(4);
        rows[3].1 = rows[0].1;
        assert_eq!(missing(&rows, 1, rows[1].1), None);
        assert_eq!(missing(&rows[..3], 1, rows[1].1), Some(vec![rows[1].0]));
    }

    #[test]
    fn ids_that_were_counted_leave_it_open() {
        let rows = counted(100);
        assert_eq!(missing(&rows, 1, rows[7].1), Some(vec![8]), "one is one all the same");
        assert_eq!(missing(&rows, 100, sum(&rows)), Some((1..=100).collect()), "and all are all");
        for count in [2, 3, 4, 50] {
            let lost = &rows[20..20 + count];
            assert_eq!(missing(&rows, count as u64, sum(lost)), None, "{count}");
        }
    }

    #[test]
    fn nothing_and_more_than_there_is_are_not_missing() {
        assert_eq!(missing(&rows(4), 0, 0), None);
        assert_eq!(missing(&rows(4), 5, 0), None);
        assert_eq!(missing(&[], 1, 0), None);
    }

    proptest! {
        /// Whatever a cursor leaps over is found, and nothing else.
        #[test]
        fn neighbours_are_found(all in 1u64..300, from in 0usize..300, count in 1usize..300) {
            let rows = rows(all);
            let from = from % rows.len();
            let lost = &rows[from..rows.len().min(from + count)];
            let found = missing(&rows, lost.len() as u64, sum(lost));
            prop_assert_eq!(found, Some(lost.iter().map(|row| row.0).collect()));
        }

        /// Up to three are found wherever they are.
        #[test]
        fn few_are_found_anywhere(
            lost in proptest::collection::btree_set(0usize..200, 1..=3),
        ) {
            let rows = rows(200);
            let lost: Vec<(u64, u64)> = lost.into_iter().map(|place| rows[place]).collect();
            let found = missing(&rows, lost.len() as u64, sum(&lost));
            prop_assert_eq!(found, Some(lost.iter().map(|row| row.0).collect()));
        }

        /// A log that says something else than the outbox is not explained by events that are there.
        #[test]
        fn what_fits_nothing_is_not_explained(count in 1u64..20, off in 1u64..1_000_000) {
            let rows = rows(200);
            let place = usize::try_from(count).unwrap();
            prop_assert_eq!(missing(&rows, count, sum(&rows[..place]).wrapping_add(off)), None);
        }
    }
}
