//! Shared by the tests: events that say which they are, and reading lines back.

use std::path::Path;
use std::sync::Arc;

use postrider_core::{Event, EventId, Format, Marks, Outcome, Outgoing, Payload, cloudevents};

pub(crate) fn outgoing(number: u128, key: &str) -> Outgoing {
    Outgoing {
        event: Arc::new(Event::new(EventId::from_u128(number), "order", key, "order.placed")),
        topic: Arc::from("orders"),
        format: Format::Structured,
        layout: None,
        marks: Marks::default(),
        attempt: 1,
    }
}

/// The same event with another payload.
pub(crate) fn with_payload(outgoing: Outgoing, payload: Payload) -> Outgoing {
    let mut event = Event::clone(&outgoing.event);
    event.payload = payload;
    Outgoing { event: Arc::new(event), ..outgoing }
}

pub(crate) fn acked(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| *outcome == Outcome::Acked)
}

/// The events of whole lines; a line that is none, or a partial last one, fails the test.
pub(crate) fn read_lines(text: &[u8]) -> Vec<Arc<Event>> {
    assert!(text.is_empty() || text.ends_with(b"\n"), "the last line is whole");
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| Arc::new(cloudevents::parse(line).unwrap().0))
        .collect()
}

pub(crate) fn read_file(path: &Path) -> Vec<u128> {
    let text = std::fs::read(path).unwrap();
    read_lines(&text).iter().map(|event| event.id.as_u128()).collect()
}
