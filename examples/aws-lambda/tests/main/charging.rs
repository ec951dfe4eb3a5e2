//! What the queue invokes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::dynamodb::{Connection, Inbox, InboxOptions};
use postrider::{Claim, ClaimRequest, Error, ErrorKind, Event, HandlerName, InboxStore as _};
use serde_json::Value;

use crate::cloud::{Cloud, LONG, failures, queued, stream};

/// How long the claim of an environment that ends lasts: longer than another one needs to begin.
const LEASE: Duration = Duration::from_secs(4);

/// How often the function logged that it charged each order.
fn charges(log: &str) -> BTreeMap<String, usize> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let charged = lines.filter(|line| line["fields"]["message"] == "charged");
    charged.fold(BTreeMap::new(), |mut all, line| {
        *all.entry(line["fields"]["order"].as_str().unwrap().to_owned()).or_default() += 1;
        all
    })
}

/// The negative control: a second charge of an order is counted as one.
#[test]
fn the_count_sees_a_second_charge() {
    let line = r#"{"level":"INFO","fields":{"message":"charged","order":"1","key":"k"}}"#;
    assert_eq!(charges(&format!("{line}\n{line}\n")), BTreeMap::from([("1".to_owned(), 2)]));
}

/// R077, R096: an event comes twice in one batch, and the whole batch again, to another environment: it is charged once.
#[tokio::test]
async fn a_message_and_its_copy_are_acted_on_once() {
    let Some(cloud) = Cloud::make().await else { return };
    let records = [cloud.order("1").await, cloud.order("2").await];
    assert!(cloud.publish().await.invoke(stream(&records), LONG).await.is_ok());
    let batch = queued(&cloud.messages(4).await);
    let mut charge = cloud.charge().await;
    let answer = charge.invoke(batch.clone(), LONG).await.unwrap();
    assert!(failures(&answer).is_empty(), "{answer}");
    let log = charge.end();
    let once = BTreeMap::from([("1".to_owned(), 1), ("2".to_owned(), 1)]);
    assert_eq!(charges(&log), once, "{log}");
    assert!(log.contains(r#""done":2,"duplicates":2"#), "{log}");
    let mut other = cloud.charge().await;
    let answer = other.invoke(batch, LONG).await.unwrap();
    assert!(failures(&answer).is_empty(), "{answer}");
    let log = other.end();
    assert!(charges(&log).is_empty() && log.contains(r#""duplicates":4"#), "{log}");
    cloud.remove().await;
}

/// A message whose effect fails is named, and comes again; its neighbours are not named. Sent again, it is charged, and
/// nobody else is.
#[tokio::test]
async fn a_message_whose_effect_fails_is_named_and_its_neighbours_are_not() {
    let Some(cloud) = Cloud::make().await else { return };
    let orders = ["1", "2", "3"];
    let mut records = Vec::new();
    for order in orders {
        records.push(cloud.order(order).await);
    }
    assert!(cloud.publish().await.invoke(stream(&records), LONG).await.is_ok());
    let messages = cloud.messages(6).await;
    let mut first = BTreeMap::new();
    for message in messages {
        // One of the two copies of each.
        let body: Value = serde_json::from_str(message.body().unwrap()).unwrap();
        first.insert(body["detail"]["subject"].as_str().unwrap().to_owned(), message);
    }
    let failing = first["2"].message_id().unwrap().to_owned();
    let messages: Vec<_> = first.into_values().collect();
    let (asked, away) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(true)));
    let place = cloud.place();
    let worker = place.worker({
        let (asked, away) = (Arc::clone(&asked), Arc::clone(&away));
        move |event, _| {
            let order = event.aggregate_id.to_string();
            let is_away = order == "2" && *away.lock().unwrap();
            asked.lock().unwrap().push(order);
            let error = Error::new(ErrorKind::Unavailable, "charge").message("the bank is closed");
            std::future::ready(if is_away { Err(error) } else { Ok("receipt".to_owned()) })
        }
    });
    let worker = worker.await.unwrap();
    let batch = queued(&messages).to_string();
    let answer = worker.receive(batch.as_bytes(), LONG).await.unwrap();
    assert_eq!((answer.done, answer.dead), (2, 0), "{answer:?}");
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(failures(&json), [failing], "as the service reads it");
    *away.lock().unwrap() = false;
    let answer = worker.receive(batch.as_bytes(), LONG).await.unwrap();
    assert_eq!((answer.done, answer.duplicates), (1, 2), "{answer:?}");
    let mut asked = asked.lock().unwrap().clone();
    asked.sort();
    assert_eq!(asked, ["1", "2", "2", "3"], "one was tried twice");
    assert!(cloud.nothing_is_dead().await);
    cloud.remove().await;
}

/// R076, R082: an environment ends while it holds the claim of a message. Environments that come afterwards see the claim
/// for the first time, each of them: one that believes its clock, within a bound, takes it over once its lease is over.
/// The negative control is one that believes none, and leaves it where it is.
#[tokio::test]
async fn a_claim_of_an_environment_that_ended_is_taken_over() {
    let Some(cloud) = Cloud::make().await else { return };
    let records = [cloud.order("1").await];
    assert!(cloud.publish().await.invoke(stream(&records), LONG).await.is_ok());
    let batch = queued(&cloud.messages(2).await[..1]);
    let event = heard(&cloud, &batch).await;
    let claim = ClaimRequest::new(&event, &HandlerName::new("charging").unwrap(), LEASE).unwrap();
    let inbox = || {
        let connection = Connection::new(cloud.place().tables).unwrap();
        Inbox::new(connection, InboxOptions::default()).unwrap()
    };
    assert!(matches!(inbox().claim(&claim).await.unwrap(), Claim::Claimed(_)));
    // waits: until the lease is over by every clock, so that only what each believes decides
    tokio::time::sleep(LEASE).await;
    assert!(matches!(inbox().claim(&claim).await.unwrap(), Claim::Leased { .. }), "the control");
    let mut taken = None;
    for _ in 0..20 {
        let mut charge = cloud.charge().await;
        let answer = charge.invoke(batch.clone(), LONG).await.unwrap();
        if failures(&answer).is_empty() {
            taken = Some(charge.end());
            break;
        }
        // waits: for the lease and the skew; nobody tells of an end that did not happen
        tokio::time::sleep(LEASE / 4).await;
    }
    let log = taken.expect("the claim was never taken over");
    assert_eq!(charges(&log), BTreeMap::from([("1".to_owned(), 1)]), "{log}");
    assert!(cloud.nothing_is_dead().await);
    cloud.remove().await;
}

/// The event of a batch of one, from a worker that lets it go again.
async fn heard(cloud: &Cloud, batch: &Value) -> Arc<Event> {
    let heard = Arc::new(Mutex::new(None));
    let place = cloud.place();
    let worker = place.worker({
        let heard = Arc::clone(&heard);
        move |event, _| {
            *heard.lock().unwrap() = Some(event);
            let error = Error::new(ErrorKind::Unavailable, "charge").message("not yet");
            std::future::ready(Err(error))
        }
    });
    let worker = worker.await.unwrap();
    worker.receive(batch.to_string().as_bytes(), LONG).await.unwrap();
    let event = heard.lock().unwrap().take();
    event.expect("the event came")
}
