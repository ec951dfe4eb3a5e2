//! Any event, in every format there is.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::{
    Event, EventId, EventLimits, Format, Headers, Marks, Payload, RecordKey, Timestamp, cloudevents,
};

use crate::{binary, plain};

/// Microseconds of a year from 1 to 9999: others are no text.
const MICROS: std::ops::Range<i64> = -62_135_596_800_000_000..253_402_300_800_000_000;

/// An event made of the input is the same after it was written and read, whatever the format.
pub fn event(input: &[u8]) {
    let (event, marks) = Reader(input).event();
    let written = cloudevents::to_json(&event, marks).expect("it can be written");
    assert!(!written.contains(&b'\n'), "a line of a file is an event");
    let (mut again, marks_again) = cloudevents::parse(&written).expect("it can be read");
    if let Payload::Json(_) = event.payload {
        // Space around a document does not survive.
        assert_eq!(again.payload.as_bytes(), event.payload.as_bytes().trim_ascii());
        again.payload = event.payload.clone();
    }
    assert_eq!((again, marks_again), (event.clone(), marks));
    assert_eq!(binary::again(&event, marks), (event.clone(), marks));
    for format in [Format::Plain, Format::Debezium] {
        assert_eq!(plain::again(&event, marks, format), (event.clone(), marks), "{format}");
    }
    // Refused or not: it says so.
    if let Err(refused) = EventLimits::default().check(&event) {
        assert!(!refused.to_string().is_empty());
    }
    assert_eq!(event.key_hash(), postrider_core::KeyHash::of(&event.key()));
    assert!(RecordKey::aggregate_id().of(&event).is_some());
}

/// What is left of the input.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next byte; past the end there are zeros.
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// A length, and so many bytes or what is left.
    fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    fn time(&mut self) -> Timestamp {
        let micros = i64::from_be_bytes(self.number());
        Timestamp::from_micros(micros.clamp(MICROS.start, MICROS.end - 1))
    }

    /// An event, and how it is marked.
    pub(crate) fn event(&mut self) -> (Event, Marks) {
        let flags = self.byte();
        let is = |bit: u8| flags >> bit & 1 == 1;
        let id = EventId::from_u128(u128::from_be_bytes(self.number()));
        let (aggregate_type, aggregate_id) = (self.text(), self.text());
        let mut event = Event::new(id, &aggregate_type, &aggregate_id, &self.text());
        event.source = Arc::from(self.text());
        event.event_version = u32::from_be_bytes(self.number());
        event.occurred_at = self.time();
        event.created_at = self.time();
        let usual = event.key();
        event.key = is(0).then(|| self.text()).filter(|key| *key != usual).map(Into::into);
        event.tenant = is(1).then(|| self.text().into());
        event.encoding = is(2).then(|| self.text().into());
        if is(3) {
            event.content_type = self.text().into();
        }
        let count = self.byte() % 8;
        event.headers = (0..count).map(|_| (self.text(), self.text())).collect::<Headers>();
        let payload = Bytes::copy_from_slice(self.0);
        event.payload = match (is(4), std::str::from_utf8(&payload).map(Payload::json)) {
            (true, Ok(Ok(json))) => json,
            (_, _) if payload.is_empty() && is(5) => Payload::Erased,
            (_, _) => Payload::Bytes(payload),
        };
        (event, Marks { late: is(6), replay: is(7) })
    }
}
