//! Groups and identities of messages in queues and topics of the kind FIFO.
//!
//! Invariant: equal keys have equal groups, and no key has a group that the service refuses.

use std::fmt::Write as _;

use postrider_core::{Event, EventId, Outgoing};
use ring::digest::{SHA256, digest};

/// Characters of a group, and of an identity.
const CHARS_MAX: usize = 128;
/// What the name of every such queue and topic ends with.
const SUFFIX: &str = ".fifo";

/// What is said of another kind where FIFO is asked for.
pub(crate) const NOT_FIFO: &str = "`fifo` is set, and it does not end with .fifo";

/// Whether a queue or a topic, by its name, address, or ARN, is of the kind FIFO.
pub(crate) fn is_fifo(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// The group of an event: its ordering key.
pub(crate) fn group(event: &Event) -> String {
    taken(event.key())
}

/// What absorbs copies of an event: its id. What is sent again on purpose is no copy: within the five minutes the
/// service would drop it in silence, and an operator would wait for it in vain.
pub(crate) fn identity(outgoing: &Outgoing) -> String {
    let id = &outgoing.event.id;
    match outgoing.marks.late || outgoing.marks.replay {
        true => format!("{id}/{}", EventId::mint()),
        false => id.to_string(),
    }
}

/// The text itself, or its hash where the service would not take it.
pub(crate) fn taken(text: String) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic();
    if (1..=CHARS_MAX).contains(&text.len()) && text.bytes().all(plain) {
        return text;
    }
    let mut hashed = "sha256-".to_owned();
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        // Writing to a String cannot fail.
        _ = write!(hashed, "{byte:02x}");
    }
    hashed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_the_service_refuses_is_hashed() {
        for plain in ["order/42", "a", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", &"k".repeat(128)] {
            assert_eq!(taken(plain.to_owned()), plain);
        }
        let mut hashes = std::collections::BTreeSet::new();
        for odd in ["", "order 42", "order/ü", "a\n", &"k".repeat(129), &"k".repeat(130)] {
            let hashed = taken(odd.to_owned());
            assert!(hashed.len() <= CHARS_MAX && hashed.is_ascii(), "{hashed}");
            assert_eq!(hashed, taken(odd.to_owned()));
            hashes.insert(hashed);
        }
        assert_eq!(hashes.len(), 6);
    }

    #[test]
    fn what_is_sent_again_on_purpose_is_no_copy() {
        let event = Event::new(EventId::mint(), "order", "42", "order.placed");
        let mut sent = Outgoing::new(std::sync::Arc::new(event), "orders.fifo");
        assert_eq!(identity(&sent), sent.event.id.to_string());
        assert_eq!(identity(&sent), identity(&sent));
        for (late, replay) in [(true, false), (false, true)] {
            sent.marks = postrider_core::Marks { late, replay };
            let again = [identity(&sent), identity(&sent)];
            assert!(again[0] != again[1] && again.iter().all(|id| *id == taken(id.clone())));
        }
    }

    #[test]
    fn a_kind_is_known_by_its_name() {
        assert!(is_fifo("orders.fifo") && is_fifo("https://sqs.x/1/orders.fifo"));
        assert!(!is_fifo("orders") && !is_fifo("fifo"));
    }
}
