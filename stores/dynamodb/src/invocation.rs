//! The records of a table's stream as a Lambda function is given them: JSON, in the shape that the service
//! documents.
//!
//! Invariants: a record says *where* something was committed, and nothing is published from it; what is none of
//! ours, and what tells of no new event, counts as settled; and a batch that cannot be told for records of a
//! stream is refused as a whole, so that it comes again.

use std::collections::HashMap;

use postrider_core::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::record::{AT, Place};
use crate::settings::Names;
use crate::stream::{is_stamped, tells};

/// The most bytes of one invocation: what the service sends at most.
pub const INVOCATION_BYTES_MAX: usize = 6 * 1024 * 1024;
/// The most records of one invocation: the largest batch that an event source can be given.
pub const INVOCATION_RECORDS_MAX: usize = 10_000;

/// The records of one invocation, in the stream's order.
#[derive(Clone, Debug)]
pub struct Invocation {
    records: Vec<StreamRecord>,
    foreign: u64,
}

/// One record.
#[derive(Clone, Debug)]
pub struct StreamRecord {
    sequence: String,
    place: Option<Place>,
    written: u64,
}

impl StreamRecord {
    /// Its number in its shard: what a partial failure is reported by.
    pub fn sequence_number(&self) -> &str {
        &self.sequence
    }

    /// Where something is to be published, if it tells of that: of business items only where events are made of
    /// them.
    pub(crate) fn place(&self, derives: bool) -> Option<&Place> {
        self.place.as_ref().filter(|place| derives || place.is_event())
    }

    /// When the item was written, by the writer's clock, in microseconds; 0 where it does not say.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }
}

#[derive(Deserialize)]
struct Batch<'a> {
    #[serde(rename = "Records", borrow)]
    records: Vec<Record<'a>>,
}

#[derive(Deserialize)]
struct Record<'a> {
    #[serde(rename = "eventName")]
    name: Option<&'a str>,
    #[serde(borrow)]
    dynamodb: Option<Change<'a>>,
}

#[derive(Deserialize)]
struct Change<'a> {
    #[serde(rename = "Keys", borrow, default)]
    keys: HashMap<String, &'a RawValue>,
    #[serde(rename = "NewImage", borrow)]
    image: Option<HashMap<String, &'a RawValue>>,
    #[serde(rename = "SequenceNumber")]
    sequence: Option<String>,
}

/// An attribute as the stream's JSON has it, as far as it is asked for here.
#[derive(Deserialize)]
struct Attribute {
    #[serde(rename = "S")]
    text: Option<String>,
    #[serde(rename = "N")]
    number: Option<String>,
}

impl Invocation {
    /// Reads the JSON of an invocation.
    ///
    /// # Errors
    /// `TooLarge` for more than the service ever sends, `Invalid` for what is no batch of a DynamoDB stream. Nothing
    /// was published then; the batch comes again.
    pub fn parse(json: &[u8], names: &Names) -> Result<Invocation> {
        if json.len() > INVOCATION_BYTES_MAX {
            return Err(refused(
                ErrorKind::TooLarge,
                format!("{} bytes, and an invocation has {INVOCATION_BYTES_MAX}", json.len()),
            ));
        }
        let batch: Batch<'_> = serde_json::from_slice(json).map_err(|error| {
            refused(ErrorKind::Invalid, format!("no batch of a DynamoDB stream: {error}"))
        })?;
        if batch.records.len() > INVOCATION_RECORDS_MAX {
            let count = batch.records.len();
            return Err(refused(
                ErrorKind::TooLarge,
                format!("{count} records, and an invocation has {INVOCATION_RECORDS_MAX}"),
            ));
        }
        let mut invocation =
            Invocation { records: Vec::with_capacity(batch.records.len()), foreign: 0 };
        for record in batch.records {
            invocation.take(&record, names)?;
        }
        Ok(invocation)
    }

    fn take(&mut self, record: &Record<'_>, names: &Names) -> Result<()> {
        let sequence = record.dynamodb.as_ref().and_then(|change| change.sequence.clone());
        let Some((sequence, change)) = sequence.zip(record.dynamodb.as_ref()) else {
            // It could not be reported as failed, so it must not be taken for settled.
            return Err(refused(
                ErrorKind::Invalid,
                "a record without a sequence number".to_owned(),
            ));
        };
        let key = |name: &str| attribute(change.keys.get(name)?)?.text;
        let there = key(&names.pk).zip(key(&names.sk)).map(|(pk, sk)| Place::new(&pk, &sk));
        let image = change.image.as_ref();
        let stamped = image.map(|image| is_stamped(|name| image.contains_key(name)));
        let name = record.name.unwrap_or_default();
        let place = there.filter(|place| tells(place, name, stamped, true));
        self.foreign += u64::from(place.is_none());
        let of_event = place.as_ref().is_none_or(Place::is_event);
        let written = image.map_or(0, |image| written(image, of_event));
        self.records.push(StreamRecord { sequence, place, written });
        Ok(())
    }

    /// The records, in the stream's order.
    pub fn records(&self) -> &[StreamRecord] {
        &self.records
    }

    /// How many tell of nothing to publish: marks, deletions, the time to live, and items that are none of ours.
    pub fn others(&self) -> u64 {
        self.foreign
    }
}

/// When an item was written, in microseconds.
fn written(image: &HashMap<String, &RawValue>, of_event: bool) -> u64 {
    let number = |name: &str| -> Option<u64> { attribute(image.get(name)?)?.number?.parse().ok() };
    match of_event {
        true => number("created_at").unwrap_or_default(),
        // Its stamp says so, and whatever else the item says is the application's.
        false => number(AT).unwrap_or_default().saturating_mul(1_000),
    }
}

fn attribute(value: &RawValue) -> Option<Attribute> {
    serde_json::from_str(value.get()).ok()
}

fn refused(kind: ErrorKind, what: String) -> Error {
    Error::new(kind, "read invocation")
        .message(format!("{what}; nothing was published, and the batch comes again"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(name: &str, sk: &str, image: Value) -> Value {
        json!({"eventID": "1", "eventName": name, "eventVersion": "1.1", "eventSource": "aws:dynamodb",
               "awsRegion": "us-east-1", "eventSourceARN": "arn:aws:dynamodb:us-east-1:1:table/t/stream/s",
               "dynamodb": {"ApproximateCreationDateTime": 1_760_000_000, "StreamViewType": "NEW_IMAGE",
                            "Keys": {"pk": {"S": "order/1"}, "sk": {"S": sk}}, "NewImage": image,
                            "SequenceNumber": "111", "SizeBytes": 26}})
    }

    fn parse(records: &[Value]) -> Result<Invocation> {
        Invocation::parse(json!({ "Records": records }).to_string().as_bytes(), &Names::default())
    }

    /// R047: inserts of events are heard, and of the others nothing.
    #[test]
    fn only_what_is_new_and_pending_is_heard() {
        let event = crate::record::numbered_sk(3);
        let image = json!({"created_at": {"N": "7"}, "pr_shard": {"S": "p00000"}});
        let heard = [
            record("INSERT", &event, image.clone()),
            record("MODIFY", &event, image.clone()),
            record("REMOVE", &event, Value::Null),
            record("INSERT", crate::record::HEAD, json!({"n": {"N": "3"}})),
            record("INSERT", "METADATA", image),
        ];
        let parsed = parse(&heard).unwrap();
        let places: Vec<bool> = parsed.records().iter().map(|r| r.place(false).is_some()).collect();
        assert_eq!(places, [true, false, false, false, false]);
        assert_eq!(parsed.others(), 4);
        assert_eq!(parsed.records()[0].written(), 7);
    }

    /// R027, R047: a business item's write with its stamp is heard where events are made of such; its mark is not, and
    /// its own attributes do not say when it was written.
    #[test]
    fn stamped_writes_are_heard_where_events_are_made_of_them() {
        let stamp = json!({"pr_shard": {"S": "p00000"}, "pr_event": {"S": "1"}, "pr_at": {"N": "7"},
                           "created_at": {"N": "99"}});
        let marked = json!({"pr_event": {"S": "1"}, "pr_at": {"N": "7"}});
        let heard = [
            record("INSERT", "ORDER", stamp.clone()),
            record("MODIFY", "ORDER", stamp.clone()),
            record("MODIFY", "ORDER", marked),
            record("REMOVE", "ORDER", Value::Null),
            record("MODIFY", crate::record::HEAD, stamp),
        ];
        let parsed = parse(&heard).unwrap();
        let places = |derives| -> Vec<bool> {
            parsed.records().iter().map(|r| r.place(derives).is_some()).collect()
        };
        assert_eq!(places(true), [true, true, false, false, false]);
        assert_eq!(places(false), [false; 5]);
        assert_eq!((parsed.others(), parsed.records()[1].written()), (3, 7_000));
    }

    /// R049: a record without an image is heard all the same: its item is read by its key.
    #[test]
    fn a_record_without_an_image_is_heard() {
        let mut bare = record("INSERT", &crate::record::numbered_sk(1), Value::Null);
        bare["dynamodb"].as_object_mut().unwrap().remove("NewImage");
        assert!(parse(&[bare]).unwrap().records()[0].place(false).is_some());
    }

    #[test]
    fn what_is_no_batch_is_refused_and_comes_again() {
        for bad in ["", "{}", "[]", "{\"Records\":[{}]}", "{\"Records\":[{\"dynamodb\":{}}]}"] {
            let error = Invocation::parse(bad.as_bytes(), &Names::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad}");
            assert!(error.to_string().contains("comes again"), "{error}");
        }
        let large = vec![b' '; INVOCATION_BYTES_MAX + 1];
        let error = Invocation::parse(&large, &Names::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let many = vec![record("REMOVE", "x", Value::Null); 3];
        assert_eq!(parse(&many).unwrap().records().len(), 3);
    }
}
