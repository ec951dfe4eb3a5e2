//! Which names of topics a destination takes.
//!
//! Invariant: what is called unusable here, no server of that kind takes, whatever its settings.

use serde::{Deserialize, Serialize};

/// Characters of a [`TopicRule::Name`].
const NAME_CHARS_MAX: usize = 249;
/// Bytes of a [`TopicRule::Subject`]. Longer ones are a mistake in a template.
const SUBJECT_BYTES_MAX: usize = 1_024;
/// Bytes of a [`TopicRule::Word`]: more than anybody gives a name, and far from the bound of a subject.
const WORD_BYTES_MAX: usize = 255;

/// Which names of topics a destination takes.
///
/// ```
/// use postrider_core::TopicRule;
/// assert_eq!(TopicRule::Name.unusable("shop.orders"), None);
/// assert!(TopicRule::Name.unusable("shop orders").is_some());
/// assert!(TopicRule::Subject.unusable("shop..orders").is_some());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TopicRule {
    /// Any. What is wrong with one shows when it is sent.
    #[default]
    Any,
    /// 1 to 249 letters and digits of ASCII, and `.`, `_`, `-`.
    Name,
    /// Parts with dots between, none of them empty or a wildcard, without blanks, 1,024 bytes at most.
    Subject,
    /// One part of a subject, 255 bytes at most: no topic, but a name that stands in subjects.
    Word,
}

impl TopicRule {
    /// Whether there is no rule.
    pub fn is_any(&self) -> bool {
        *self == TopicRule::Any
    }

    /// Whether headers that go there are printable ASCII alone, so that other texts are percent-encoded: where topics
    /// are subjects.
    pub(crate) fn encodes_headers(self) -> bool {
        self == TopicRule::Subject
    }

    /// What is wrong with a topic, if something is.
    pub fn unusable(&self, topic: &str) -> Option<&'static str> {
        match self {
            TopicRule::Any => None,
            TopicRule::Name => unusable_name(topic),
            TopicRule::Subject => unusable_subject(topic),
            TopicRule::Word => unusable_word(topic),
        }
    }
}

fn unusable_name(topic: &str) -> Option<&'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match topic {
        "" => Some("it is empty"),
        "." | ".." => Some("it is a place, not a name"),
        _ if topic.len() > NAME_CHARS_MAX => Some("it is longer than 249 characters"),
        _ if !topic.chars().all(plain) => Some("it has other characters than a-z A-Z 0-9 . _ -"),
        _ => None,
    }
}

fn unusable_subject(topic: &str) -> Option<&'static str> {
    match topic {
        "" => Some("it is empty"),
        _ if topic.len() > SUBJECT_BYTES_MAX => Some("it is longer than 1,024 bytes"),
        _ if topic.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            Some("it has a blank or a control character")
        }
        _ if topic.split('.').any(str::is_empty) => Some("a part between two dots is empty"),
        _ if topic.split('.').any(|token| token == "*" || token == ">") => {
            Some("wildcards are for those who listen")
        }
        _ if topic.starts_with('$') => Some("subjects that begin with `$` are the server's own"),
        _ => None,
    }
}

fn unusable_word(topic: &str) -> Option<&'static str> {
    match topic {
        _ if topic.len() > WORD_BYTES_MAX => Some("it is longer than 255 bytes"),
        _ if topic.contains('.') => Some("it is one word, without dots"),
        _ if topic.contains(['*', '>']) => Some("it is no wildcard"),
        _ => unusable_subject(topic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F22: a topic's name comes from the event's own fields, and may be anything.
    #[test]
    fn what_is_no_topic_is_refused() {
        let name = ["", ".", "..", "a b", "ä", "a/b", "a\n", &"a".repeat(250)];
        assert!(name.iter().all(|topic| TopicRule::Name.unusable(topic).is_some()));
        let subject = ["", "a b", "a..b", ".a", "a.", "a.*", "a.>", "$JS.API", "a\r\nPUB b 0"];
        assert!(subject.iter().all(|topic| TopicRule::Subject.unusable(topic).is_some()));
        assert!(TopicRule::Subject.unusable(&"a".repeat(1_025)).is_some());
        let word = ["", "a.b", "a b", "*", ">", "a*", "$JS", "a\r\nPUB b 0", &"a".repeat(256)];
        assert!(word.iter().all(|name| TopicRule::Word.unusable(name).is_some()));
        assert_eq!(TopicRule::Word.unusable("hub-1"), None);
        for topic in ["orders", "shop.orders_v2-x", &"a".repeat(249)] {
            assert_eq!(TopicRule::Name.unusable(topic), None, "{topic}");
            assert_eq!(TopicRule::Subject.unusable(topic), None, "{topic}");
        }
        assert_eq!(TopicRule::Any.unusable(""), None);
    }
}
