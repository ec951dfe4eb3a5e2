//! R004: nobody claims exactly-once delivery, since nobody can keep it. A sentence that denies it
//! (with `never` or `not`) may use the words.
//!
//! Sentences run over lines, so the words are read across line ends and comment marks.

use super::Finding;
use crate::tree::File;

const RULE: &str = "promise";
const CLAIM: [&str; 3] = ["exactly", "once", "delivery"];
const DENIALS: [&str; 2] = ["never", "not"];
const PROSE: [&str; 7] = [".rs", ".md", ".toml", ".sql", ".sh", ".py", ".txt"];

struct Word {
    /// Lower case, without punctuation around it.
    text: String,
    /// Index of the line, from 0.
    line: usize,
    /// The sentence it stands in, counted over the file.
    sentence: usize,
}

pub(super) fn examine(file: &File) -> Vec<Finding> {
    // This file must spell out what it forbids.
    let own = file.path == "xtask/src/tidy/phrases.rs";
    if own || !PROSE.iter().any(|ending| file.path.ends_with(ending)) {
        return Vec::new();
    }
    let words = words(&file.text);
    words
        .windows(CLAIM.len())
        .filter(|run| run.iter().zip(CLAIM).all(|(word, claim)| word.text == claim))
        .filter(|run| {
            !words.iter().any(|word| {
                word.sentence == run[0].sentence && DENIALS.contains(&word.text.as_str())
            })
        })
        .map(|run| {
            let message = "claims what cannot be kept; say at-least-once delivery, at-most-once effect, or deny it with `never` or `not`";
            Finding::at(file, run[0].line, RULE, message)
        })
        .collect()
}

fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut sentence = 0;
    for (line, content) in text.lines().enumerate() {
        // An empty line, or one of comment marks only, ends a paragraph.
        if !content.contains(char::is_alphanumeric) {
            sentence += 1;
        }
        for piece in content.split_whitespace() {
            for part in piece.split(['-', '/', '_']) {
                let bare = part.trim_matches(|c: char| !c.is_alphanumeric());
                if !bare.is_empty() {
                    words.push(Word { text: bare.to_lowercase(), line, sentence });
                }
            }
            let end = piece.trim_end_matches(['"', '\'', '`', ')', '*']);
            if end.ends_with(['.', '!', '?', ';']) || end == "|" {
                sentence += 1;
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        examine(&File::new("docs/guide.md", text)).len()
    }

    /// R004: the promise is worded as what can be kept, in code and docs.
    #[test]
    fn a_claim_is_flagged_even_across_lines() {
        assert_eq!(found("Postrider gives exactly-once delivery."), 1);
        assert_eq!(found("/// It is not slow. It has Exactly-once\n/// delivery to all.\n"), 1);
        assert_eq!(found("not this\n\nexactly once delivery"), 1);
    }

    #[test]
    fn a_denial_is_allowed() {
        assert_eq!(found("We never say \"exactly-once delivery\"."), 0);
        assert_eq!(found("Exactly-once delivery is\nnot what anyone can keep."), 0);
        assert_eq!(found("delivery exactly once in a while"), 0);
    }
}
