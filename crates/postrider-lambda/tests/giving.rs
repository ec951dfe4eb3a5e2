//! What comes again, and when it is given up.

use std::panic::panic_any;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{BoxFuture, Delivery, Error, ErrorKind, Event, Fault, HandlerName, Result};
use postrider_lambda::Worker;
use postrider_testkit::proxy::{Proxy, Traffic};
use serde_json::{Value, json};

use crate::line::{Fresh, LONG, VISIBILITY, handler, take};

/// What a handler behind an inbox does, one after the other; then it is done.
enum Does {
    /// The inbox does not answer.
    Away,
    Fails,
    Panics,
}

/// A handler that does as it is told, and notes which deliveries it saw.
struct Told {
    name: HandlerName,
    script: Mutex<Vec<Does>>,
    saw: Mutex<Vec<(String, u32)>>,
}

impl Told {
    fn to(script: impl IntoIterator<Item = Does>) -> Arc<Told> {
        let mut script: Vec<_> = script.into_iter().collect();
        script.reverse();
        Arc::new(Told { name: handler(), script: Mutex::new(script), saw: Mutex::default() })
    }

    fn saw(&self) -> Vec<(String, u32)> {
        self.saw.lock().unwrap().clone()
    }
}

impl Receiver for Told {
    fn handler(&self) -> &HandlerName {
        &self.name
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        Box::pin(async {
            self.saw.lock().unwrap().push((event.event_type.to_string(), delivery.count));
            let next = self.script.lock().unwrap().pop();
            match next {
                None => Ok(Verdict::Done),
                Some(Does::Away) => Err(Error::new(ErrorKind::Unavailable, "claim")),
                Some(Does::Fails) => {
                    let fault = Fault::new(ErrorKind::Unavailable, "not yet");
                    Ok(Verdict::Retry { after: None, fault, tries: None })
                }
                Some(Does::Panics) => panic_any("index out of bounds"),
            }
        })
    }
}

/// An inbox that was away for more receives than there are tries has used up none of them.
#[tokio::test]
async fn receives_that_were_no_tries_make_nothing_dead() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    fresh.send("1", "placed").await;
    let told = Told::to([Does::Away, Does::Away, Does::Away, Does::Away, Does::Fails]);
    let worker = fresh.other(Arc::clone(&told) as Arc<dyn Receiver>, None).await;
    let mut ended = (0, 0);
    while ended == (0, 0) {
        let one = fresh.invoke_on(&worker, LONG).await;
        ended = (one.done, one.dead);
    }
    assert_eq!(ended, (1, 0), "{:?}", told.saw());
    assert_eq!(told.saw().len(), 6);
    fresh.remove().await;
}

/// F19: a handler that panics takes nothing along, and is a try like one that fails; in the end a dead letter says what
/// it said.
#[tokio::test]
async fn a_handler_that_panics_takes_nothing_along() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    fresh.send("1", "placed").await;
    let told = Told::to([Does::Panics, Does::Panics, Does::Panics, Does::Panics]);
    let worker = fresh.other(Arc::clone(&told) as Arc<dyn Receiver>, None).await;
    let mut again = 0;
    while fresh.invoke_on(&worker, LONG).await.dead == 0 {
        again += 1;
        assert!(again < 12, "it is given up in the end");
    }
    let dead = take(&fresh.client, &fresh.dead).await;
    let reason = &dead[0].message_attributes().unwrap()["postrider-dead-reason"];
    assert!(reason.string_value().unwrap().contains("index out of bounds"), "{reason:?}");
    fresh.remove().await;
}

/// What ends its process never gets a verdict, and only the queue's count knows of it: past the most it is not begun.
#[tokio::test]
async fn what_came_too_often_is_not_begun() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    fresh.send("1", "placed").await;
    let told = Told::to([]);
    let worker = fresh.other(Arc::clone(&told) as Arc<dyn Receiver>, None).await;
    let messages = take(&fresh.client, &fresh.queue).await;
    let mut json: Value = serde_json::from_slice(&fresh.batch(&messages)).unwrap();
    json["Records"][0]["attributes"]["ApproximateReceiveCount"] = json!("99");
    let received = worker.receive(json.to_string().as_bytes(), LONG).await.unwrap();
    assert_eq!((received.dead, told.saw().len()), (1, 0), "{received:?}");
    let dead = take(&fresh.client, &fresh.dead).await;
    let reason = &dead[0].message_attributes().unwrap()["postrider-dead-reason"];
    assert!(reason.string_value().unwrap().contains("98 times"), "{reason:?}");
    fresh.remove().await;
}

/// What was done is forgotten: a copy of it is counted anew, and nothing of it stays in memory.
#[tokio::test]
async fn what_was_done_is_forgotten() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    fresh.send("1", "placed").await;
    let told = Told::to([Does::Fails]);
    let worker = fresh.other(Arc::clone(&told) as Arc<dyn Receiver>, None).await;
    let batch = fresh.batch(&take(&fresh.client, &fresh.queue).await);
    for _ in 0..4 {
        worker.receive(&batch, LONG).await.unwrap();
    }
    let counts: Vec<_> = told.saw().into_iter().map(|(_, count)| count).collect();
    assert_eq!(counts, [1, 2, 1, 1], "a failure is remembered, and what was done is not");
    fresh.remove().await;
}

/// A receipt ends with the subscription's visibility, so another one than the options' is refused, with both.
#[tokio::test]
async fn a_visibility_that_is_not_the_subscriptions_is_refused() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    let mut longer = fresh.options;
    longer.visibility = VISIBILITY * 2;
    let error = Worker::new(fresh.subscribe().await, Told::to([]), longer).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("2s") && error.to_string().contains("4s"), "{error}");
    fresh.remove().await;
}

/// Where the queue does not hear it, the answer is there in time all the same, and names everything.
#[tokio::test]
async fn giving_back_ends_with_the_functions_time() {
    const HIDDEN: Duration = Duration::from_secs(30);
    let Some(fresh) = Fresh::hiding(true, HIDDEN, HIDDEN).await else { return };
    let network = Proxy::to(fresh.port()).await;
    let told = Told::to([Does::Fails]);
    let worker = fresh.other(told, Some(network.port)).await;
    for event_type in ["a", "b", "c"] {
        fresh.send("1", event_type).await;
    }
    let batch = fresh.batch(&take(&fresh.client, &fresh.queue).await);
    network.set(Traffic::Cut);
    let since = Instant::now();
    // Less than the bound below, which a call that nobody hears reaches: a machine may be busy.
    let late = worker.receive(&batch, Duration::from_secs(5)).await.unwrap();
    assert!(since.elapsed() < HIDDEN, "{:?}", since.elapsed());
    assert_eq!((late.done, late.failures.0.len()), (0, 3), "{late:?}");
    fresh.remove().await;
}

/// What waits behind a failure is given back side by side: each call takes as long as all of them.
#[tokio::test]
async fn what_waits_is_given_back_side_by_side() {
    const HIDDEN: Duration = Duration::from_secs(60);
    let Some(fresh) = Fresh::hiding(true, HIDDEN, HIDDEN).await else { return };
    let network = Proxy::to(fresh.port()).await;
    let worker = fresh.other(Told::to([Does::Fails]), Some(network.port)).await;
    for event_type in ["a", "b", "c", "d", "e", "f"] {
        fresh.send("1", event_type).await;
    }
    let batch = fresh.batch(&take(&fresh.client, &fresh.queue).await);
    network.set(Traffic::AnswersLate(Duration::from_secs(3)));
    let since = Instant::now();
    let received = worker.receive(&batch, LONG).await.unwrap();
    assert_eq!(received.failures.0.len(), 6, "{received:?}");
    // One after the other they take 18 s.
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    fresh.remove().await;
}
