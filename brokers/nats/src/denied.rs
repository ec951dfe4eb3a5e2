//! What the server does not let this user do. It says so by the way, and answers nothing to what was sent.
//!
//! Invariant: bounded, whatever subjects the events make.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

/// Subjects that are remembered. When there are more, all are forgotten: the server says it again for each message.
const SUBJECTS_MAX: usize = 1_024;

/// What a server says before the subject, in quotes.
const PUBLISHING: &str = "permissions violation for publish to \"";
const LISTENING: &str = "permissions violation for subscription to \"";

/// Where answers come to.
const INBOX: &str = "_INBOX.";

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Denied {
    publishing: BTreeMap<String, Instant>,
    /// What was published to without a word of the server's.
    passed: BTreeSet<String>,
    deaf: bool,
}

impl Denied {
    /// Notes what the server said; whether it was about something that this user may not do.
    pub(crate) fn note(&mut self, said: &str, now: Instant) -> bool {
        if let Some(subject) = subject_behind(PUBLISHING, said) {
            if self.publishing.len() >= SUBJECTS_MAX && !self.publishing.contains_key(subject) {
                self.publishing.clear();
            }
            self.publishing.insert(subject.to_owned(), now);
            self.passed.remove(subject);
            return true;
        }
        let listening = subject_behind(LISTENING, said);
        self.deaf |= listening.is_some_and(|subject| subject.starts_with(INBOX));
        listening.is_some()
    }

    /// Whether this was said of a subject since then.
    pub(crate) fn is_refused(&self, subject: &str, since: Instant) -> bool {
        self.publishing.get(subject).is_some_and(|at| *at >= since)
    }

    /// Notes that the server let a message to a subject pass.
    pub(crate) fn pass(&mut self, subject: &str) {
        if !self.is_passed(subject) {
            if self.passed.len() >= SUBJECTS_MAX {
                self.passed.clear();
            }
            self.passed.insert(subject.to_owned());
        }
    }

    /// Whether it did, and has not refused one since.
    pub(crate) fn is_passed(&self, subject: &str) -> bool {
        self.passed.contains(subject)
    }

    /// Whether answers cannot be heard.
    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf
    }
}

fn subject_behind<'a>(words: &str, said: &'a str) -> Option<&'a str> {
    // Servers differ in capital letters; a subject keeps its own. Lower case of ASCII keeps its places.
    let at = said.to_ascii_lowercase().find(words)? + words.len();
    said[at..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_what_it_denies() {
        let (mut denied, now) = (Denied::default(), Instant::now());
        assert!(denied.note("nats: Permissions Violation for Publish to \"orders.New\"", now));
        assert!(denied.is_refused("orders.New", now) && !denied.is_refused("orders.new", now));
        assert!(!denied.is_refused("orders.New", now + std::time::Duration::from_millis(1)));
        assert!(denied.note("nats: Permissions Violation for Subscription to \"orders\"", now));
        assert!(!denied.is_deaf(), "answers are heard");
        assert!(
            denied
                .note("Permissions Violation for Subscription to \"_INBOX.a.*\" using queue", now)
        );
        assert!(denied.is_deaf());
        assert!(!denied.note("nats: Maximum Connections Exceeded", now));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut denied, now) = (Denied::default(), Instant::now());
        for number in 0..3 * SUBJECTS_MAX {
            denied.pass(&format!("s.{number}"));
            assert!(
                denied.passed.len() <= SUBJECTS_MAX && denied.is_passed(&format!("s.{number}"))
            );
            denied.note(&format!("Permissions Violation for Publish to \"s.{number}\""), now);
            assert!(!denied.is_passed(&format!("s.{number}")), "it is refused since");
            assert!(denied.publishing.len() <= SUBJECTS_MAX);
            assert!(denied.is_refused(&format!("s.{number}"), now));
        }
    }
}
