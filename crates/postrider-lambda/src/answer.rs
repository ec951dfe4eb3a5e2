//! Answers of functions, in the JSON that the service reads.
//!
//! Invariant: what is not named as failed is settled, or pending in the index and left to the relay that holds its
//! partition. One that has just died holds it until its lease ends; then another relay, or a sweep, finds it.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

/// What comes again: `{"batchItemFailures":[{"itemIdentifier":"…"}]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures(pub Vec<String>);

#[derive(Serialize)]
struct Failure<'a> {
    #[serde(rename = "itemIdentifier")]
    id: &'a str,
}

impl Serialize for Failures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let failures: Vec<Failure<'_>> = self.0.iter().map(|id| Failure { id }).collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("batchItemFailures", &failures)?;
        map.end()
    }
}

/// What became of the records of a stream. Written as JSON, it is the function's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The lowest sequence number that is not settled: with it, and all behind it, the service begins again.
    pub failures: Failures,
    /// Events that the broker acknowledged: those of the records, and what else was pending beside them.
    pub delivered: u64,
    /// Partitions that were left to the relay that holds them.
    pub left: Vec<u16>,
    /// Records that told of nothing to publish.
    pub others: u64,
}

impl Serialize for Published {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.failures.serialize(serializer)
    }
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Swept {
    /// Everything that was pending when it began is settled, but for what is in partitions that were left.
    pub done: bool,
    /// Events that the broker acknowledged.
    pub delivered: u64,
    /// Partitions that were left to the relay that holds them.
    pub left: Vec<u16>,
    /// Events that wait for another try, behind a dead letter, or for a person; dead letters included.
    pub waiting: u64,
}

/// What became of the messages of a queue. Written as JSON, it is the function's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The messages that come again.
    pub failures: Failures,
    /// Acted on now.
    pub done: u64,
    /// Copies of what was done before.
    pub duplicates: u64,
    /// Put among the dead letters, with the reason.
    pub dead: u64,
}

impl Serialize for Received {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.failures.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_what_the_service_reads() {
        let none = serde_json::to_string(&Published::default()).unwrap();
        assert_eq!(none, r#"{"batchItemFailures":[]}"#);
        let failures = Failures(vec!["111".to_owned()]);
        let one = Received { failures, done: 3, ..Received::default() };
        let one = serde_json::to_string(&one).unwrap();
        assert_eq!(one, r#"{"batchItemFailures":[{"itemIdentifier":"111"}]}"#);
    }
}
