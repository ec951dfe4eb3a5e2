//! Suggestions for mistyped words: the nearest known word, if one is near enough to be meant.

/// The known word with the least edit distance, where that is at most a third of its length plus one.
pub(crate) fn nearest<'known>(word: &str, known: &[&'known str]) -> Option<&'known str> {
    known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3 + 1)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, one row at a time.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_stranger_is_not() {
        assert_eq!(nearest("tset", &["test", "tidy"]), Some("test"));
        assert_eq!(nearest("requirement", &["requirements"]), Some("requirements"));
        assert_eq!(nearest("elephant", &["test", "tidy"]), None);
    }
}
