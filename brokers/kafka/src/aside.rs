//! Records that were put aside as dead letters while one before them was not settled: written down beside the offset that is
//! committed, since the group would be given them again, behind those that came after them.
//!
//! Invariants: what is passed over is the very record that was put aside (INV-1), by its place and its event, since a
//! place may become another record's; and an operator who sets the group's place by his own tools gets everything again.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use postrider_core::KeyHash;

use crate::holdings::Place;
use crate::notice::Notice;
use crate::reader::Member;
use crate::record::Record;

/// How the text begins that stands beside an offset. Others may write something else there.
const PREFIX: &str = "postrider dead";

/// How the text begins where there are none.
const OURS: &str = "postrider";

/// What stands before the name of who acts on the records.
const BY: &str = " by=";

/// What is to stand beside an offset, with who has acted on what stands before it: programs from before read it as if he were not
/// named.
pub(crate) fn signed(aside: &str, handler: Option<&str>) -> String {
    match handler {
        Some(handler) if aside.is_empty() => format!("{OURS}{BY}{handler}"),
        Some(handler) => format!("{aside}{BY}{handler}"),
        None => aside.to_owned(),
    }
}

/// Who has acted on what stands before an offset, as the text beside it says.
pub(crate) fn signer(text: &str) -> Option<&str> {
    let (_, handler) = text.strip_prefix(OURS)?.rsplit_once(BY)?;
    Some(handler)
}

/// Records that are written down. Servers take 4,096 bytes (`offset.metadata.max.bytes`), of which each needs up to 37;
/// what there is no room for comes again.
const ASIDE_MAX: usize = 100;

impl Member {
    /// Who acts on what is received, as his inbox knows him.
    pub(crate) fn handler(&self) -> Option<&str> {
        self.handler.as_deref()
    }

    /// A partition is ours, with this beside its offset: says so where another handler wrote that, and what was put aside.
    pub(crate) fn greet(&self, (topic, partition): &Place, beside: &str) -> Aside {
        let others = self.handler().zip(signer(beside)).filter(|(now, before)| now != before);
        if let Some((now, before)) = others {
            let (topic, partition) = (topic.to_string(), *partition);
            let (before, now) = (before.to_owned(), now.to_owned());
            self.notices.tell(&Notice::OtherHandler { topic, partition, before, now });
        }
        Aside::read(beside)
    }
}

/// The places of records that were put aside, each with what tells it from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aside(BTreeMap<i64, u64>);

impl Aside {
    /// Reads what stands beside an offset: nothing, where somebody else wrote it.
    pub(crate) fn read(text: &str) -> Aside {
        let listed = text.strip_prefix(PREFIX).unwrap_or_default().split_ascii_whitespace();
        let place = |text: &str| {
            let (offset, mark) = text.split_once(':')?;
            Some((offset.parse().ok()?, u64::from_str_radix(mark, 16).ok()?))
        };
        Aside(listed.take(ASIDE_MAX).filter_map(place).collect())
    }

    /// What is to stand beside an offset.
    pub(crate) fn written(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        self.0.iter().take(ASIDE_MAX).fold(PREFIX.to_owned(), |mut text, (offset, mark)| {
            let _ = write!(text, " {offset}:{mark:016x}");
            text
        })
    }

    /// One more. What is no event cannot be told from another record, and is put aside once more.
    pub(crate) fn add(&mut self, record: &Record) {
        if let Some(mark) = mark(record) {
            self.0.insert(record.offset, mark);
        }
    }

    /// Whether a record that was read is one of these.
    pub(crate) fn has(&self, record: &Record) -> bool {
        self.0.get(&record.offset).is_some_and(|known| mark(record) == Some(*known))
    }
}

fn mark(record: &Record) -> Option<u64> {
    let event = record.event.as_ref().ok()?;
    Some(KeyHash::of(&format!("{} {}", event.id, event.source)).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Event, EventId, Fault, Marks};
    use std::sync::Arc;

    fn record(offset: i64, id: u128) -> Record {
        let event = Event::new(EventId::from_u128(id), "order", "42", "order.placed");
        Record {
            offset,
            event: Ok(Arc::new(event)),
            marks: Marks::default(),
            key: None,
            value: None,
            is_cut: false,
            headers: None,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut aside = Aside::default();
        assert_eq!(aside.written(), "");
        aside.add(&record(i64::MAX, 1));
        aside.add(&record(7, 2));
        let read = Aside::read(&aside.written());
        assert_eq!(read, aside);
        assert!(read.has(&record(7, 2)));
        assert!(!read.has(&record(7, 1)), "another record stands there now");
        assert!(!read.has(&record(8, 2)), "the same event at another place was sent again");
    }

    /// What is no event has nothing to be known by.
    #[test]
    fn what_is_no_event_is_not_passed_over() {
        let mut poison = record(7, 1);
        poison.event = Err(Fault::new(postrider_core::ErrorKind::Invalid, "no event"));
        let mut aside = Aside::default();
        aside.add(&poison);
        assert!(!aside.has(&poison));
    }

    #[test]
    fn it_fits_beside_an_offset() {
        let mut aside = Aside::default();
        (0..200).for_each(|n| aside.add(&record(i64::MAX - n, 1)));
        let text = aside.written();
        let text = signed(&text, Some(&"h".repeat(128)));
        assert!(text.len() < 4_096, "{}", text.len());
        assert_eq!(Aside::read(&text).0.len(), ASIDE_MAX);
    }

    /// Neither hides the other; and who is not named is nobody.
    #[test]
    fn who_has_acted_stands_beside() {
        let mut aside = Aside::default();
        assert_eq!(signer(&signed(&aside.written(), Some("billing"))), Some("billing"));
        aside.add(&record(7, 1));
        let text = signed(&aside.written(), Some("billing"));
        assert_eq!((Aside::read(&text), signer(&text)), (aside.clone(), Some("billing")));
        for text in [&*aside.written(), "", "theirs by=billing", &*signed(&aside.written(), None)] {
            assert_eq!(signer(text), None, "{text}");
        }
    }

    #[test]
    fn what_others_wrote_is_nothing() {
        for text in ["", "7:0000000000000001", "postrider dead x 7 7:g :1", "\u{fc}"] {
            assert_eq!(Aside::read(text), Aside::default(), "{text}");
        }
    }
}
