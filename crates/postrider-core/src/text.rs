//! A short text that needs no memory of its own.
//!
//! A relay reads hundreds of thousands of events a second, and each names its aggregate, what happened, and
//! its media type. Texts of up to 23 bytes stand in the value itself: nothing is allocated by the
//! thread that reads a row, and nothing freed by the one that is done with the event.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smol_str::SmolStr;

/// A text that does not change: up to 23 bytes of it stand in the value itself, a longer one is shared by its copies.
///
/// It is a `str` wherever one is wanted.
///
/// ```
/// use postrider_core::Text;
/// let kind = Text::from("order.placed");
/// assert_eq!(kind, "order.placed");
/// assert!(kind.starts_with("order."));
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(SmolStr);

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Equal texts have equal hashes and the same order, whichever type they are of.
impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        String::deserialize(deserializer).map(Text::from)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(SmolStr::new(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(SmolStr::from(text))
    }
}

impl From<Text> for String {
    fn from(text: Text) -> String {
        text.as_str().to_owned()
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Text;

    /// Whatever a text holds, and however long it is, it is that text, and found by it.
    #[test]
    fn a_text_is_what_it_was_made_of() {
        for length in [0, 1, 22, 23, 24, 100] {
            for letter in ["a", "ü", "\n", "\0"] {
                let given = letter.repeat(length);
                let text = Text::from(&*given);
                assert_eq!(text, *given);
                assert_eq!(Text::from(given.clone()), text);
                assert_eq!(
                    (text.to_string(), format!("{text:?}")),
                    (given.clone(), format!("{given:?}"))
                );
                let known = BTreeMap::from([(text.clone(), length)]);
                assert_eq!(known.get(&*given), Some(&length));
                let written = serde_json::to_string(&text).unwrap();
                assert_eq!(written, serde_json::to_string(&given).unwrap());
                assert_eq!(serde_json::from_str::<Text>(&written).unwrap(), text);
                assert_eq!(String::from(text), given);
            }
        }
    }
}
