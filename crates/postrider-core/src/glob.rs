//! Patterns of routes: literal text with `*` for any run of characters.

use serde::{Deserialize, Serialize};

/// A pattern in which `*` stands for any run of characters, also none. Nothing else is special.
///
/// ```
/// use postrider_core::Glob;
/// assert!(Glob::new("order.*").matches("order.placed"));
/// assert!(!Glob::new("order.*").matches("reorder.placed"));
/// assert!(Glob::any().matches(""));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Glob(String);

impl Glob {
    /// A pattern.
    pub fn new(pattern: impl Into<String>) -> Glob {
        Glob(pattern.into())
    }

    /// The pattern that matches everything.
    pub fn any() -> Glob {
        Glob("*".to_owned())
    }

    /// Whether the whole text matches. Linear in the text for each star, without recursion.
    pub fn matches(&self, text: &str) -> bool {
        if self.0 == "*" {
            return true;
        }
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else {
            return false;
        };
        let Some(mut part) = parts.next() else {
            return rest.is_empty();
        };
        // Every part but the last may match at its first occurrence; the last must end the text.
        for next in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
            part = next;
        }
        rest.ends_with(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, by recursion.
    fn matches_slowly(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => {
                (0..=text.len()).any(|skip| matches_slowly(rest, &text[skip..]))
            }
            ([p, pattern @ ..], [t, text @ ..]) if p == t => matches_slowly(pattern, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            prop_assert_eq!(
                Glob::new(pattern.clone()).matches(&text),
                matches_slowly(pattern.as_bytes(), text.as_bytes())
            );
        }
    }
}
