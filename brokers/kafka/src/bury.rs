//! A dead letter: a copy of a record that was refused for good, with its place and the reason.
//!
//! Invariant: a record is let go only when its copy is kept, or its place where the copy is too large (INV-1).

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use postrider_core::{Error, ErrorKind, Fault, Format, Outgoing, Result, plain};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::{Header, Headers, OwnedHeaders};
use tokio::time::{Instant, timeout_at};

use crate::answer::missing;
use crate::client::{Client, Producer};
use crate::encode::{Encoded, PREFIX, encode};
use crate::flight::{Answer, Flight};
use crate::holdings::Place;
use crate::record::Record;
use crate::settings::KafkaSettings;

/// Of a reason, which may quote what it is about.
const REASON_CHARS_MAX: usize = 1_000;
/// Bytes of a key that is kept where the rest is left out.
const KEY_KEPT_MAX: usize = 4_096;
/// The header of a dead letter whose topic has no room for it.
const LEFT_OUT: (&str, &str) =
    ("postrider-dead-left-out", "headers and value: the topic of dead letters cannot take them");

/// See the module.
pub(crate) struct DeadLetter<'a> {
    /// Where it goes.
    pub(crate) topic: &'a str,
    pub(crate) group: &'a str,
    pub(crate) place: &'a Place,
    pub(crate) record: &'a Record,
    pub(crate) fault: &'a Fault,
}

impl DeadLetter<'_> {
    /// Keeps it. What the topic has no room for is told by its place, where it can be read: else it would come again
    /// without an end, and hold up its key.
    ///
    /// # Errors
    /// `Unroutable` if it was not kept, and why; `Config` if there is no client for these settings.
    pub(crate) async fn bury(&self, client: &Client, kafka: &KafkaSettings) -> Result<()> {
        let until = Instant::now() + kafka.deadline;
        let producer = timeout_at(until, client.producer()).await;
        let producer = producer.map_err(|_| self.failed("Kafka did not answer"))??;
        let record = self.record;
        let outgoing = record.event.as_ref().ok().map(|event| Outgoing {
            event: Arc::clone(event),
            topic: Arc::clone(&self.place.0),
            format: Format::Binary,
            layout: None,
            marks: record.marks,
            attempt: 1,
        });
        let mut document = Vec::new();
        let copy = match &outgoing {
            Some(outgoing) => encode(outgoing, &kafka.record_key, &mut document).ok(),
            None if record.is_cut => None,
            // What is no event is kept as it came.
            None => Some(Encoded {
                key: None,
                headers: OwnedHeaders::new(),
                value: record.value.as_deref(),
                bytes: 0,
            }),
        };
        let key = record.key.as_deref().map(Cow::Borrowed);
        let sent = match copy {
            Some(mut copy) => {
                copy.headers = self.described(with_headers_of(record, copy.headers));
                copy.key.clone_from(&key);
                keep(&producer, self.topic, copy, until).await
            }
            None => Some(Err(RDKafkaErrorCode::MessageSizeTooLarge)),
        };
        let sent = match sent {
            Some(Err(
                RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge,
            )) => {
                let (name, what) = LEFT_OUT;
                let headers = self.described(OwnedHeaders::new());
                let headers = headers.insert(Header { key: name, value: Some(what) });
                let key = key.filter(|key| key.len() <= KEY_KEPT_MAX);
                let rest = Encoded { key, headers, value: Some(&[]), bytes: 0 };
                keep(&producer, self.topic, rest, until).await
            }
            sent => sent,
        };
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(
                RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition,
            )) => Err(self.failed(&missing(self.topic).detail)),
            Some(Err(code)) => Err(self.failed(&code.to_string())),
            None => Err(self.failed("Kafka did not answer")),
        }
    }

    /// With the place and the reason.
    fn described(&self, headers: OwnedHeaders) -> OwnedHeaders {
        let reason: String = self.fault.to_string().chars().take(REASON_CHARS_MAX).collect();
        let (partition, offset) = (self.place.1.to_string(), self.record.offset.to_string());
        [
            ("postrider-dead-topic", &*self.place.0),
            ("postrider-dead-partition", &*partition),
            ("postrider-dead-offset", &*offset),
            ("postrider-dead-group", self.group),
            ("postrider-dead-reason", &*reason),
        ]
        .into_iter()
        .fold(headers, |all, (key, value)| all.insert(Header { key, value: Some(value) }))
    }

    fn failed(&self, said: &str) -> Error {
        Error::new(ErrorKind::Unroutable, "reject")
            .message(format!("the dead letter was not kept: {said}; the event comes again"))
            .context("dead_letters", self.topic)
    }
}

/// Sends a record, and waits for what becomes of it.
async fn keep(
    producer: &Producer,
    topic: &str,
    record: Encoded<'_>,
    until: Instant,
) -> Option<Answer> {
    let flight = Flight::new(1);
    producer.send(topic, None, record, flight.board(0));
    let _ = timeout_at(until, flight.landed()).await;
    flight.answers().pop().flatten()
}

/// The headers of a dead letter, and those of its record that they do not say already. Of an event, what we wrote is
/// in them; of what is none, everything stays.
fn with_headers_of(record: &Record, mut headers: OwnedHeaders) -> OwnedHeaders {
    let Some(of_record) = &record.headers else { return headers };
    let written: HashSet<String> = headers.iter().map(|header| header.key.to_owned()).collect();
    let said = |name: &str| {
        written.contains(name)
            || (record.event.is_ok()
                && [PREFIX, plain::PREFIX].iter().any(|it| name.starts_with(it)))
    };
    for header in of_record.iter().filter(|header| !said(header.key)) {
        headers = headers.insert(header);
    }
    headers
}
