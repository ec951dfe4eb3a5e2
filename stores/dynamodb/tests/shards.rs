//! Shards of a stream as the service has them and the emulator has not: many, split, merged, one after the other.
//! The tables are the emulator's; the stream is played.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;
use postrider_core::{EventId, NewEvent};
use postrider_dynamodb::{Connection, DynamoStore, Options, Outbox, Settings};
use serde_json::{Value, json};

use crate::fresh::{self, Fresh};
use crate::proxy::{self, Then};
use crate::relay::Relay;

const PATIENCE: Duration = Duration::from_secs(90);
/// A backstop that never comes in a test.
const NEVER: Duration = Duration::from_secs(3_600);
/// How many shards one answer of the played stream lists.
const LISTED_AT_ONCE: usize = 7;

#[derive(Debug, Default)]
struct Shard {
    parent: Option<String>,
    is_closed: bool,
    records: Vec<Value>,
}

/// A stream that is played.
#[derive(Debug, Default)]
struct Played {
    shards: BTreeMap<String, Shard>,
    /// Shards in the order in which their reading began, and when one was read to its end.
    log: Vec<String>,
    /// The shard in which no reading gets any further, if there is one.
    stuck: Option<String>,
}

#[derive(Clone, Default)]
struct Stream(Arc<Mutex<Played>>);

impl Stream {
    fn played(&self) -> MutexGuard<'_, Played> {
        self.0.lock().unwrap()
    }

    fn open(&self, id: &str, parent: Option<&str>) {
        let shard = Shard { parent: parent.map(str::to_owned), ..Shard::default() };
        self.played().shards.insert(id.to_owned(), shard);
    }

    fn close(&self, id: &str) {
        self.played().shards.get_mut(id).unwrap().is_closed = true;
    }

    fn record(&self, id: &str, record: Value) {
        self.played().shards.get_mut(id).unwrap().records.push(record);
    }

    fn answer(&self, operation: &str, body: &Value) -> Option<Value> {
        let mut played = self.played();
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        match operation {
            "DescribeStream" => {
                let from = text("ExclusiveStartShardId");
                let behind = played.shards.iter().filter(|(id, _)| **id > from);
                let listed: Vec<_> = behind.take(LISTED_AT_ONCE).collect();
                let last = listed.last().map(|(id, _)| (*id).clone());
                let more =
                    played.shards.keys().any(|id| last.as_ref().is_some_and(|last| id > last));
                let shards: Vec<Value> = listed.into_iter().map(described).collect();
                let mut told = json!({"StreamArn": text("StreamArn"), "StreamStatus": "ENABLED",
                    "StreamViewType": "NEW_IMAGE", "Shards": shards});
                if more {
                    told["LastEvaluatedShardId"] = json!(last);
                }
                Some(json!({"StreamDescription": told}))
            }
            "GetShardIterator" => {
                let id = text("ShardId");
                let len = played.shards[&id].records.len();
                let at = match &*text("ShardIteratorType") {
                    "LATEST" => len,
                    "TRIM_HORIZON" => 0,
                    _ => text("SequenceNumber").parse::<usize>().unwrap(),
                };
                played.log.push(format!("begin {id}"));
                Some(json!({"ShardIterator": format!("{id}@{at}")}))
            }
            "GetRecords" => {
                let iterator = text("ShardIterator");
                let (id, at) = iterator.split_once('@').unwrap();
                let at: usize = at.parse().unwrap();
                let shard = &played.shards[id];
                let records: Vec<Value> = shard.records[at..].to_vec();
                let (mut end, is_closed) = (shard.records.len(), shard.is_closed);
                if played.stuck.as_deref() == Some(id) {
                    end = at;
                }
                let mut told = json!({"Records": records});
                if is_closed {
                    played.log.push(format!("end {id}"));
                } else {
                    told["NextShardIterator"] = json!(format!("{id}@{end}"));
                }
                Some(told)
            }
            _ => None,
        }
    }
}

fn described((id, shard): (&String, &Shard)) -> Value {
    let mut range = json!({"StartingSequenceNumber": "0"});
    if shard.is_closed {
        range["EndingSequenceNumber"] = json!("999");
    }
    let mut told = json!({"ShardId": id, "SequenceNumberRange": range});
    if let Some(parent) = &shard.parent {
        told["ParentShardId"] = json!(parent);
    }
    told
}

/// A record of a shard, at a place of it that is counted from 1.
fn record(name: &str, pk: &str, n: u64, at: usize) -> Value {
    let keys = json!({"pk": {"S": pk}, "sk": {"S": format!("OUTBOX#{n:020}")}});
    json!({"eventID": format!("{pk}-{at}"), "eventName": name, "eventSource": "aws:dynamodb",
        "dynamodb": {"Keys": keys, "NewImage": keys, "SequenceNumber": at.to_string(),
            // Nobody reads what time a record says it was made at.
            "ApproximateCreationDateTime": 4_102_444_800.0 * (at % 2) as f64,
            "StreamViewType": "NEW_IMAGE"}})
}

async fn live(fresh: &Fresh, stream: &Stream) -> Relay {
    let played = stream.clone();
    let rule = move |operation: &str, body: &mut Value| match played.answer(operation, body) {
        Some(answer) => Then::Answer(200, answer),
        None => Then::Forward,
    };
    let own = proxy::start(&fresh::url().unwrap(), Box::new(rule), Box::new(|_, _, _| ())).await;
    let mut options = Options::default();
    options.backstop = NEVER;
    let mut settings = Settings::at(own, fresh.settings.names.clone());
    settings.call_time_max = fresh.settings.call_time_max;
    let connection = Connection::new(settings).unwrap();
    Relay::live(DynamoStore::with(connection, options)).await
}

async fn heard(relay: &mut Relay, events: usize) -> Vec<EventId> {
    tokio::time::timeout(PATIENCE, relay.hear(events)).await.expect("the events come in time")
}

async fn write(outbox: &Outbox, key: &str) -> EventId {
    let event = NewEvent::new("order", key, "order.changed");
    let id = event.event().id;
    outbox.write(&[], &[event]).await.unwrap();
    id
}

/// Every one of many shards is read, over the pages of their list.
#[tokio::test(flavor = "multi_thread")]
async fn many_shards_are_all_heard() {
    const SHARDS: usize = 30;
    let Some(fresh) = Fresh::new(1).await else { return };
    let (outbox, stream) = (Outbox::open(&fresh.connection).await.unwrap(), Stream::default());
    (0..SHARDS).for_each(|n| stream.open(&format!("shard-{n:03}"), None));
    let mut relay = live(&fresh, &stream).await;
    let key = |n: usize| NewEvent::new("order", n.to_string(), "order.changed");
    let events: Vec<_> = (0..SHARDS).map(key).collect();
    let mut sent: Vec<EventId> = events.iter().map(|event| event.event().id).collect();
    outbox.write(&[], &events).await.unwrap();
    for n in 0..SHARDS {
        let told = record("INSERT", &format!("order/{n}"), 1, 1);
        stream.record(&format!("shard-{n:03}"), told);
    }
    let mut came = heard(&mut relay, SHARDS).await;
    came.sort_unstable();
    sent.sort_unstable();
    assert_eq!(came, sent);
}

/// A shard is split, and one of its children goes over into another: each is read after its parent's end, and
/// each key comes in its order.
#[tokio::test(flavor = "multi_thread")]
async fn shards_are_read_after_their_parents() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (outbox, stream) = (Outbox::open(&fresh.connection).await.unwrap(), Stream::default());
    stream.open("a-root", None);
    let mut relay = live(&fresh, &stream).await;
    let (mut ones, mut twos) = (Vec::new(), Vec::new());
    ones.push(write(&outbox, "1").await);
    stream.record("a-root", record("INSERT", "order/1", 1, 1));
    assert_eq!(heard(&mut relay, 1).await, ones);
    // All of it at once: the root ends, its children begin, and one of these ends in a third.
    for _ in 0..3 {
        ones.push(write(&outbox, "1").await);
    }
    twos.push(write(&outbox, "2").await);
    // A child whose name sorts before its parent's: the list is in no order.
    stream.open("0-left", Some("a-root"));
    stream.open("b-right", Some("a-root"));
    stream.open("c-merged", Some("0-left"));
    stream.record("c-merged", record("INSERT", "order/1", 4, 1));
    stream.record("0-left", record("INSERT", "order/1", 3, 1));
    stream.record("b-right", record("INSERT", "order/2", 1, 1));
    stream.record("a-root", record("INSERT", "order/1", 2, 2));
    stream.close("0-left");
    stream.close("a-root");
    let came = heard(&mut relay, 4).await;
    let of = |known: &[EventId]| came.iter().filter(|id| known.contains(id)).copied().collect();
    let (first, second): (Vec<_>, Vec<_>) = (of(&ones), of(&twos));
    assert_eq!((&first[..], second), (&ones[1..], twos));
    // waits: the youngest shard is read when it is listed, though all its events came already
    let log = tokio::time::timeout(PATIENCE, async {
        loop {
            let log = stream.played().log.clone();
            if log.iter().any(|line| line == "begin c-merged") {
                break log;
            }
            // waits: the reader of the stream has its own time
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let log = log.await.expect("every shard is read");
    let at = |line: &str| log.iter().position(|other| other == line).expect("it is in the log");
    assert!(
        at("end a-root") < at("begin 0-left") && at("end a-root") < at("begin b-right"),
        "{log:?}"
    );
    assert!(at("end 0-left") < at("begin c-merged"), "{log:?}");
}

/// R047: an update, a deletion, and a removal by the time to live publish nothing and wake nobody.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_no_inserts_are_not_heard() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (outbox, stream) = (Outbox::open(&fresh.connection).await.unwrap(), Stream::default());
    stream.open("shard", None);
    let mut relay = live(&fresh, &stream).await;
    let pending = write(&outbox, "1").await;
    let mut expired = record("REMOVE", "order/1", 1, 3);
    expired["userIdentity"] = json!({"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"});
    stream.record("shard", record("MODIFY", "order/1", 1, 1));
    stream.record("shard", record("REMOVE", "order/1", 1, 2));
    stream.record("shard", expired);
    let silence = tokio::time::timeout(Duration::from_secs(2), relay.hear(1)).await;
    assert!(silence.is_err(), "nobody was woken");
    stream.record("shard", record("INSERT", "order/1", 1, 4));
    assert_eq!(heard(&mut relay, 1).await, [pending]);
}

/// R048: what the stream tells of becomes the event as it was staged, and nothing of its record or item.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_becomes_the_event_and_not_its_item() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let (outbox, stream) = (Outbox::open(&fresh.connection).await.unwrap(), Stream::default());
    stream.open("shard", None);
    let mut relay = live(&fresh, &stream).await;
    let facts = json!({"total": 1250, "lines": [{"sku": "x", "gift": true}], "note": null});
    let event = NewEvent::new("order", "1", "order.placed").header("tier", "gold").json(&facts);
    let event = event.unwrap();
    outbox.write(&[], std::slice::from_ref(&event)).await.unwrap();
    stream.record("shard", record("INSERT", "order/1", 1, 1));
    let rows = tokio::time::timeout(PATIENCE, async {
        loop {
            let rows = relay.drain().await;
            if !rows.is_empty() {
                break rows;
            }
            relay.woken().await;
        }
    });
    let rows = rows.await.expect("it comes in time");
    let read = rows[0].event.clone().unwrap();
    let (told, given) = (read.payload.as_bytes(), event.event().payload.as_bytes());
    assert_eq!(told, given, "byte for byte");
    assert!(!String::from_utf8_lossy(told).contains(r#"{"S""#));
    assert_eq!((&read.headers, read.id), (&event.event().headers, event.event().id));
}

/// R050: eight writers of four keys at once: each key's events come in the order in which they were committed.
#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_commits_is_the_order_of_each_key() {
    const EACH: usize = 5;
    let Some(fresh) = Fresh::new(2).await else { return };
    let outbox = Outbox::open(&fresh.connection).await.unwrap();
    let mut options = Options::default();
    options.backstop = NEVER;
    let mut relay = Relay::live(DynamoStore::with(fresh.connection.clone(), options)).await;
    let writer = |writer: usize| {
        let outbox = outbox.clone();
        async move {
            for _ in 0..EACH {
                let event = NewEvent::new("order", (writer % 4).to_string(), "order.changed");
                while outbox.write(&[], std::slice::from_ref(&event)).await.is_err() {}
            }
        }
    };
    let ((), came) =
        tokio::join!(async { _ = join_all((0..8).map(writer)).await }, heard(&mut relay, 8 * EACH));
    let client = fresh.connection.tables().await;
    let scan = client.scan().table_name(&fresh.settings.names.outbox).consistent_read(true);
    let items = Box::pin(scan.send()).await.unwrap().items.unwrap();
    let mut orders: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    for item in items.iter().filter(|item| item.contains_key("id")) {
        let id: EventId = item["id"].as_s().unwrap().parse().unwrap();
        let at = came.iter().position(|other| *other == id).expect("it came");
        let of = orders.entry(item["pk"].as_s().unwrap().clone()).or_default();
        of.push((at, item["sk"].as_s().unwrap().clone()));
    }
    assert_eq!(orders.len(), 4);
    for (key, mut order) in orders {
        order.sort_unstable();
        assert!(order.is_sorted_by_key(|(_, sk)| sk), "{key}: {order:?}");
    }
}

/// R059: how far each shard is read is told by its name: at its tip, or behind by the age of the last record that was
/// read, as long as there is more; what ended is not told of any more.
#[tokio::test(flavor = "multi_thread")]
async fn each_shard_tells_how_far_it_is_read() {
    let Some(fresh) = Fresh::new(1).await else { return };
    let stream = Stream::default();
    stream.open("quick", None);
    stream.open("slow", None);
    let relay = live(&fresh, &stream).await;
    let told = async |at_tip: &[(&str, bool)]| {
        let wait = async {
            loop {
                let lags = relay.store.shard_lags();
                let found: Vec<_> = lags.iter().map(|one| (&*one.shard, one.at_tip)).collect();
                if found == at_tip {
                    return lags;
                }
                // waits: the reader of the stream has its own time
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("it is told in time")
    };
    told(&[("quick", true), ("slow", true)]).await;
    // Made in 1970, and read again and again: no answer is empty.
    stream.played().stuck = Some("slow".to_owned());
    stream.record("slow", record("MODIFY", "order/1", 1, 2));
    let lags = told(&[("quick", true), ("slow", false)]).await;
    let year = Duration::from_secs(365 * 86_400);
    assert!(lags[0].lag < year && lags[1].lag > 50 * year, "{lags:?}");
    stream.played().stuck = None;
    told(&[("quick", true), ("slow", true)]).await;
    stream.open("child", Some("slow"));
    stream.close("slow");
    told(&[("child", true), ("quick", true)]).await;
}
