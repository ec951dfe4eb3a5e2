//! The name that was probably meant.

/// The known name with the fewest edits, if they are few for its length.
pub(crate) fn nearest<'k>(given: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    known
        .map(|name| (edits(given, name), name))
        .filter(|(edits, name)| *edits <= name.len().div_ceil(3))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// Insertions, removals, and replacements between two texts. `row[n]` is the count for the part of
/// `left` that was read and the first `n` bytes of `right`.
fn edits(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (read, a) in left.bytes().enumerate() {
        let mut next = vec![read + 1];
        for (n, b) in right.bytes().enumerate() {
            let replaced = row[n] + usize::from(a != b);
            next.push(replaced.min(row[n + 1] + 1).min(next[n] + 1));
        }
        row = next;
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let known = || ["type", "version", "aggregate", "occurred_at"].into_iter();
        for (given, meant) in [
            ("typ", Some("type")),
            ("verison", Some("version")),
            ("aggregat", Some("aggregate")),
            ("occured_at", Some("occurred_at")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known()), meant, "{given}");
        }
    }
}
