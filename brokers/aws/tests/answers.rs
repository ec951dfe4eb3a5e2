//! What the services may answer, and LocalStack never does: partial refusals, throttling, who we are, nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use postrider_aws::SqsBroker;
use postrider_core::{Broker, ErrorKind, Event, Format, Outcome, Outgoing};
use postrider_testkit::carry::event;
use serde_json::{Value, json};

use crate::stub::{Asked, Said, Stub, failure};

const QUEUE: &str = "https://sqs.us-east-1.amazonaws.com/000000000000/orders";

fn outgoing(event: &Arc<Event>) -> Outgoing {
    let mut sent = postrider_testkit::carry::outgoing(QUEUE, event);
    sent.format = Format::Structured;
    sent
}

/// All entries taken, but those whose body has the word.
fn taken(asked: &Asked, refused: &str, fault: &Value) -> Option<Said> {
    let body = asked.body();
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for entry in body["Entries"].as_array()? {
        let id = &entry["Id"];
        match !refused.is_empty() && entry["MessageBody"].as_str()?.contains(refused) {
            true => {
                let mut said = fault.clone();
                said["Id"] = id.clone();
                failed.push(said);
            }
            false => successful.push(json!({"Id": id, "MessageId": "m", "MD5OfMessageBody": "m"})),
        }
    }
    Some((200, json!({"Successful": successful, "Failed": failed}).to_string()))
}

fn events(count: u32) -> Vec<Arc<Event>> {
    (0..count).map(|n| event(&n.to_string(), n, 10)).collect()
}

async fn publish(stub: &Stub, events: &[Arc<Event>]) -> postrider_core::Result<Vec<Outcome>> {
    // Each call is answered in time, however busy the machine is.
    publish_within(stub, events, Duration::from_secs(30)).await
}

async fn publish_within(
    stub: &Stub,
    events: &[Arc<Event>],
    deadline: Duration,
) -> postrider_core::Result<Vec<Outcome>> {
    let mut settings = stub.settings();
    settings.deadline = deadline;
    let broker = SqsBroker::new(settings).unwrap();
    let batch: Vec<Outgoing> = events.iter().map(outgoing).collect();
    broker.publish(&batch).await
}

/// R056: twenty-five events are three calls.
#[tokio::test]
async fn a_batch_is_as_few_calls_as_the_service_takes() {
    let stub = Stub::start(|asked| taken(asked, "", &Value::Null)).await;
    let outcomes = publish(&stub, &events(25)).await.unwrap();
    assert_eq!(outcomes, vec![Outcome::Acked; 25]);
    let mut lengths: Vec<_> = stub.asked().iter().map(entries).collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [5, 10, 10]);
}

fn entries(asked: &Asked) -> usize {
    asked.body()["Entries"].as_array().unwrap().len()
}

/// R057, R120: of a call in which entries fail, each has its own outcome, and says why.
#[tokio::test]
async fn each_entry_has_its_own_outcome() {
    let events = events(4);
    let id = events[2].id.to_string();
    for (fault, check) in [
        (json!({"Code": "InternalError", "SenderFault": false, "Message": "try"}), "Retry"),
        (json!({"Code": "RequestThrottled", "SenderFault": true, "Message": "slow"}), "Retry"),
        (json!({"Code": "KmsAccessDenied", "SenderFault": true}), "Unroutable"),
        (json!({"Code": "InvalidMessageContents", "SenderFault": true}), "Rejected"),
        (
            json!({"Code": "InvalidParameterValue", "SenderFault": true,
                   "Message": "One or more parameters are invalid. Reason: Message must be shorter than 9 bytes."}),
            "TooLarge",
        ),
        (json!({"Code": "NobodyKnows", "SenderFault": true}), "Rejected"),
        (json!({"Code": "NobodyKnows", "SenderFault": false}), "Retry"),
    ] {
        let id = id.clone();
        let stub = Stub::start(move |asked| taken(asked, &id, &fault)).await;
        let outcomes = publish(&stub, &events).await.unwrap();
        for at in [0, 1, 3] {
            assert_eq!(outcomes[at], Outcome::Acked);
        }
        assert!(format!("{:?}", outcomes[2]).contains(check), "{check}: {:?}", outcomes[2]);
    }
}

/// R095: a call that is refused for one of its entries is sent again entry by entry, and the others go on.
#[tokio::test]
async fn one_entry_does_not_take_its_neighbours_with_it() {
    let events = events(5);
    let id = events[1].id.to_string();
    let stub = Stub::start(move |asked| match asked.text.contains(&id) {
        true => failure(400, "com.amazonaws.sqs#InvalidMessageContents", "no"),
        false => taken(asked, "", &Value::Null),
    })
    .await;
    let outcomes = publish(&stub, &events).await.unwrap();
    for (at, outcome) in outcomes.iter().enumerate() {
        match at {
            1 => assert!(matches!(outcome, Outcome::Rejected(_)), "{outcome:?}"),
            _ => assert_eq!(*outcome, Outcome::Acked),
        }
    }
    assert_eq!(stub.asked().len(), 6);
}

/// F24, F36, R126: who we are, what we may, and where: each is the endpoint's trouble, says what to correct, and
/// shows no secret.
#[tokio::test]
async fn each_refusal_of_who_we_are_says_what_to_correct() {
    for (status, code, kind, words) in [
        (
            400,
            "com.amazonaws.sqs#AccessDeniedException",
            ErrorKind::Unauthorized,
            "sqs:SendMessage on the queue",
        ),
        (403, "ExpiredTokenException", ErrorKind::Unauthorized, "renew or correct the credentials"),
        (403, "InvalidClientTokenId", ErrorKind::Unauthorized, "renew or correct the credentials"),
        (403, "InvalidSignatureException", ErrorKind::Unauthorized, "`region`"),
        (400, "com.amazonaws.sqs#QueueDoesNotExist", ErrorKind::Unroutable, "create it"),
    ] {
        let stub = Stub::start(move |_| failure(status, code, "the words of the service")).await;
        let outcomes = publish(&stub, &events(2)).await.unwrap();
        for outcome in &outcomes {
            let Outcome::Unroutable(fault) = outcome else { panic!("{code}: {outcome:?}") };
            assert_eq!(fault.kind, kind, "{code}");
            assert!(fault.detail.contains(words), "{fault}");
            assert!(fault.detail.contains("the words of the service"), "{fault}");
        }
        assert_eq!(stub.asked().len(), 1, "it is not asked again by itself");
    }
}

/// F24: throttling counts as busy, and nothing is sent again by the client itself.
#[tokio::test]
async fn throttling_is_busy() {
    for code in ["com.amazonaws.sqs#RequestThrottled", "ThrottlingException"] {
        let stub = Stub::start(move |_| failure(400, code, "slow down")).await;
        let outcomes = publish(&stub, &events(2)).await.unwrap();
        for outcome in outcomes {
            let Outcome::Retry { fault, .. } = outcome else { panic!("{outcome:?}") };
            assert_eq!(fault.kind, ErrorKind::Busy);
        }
        assert_eq!(stub.asked().len(), 1);
    }
}

/// F19, INV-7: without an answer nothing counts as published, and it is said that nobody knows; with an answer of
/// some calls, their events count.
#[tokio::test]
async fn what_is_not_answered_is_not_published() {
    let stub = Stub::start(|_| None).await;
    let begun = std::time::Instant::now();
    let error = publish_within(&stub, &events(25), Duration::from_secs(2)).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("not known"), "{error}");
    let calls = AtomicUsize::new(0);
    let stub = Stub::start(move |asked| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => None,
        _ => taken(asked, "", &Value::Null),
    })
    .await;
    // One call waits until the deadline; the others are to be answered before it.
    let outcomes = publish_within(&stub, &events(25), Duration::from_secs(10)).await.unwrap();
    let acked = outcomes.iter().filter(|outcome| **outcome == Outcome::Acked).count();
    assert!([15, 20].contains(&acked), "{outcomes:?}");
    // Nobody is there.
    let mut settings = stub.settings();
    settings.endpoint = Some("http://127.0.0.1:1".to_owned());
    let broker = SqsBroker::new(settings).unwrap();
    let error = broker.publish(&[outgoing(&events(1)[0])]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// R068, R057: 1 is refused, and what came with it is taken: with one of a key under way, 2 and 3 come after 1.
#[tokio::test]
async fn a_refused_event_is_not_overtaken() {
    let key: Vec<_> = (1..=3).map(|n| event("1", n, 10)).collect();
    let first = key[0].id.to_string();
    let refusing = Arc::new(AtomicBool::new(true));
    let fault = json!({"Code": "InternalError", "SenderFault": false, "Message": "try"});
    let stub = {
        let (first, refusing) = (first.clone(), Arc::clone(&refusing));
        Stub::start(move |asked| {
            match asked.text.contains(&first) && refusing.swap(false, Ordering::SeqCst) {
                true => taken(asked, &first, &fault),
                false => taken(asked, "", &Value::Null),
            }
        })
        .await
    };
    let broker = SqsBroker::new(stub.settings()).unwrap();
    assert!(!broker.capabilities().prefix_order, "so the engine sends one of a key at a time");
    let mut stored = Vec::new();
    for event in &key {
        // As the engine does: the same again until it is taken, and only then the next.
        while broker.publish(&[outgoing(event)]).await.unwrap() != [Outcome::Acked] {}
        stored.push(event.id);
    }
    postrider_testkit::carry::assert_in_order(&stored, std::slice::from_ref(&key));
    let sent: Vec<_> = stub.asked().iter().map(|asked| order(asked, &key)).collect();
    assert_eq!(sent, [[0], [0], [1], [2]]);
    // The negative control: in one call, the queue takes 2 and 3 all the same.
    refusing.store(true, Ordering::SeqCst);
    let batch: Vec<Outgoing> = key.iter().map(outgoing).collect();
    let outcomes = broker.publish(&batch).await.unwrap();
    assert!(matches!(outcomes[..], [Outcome::Retry { .. }, Outcome::Acked, Outcome::Acked]));
}

/// Which events a call carries.
fn order(asked: &Asked, key: &[Arc<Event>]) -> Vec<usize> {
    (0..key.len()).filter(|at| asked.text.contains(&key[*at].id.to_string())).collect()
}
