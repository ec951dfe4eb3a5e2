//! Patterns of routes, which can be compared: does one take everything that another takes?

use crate::field::Scalar;
use crate::key::{Json, Key, Leaf};
use crate::node::Node;
use crate::reading::Complaint;
use crate::scalar::{text_fault, unreadable};

/// A pattern of a route: text with `*` for any run of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The text, as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether everything that the other takes is taken by this one, so far as can be seen: a star
    /// of the other can only be met by a star of this one.
    pub(crate) fn covers(&self, other: &Pattern) -> bool {
        postrider_core::Glob::new(&*self.0).matches(&other.0)
    }

    /// Whether it takes every text.
    pub(crate) fn is_any(&self) -> bool {
        self.0.chars().all(|c| c == '*')
    }
}

impl Scalar for Pattern {
    const LEAF: Leaf = Leaf {
        word: "pattern",
        expected: "a pattern in quotes, like \"order.*\"",
        example: "order.*",
        json: Json::Text("^[^\\x00-\\x1f]{1,255}$"),
        secret: false,
    };

    fn parse(node: &Node, key: &Key) -> Option<Result<Pattern, Complaint>> {
        let text = node.text()?;
        Some(match text_fault(text) {
            None => Ok(Pattern(text.to_owned())),
            Some(why) => Err(unreadable(key, why)),
        })
    }

    fn shown(&self) -> String {
        self.0.clone()
    }

    fn placeholder() -> Pattern {
        Pattern(String::new())
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Glob;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What covers another takes every text that the other takes.
        #[test]
        fn covering_is_never_claimed_wrongly(
            one in "[ab*]{1,5}", other in "[ab*]{1,5}", text in "[ab]{0,8}",
        ) {
            let covers = Pattern(one.clone()).covers(&Pattern(other.clone()));
            if covers && Glob::new(other).matches(&text) {
                prop_assert!(Glob::new(one).matches(&text));
            }
        }
    }

    #[test]
    fn covering_is_seen_where_it_is_plain() {
        let covers = |one: &str, other: &str| Pattern(one.into()).covers(&Pattern(other.into()));
        assert!(covers("order.*", "order.placed") && covers("*", "a*b") && covers("a*", "ab*"));
        assert!(!covers("order.placed", "order.*") && !covers("ab*", "a*"));
        assert!(Pattern("**".into()).is_any() && !Pattern("*a".into()).is_any());
    }
}
