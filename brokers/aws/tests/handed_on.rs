//! SNS and EventBridge: what they answer, and what becomes of each event.

use std::sync::Arc;
use std::time::Duration;

use postrider_aws::{EventBridgeBroker, SnsBroker};
use postrider_core::{Broker, ErrorKind, Event, Format, Outcome};
use postrider_testkit::carry::event;
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::publishing::outgoing;
use crate::stub::{Asked, Said, Stub, failure};

const BUS: &str = "orders";

fn events(count: u32) -> Vec<Arc<Event>> {
    (0..count).map(|n| event(&n.to_string(), n, 10)).collect()
}

async fn put(stub: &Stub, events: &[Arc<Event>]) -> Vec<Outcome> {
    let mut settings = stub.settings();
    settings.deadline = Duration::from_secs(5);
    let broker = EventBridgeBroker::new(settings).unwrap();
    let batch: Vec<_> = events.iter().map(|it| outgoing(BUS, it, Format::Structured)).collect();
    broker.publish(&batch).await.unwrap()
}

/// A bus that is there, and takes all entries but those whose detail has the word.
fn bus(asked: &Asked, refused: &str, code: &str) -> Option<Said> {
    if !asked.action.ends_with("PutEvents") {
        return Some((200, json!({"Name": BUS}).to_string()));
    }
    let body = asked.body();
    let said = |entry: &Value| match entry["Detail"].as_str().unwrap_or_default().contains(refused)
    {
        true if !refused.is_empty() => json!({"ErrorCode": code, "ErrorMessage": "so"}),
        _ => json!({"EventId": "e"}),
    };
    let entries: Vec<Value> = body["Entries"].as_array()?.iter().map(said).collect();
    let failed = entries.iter().filter(|entry| entry["ErrorCode"].is_string()).count();
    Some((200, json!({"FailedEntryCount": failed, "Entries": entries}).to_string()))
}

fn puts(stub: &Stub) -> Vec<usize> {
    let puts = stub.asked().into_iter().filter(|asked| asked.action.ends_with("PutEvents"));
    puts.map(|asked| asked.body()["Entries"].as_array().unwrap().len()).collect()
}

/// R056: twenty-five events are three calls of PutEvents.
#[tokio::test]
async fn a_batch_is_put_in_calls_of_ten() {
    let stub = Stub::start(|asked| bus(asked, "", "")).await;
    assert_eq!(put(&stub, &events(25)).await, vec![Outcome::Acked; 25]);
    let mut lengths = puts(&stub);
    lengths.sort_unstable();
    assert_eq!(lengths, [5, 10, 10]);
}

/// R057: of a call whose third entry fails, the others are taken; only the third is sent again, and none is lost.
#[tokio::test]
async fn only_the_entry_that_failed_is_sent_again() {
    let events = events(5);
    let third = events[2].id.to_string();
    for (code, words) in [
        ("ThrottlingException", "Retry"),
        ("InternalFailure", "Retry"),
        // It is about this event, and the bus takes the others.
        ("NotAuthorizedForSourceException", "Rejected"),
        ("AccessDeniedException", "Unroutable"),
        ("MalformedDetail", "Rejected"),
    ] {
        let failing = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let (third, relents) = (third.clone(), Arc::clone(&failing));
        let stub = Stub::start(move |asked| {
            let fails = relents.load(std::sync::atomic::Ordering::SeqCst);
            bus(asked, if fails { &third } else { "" }, code)
        })
        .await;
        let outcomes = put(&stub, &events).await;
        for at in [0, 1, 3, 4] {
            assert_eq!(outcomes[at], Outcome::Acked);
        }
        assert!(format!("{:?}", outcomes[2]).starts_with(words), "{code}: {:?}", outcomes[2]);
        failing.store(false, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(put(&stub, &events[2..3]).await, [Outcome::Acked]);
        assert_eq!(puts(&stub), [5, 1]);
    }
}

/// R062: the event's own id stands in the detail, and nothing of it in the header for traces of AWS.
#[tokio::test]
async fn the_id_stands_in_the_envelope() {
    let stub = Stub::start(|asked| bus(asked, "", "")).await;
    let sent = event("1", 1, 10);
    put(&stub, std::slice::from_ref(&sent)).await;
    let asked = stub.asked().into_iter().find(|asked| asked.action.ends_with("PutEvents")).unwrap();
    let entry = asked.body()["Entries"][0].clone();
    let detail: Value = serde_json::from_str(entry["Detail"].as_str().unwrap()).unwrap();
    assert_eq!(detail["id"], sent.id.to_string());
    assert_eq!(entry["Source"], "/shop");
    assert_eq!(entry["DetailType"], "order.changed.1");
    assert_eq!(entry["EventBusName"], BUS);
    assert!(entry["TraceHeader"].is_null());
}

/// F22: a bus that is not there is the endpoint's trouble, also where the answer to an entry would not say so;
/// who may not look for it sends all the same.
#[tokio::test]
async fn a_bus_that_is_not_there_is_unroutable() {
    let Some(cloud) = Cloud::find().await else { return };
    let broker = EventBridgeBroker::new(cloud.settings()).unwrap();
    let (sent, name) = (event("1", 1, 10), cloud.name("orders"));
    let batch = [outgoing(&name, &sent, Format::Structured)];
    let outcomes = broker.publish(&batch).await.unwrap();
    let [Outcome::Unroutable(fault)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!(fault.kind, ErrorKind::Unroutable);
    assert!(fault.detail.contains(&name), "{fault}");
    let queue = cloud.queue("log").await;
    cloud.bus("orders", std::slice::from_ref(&queue)).await;
    assert_eq!(broker.publish(&batch).await.unwrap(), [Outcome::Acked]);
    let stub = Stub::start(|asked| match asked.action.ends_with("PutEvents") {
        true => bus(asked, "", ""),
        false => failure(400, "AccessDeniedException", "not you"),
    })
    .await;
    assert_eq!(put(&stub, &events(1)).await, [Outcome::Acked]);
}

/// F18, F20, F22: what no entry can be is refused before it is sent, and its neighbours go on.
#[tokio::test]
async fn what_no_entry_can_be_is_refused_alone() {
    let stub = Stub::start(|asked| bus(asked, "", "")).await;
    let changed = |n: u32, change: &dyn Fn(&mut Event)| {
        let mut event = Event::clone(&event("1", n, 10));
        change(&mut event);
        Arc::new(event)
    };
    let events = [
        changed(0, &|_| {}),
        changed(1, &|event| event.source = Arc::from("aws.s3")),
        changed(2, &|event| event.source = Arc::from("")),
        changed(3, &|event| event.event_type = "t".repeat(129).into()),
        event("1", 4, 300_000),
        changed(5, &|_| {}),
    ];
    let outcomes = put(&stub, &events).await;
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            0 | 5 => assert_eq!(*outcome, Outcome::Acked),
            _ => assert!(matches!(outcome, Outcome::Rejected(_)), "{at}: {outcome:?}"),
        }
    }
    assert_eq!(puts(&stub), [2]);
}

fn xml(asked: &Asked, failed: &str) -> Option<Said> {
    let entries = asked.text.matches(".Message=").count();
    let mut ids: Vec<String> = asked
        .text
        .split('&')
        .filter_map(|pair| pair.split_once(".Id=").map(|(_, id)| id.to_owned()))
        .collect();
    assert_eq!(ids.len(), entries);
    ids.retain(|id| id != failed);
    let taken: String = ids
        .iter()
        .map(|id| format!("<member><Id>{id}</Id><MessageId>m</MessageId></member>"))
        .collect();
    let failed = match failed {
        "" => String::new(),
        id => format!(
            "<member><Id>{id}</Id><Code>Throttled</Code><Message>slow</Message>\
             <SenderFault>true</SenderFault></member>"
        ),
    };
    let body = format!(
        "<PublishBatchResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><PublishBatchResult>\
         <Successful>{taken}</Successful><Failed>{failed}</Failed></PublishBatchResult>\
         <ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></PublishBatchResponse>"
    );
    Some((200, body))
}

/// R057, R120: a topic of SNS answers for each entry, and says what is not allowed.
#[tokio::test]
async fn a_topic_answers_for_each_entry() {
    let publish = |stub: Stub| async move {
        let broker = SnsBroker::new(stub.settings()).unwrap();
        let events = events(3);
        let batch: Vec<_> =
            events.iter().map(|it| outgoing("orders", it, Format::Structured)).collect();
        broker.publish(&batch).await.unwrap()
    };
    let outcomes = publish(Stub::start(|asked| xml(asked, "1")).await).await;
    assert!(
        matches!(outcomes[..], [Outcome::Acked, Outcome::Retry { .. }, Outcome::Acked]),
        "{outcomes:?}"
    );
    let said = |code: &str| {
        format!(
            "<ErrorResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><Error><Type>Sender</Type>\
             <Code>{code}</Code><Message>no</Message></Error><RequestId>r</RequestId></ErrorResponse>"
        )
    };
    for (code, kind, words) in [
        ("AuthorizationError", ErrorKind::Unauthorized, "sns:Publish on the topic"),
        ("NotFound", ErrorKind::Unroutable, "create it"),
        ("InvalidClientTokenId", ErrorKind::Unauthorized, "credentials"),
    ] {
        let body = said(code);
        let outcomes = publish(Stub::start(move |_| Some((403, body.clone()))).await).await;
        for outcome in &outcomes {
            let Outcome::Unroutable(fault) = outcome else { panic!("{code}: {outcome:?}") };
            assert_eq!(fault.kind, kind);
            assert!(fault.detail.contains(words), "{fault}");
        }
    }
}

/// F22: a topic that is not there, or is not told whose it is, is the endpoint's trouble.
#[tokio::test]
async fn a_topic_that_is_not_there_is_unroutable() {
    let Some(cloud) = Cloud::find().await else { return };
    let publish = |settings, topic: String| async move {
        let broker = SnsBroker::new(settings).unwrap();
        let batch = [outgoing(&topic, &event("1", 1, 10), Format::Plain)];
        broker.publish(&batch).await.unwrap().remove(0)
    };
    let name = cloud.name("orders");
    let Outcome::Unroutable(fault) = publish(cloud.settings(), name.clone()).await else {
        panic!("there is none")
    };
    assert_eq!(fault.kind, ErrorKind::Unroutable);
    let mut nobody = cloud.settings();
    nobody.account = None;
    let Outcome::Unroutable(fault) = publish(nobody.clone(), name.clone()).await else {
        panic!("nobody said whose")
    };
    assert!(fault.detail.contains("`account`"), "{fault}");
    let arn = cloud.topic("orders", &[], false).await;
    assert_eq!(publish(cloud.settings(), name).await, Outcome::Acked);
    assert_eq!(publish(nobody, arn).await, Outcome::Acked);
}
