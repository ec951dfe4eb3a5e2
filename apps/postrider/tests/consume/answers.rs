//! What each answer means, from the broker to the dead letters.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::Signal;

use crate::endpoint::{Endpoint, Plan};
use crate::history::assert_one_effect_each;
use crate::stage::{GROUP, REST_MAX, Stage};

/// What is called again is called with the same key, and says which attempt it is.
fn assert_same_key(endpoint: &Endpoint) {
    let calls = endpoint.calls();
    for call in &calls {
        let key = call.header("idempotency-key");
        assert!(key.starts_with(&format!("{}:{GROUP}:call:", call.event.id)), "{key}");
        let first = calls.iter().find(|it| it.event.id == call.event.id).unwrap();
        assert_eq!(key, first.header("idempotency-key"));
    }
}

/// R006: a broker, an inbox, and an endpoint are all that is needed: no outbox, no relay.
#[tokio::test]
async fn a_willing_endpoint_gets_each_event_once_and_its_answer_is_kept() {
    let stage = Stage::new();
    for order in 0..20 {
        stage.place(&(order % 5).to_string()).await;
    }
    let endpoint = Endpoint::willing().await;
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    let ended = sidecar.stop().await;
    assert!(ended.text.contains("20 delivered in"), "{}", ended.text);
    assert_eq!(endpoint.calls().len(), 20);
    let first = &endpoint.calls()[0];
    for (name, value) in [
        ("content-type", "application/cloudevents+json"),
        ("postrider-attempt", "1"),
        ("postrider-handler", GROUP),
        ("traceparent", "00-0af7651916cd43dd-b7ad6b71-01"),
    ] {
        assert_eq!(first.header(name), value, "{name}");
    }
    assert_eq!(first.header("postrider-key"), first.event.key());
    assert_eq!(stage.number("select count(*) from inbox where result = cast('done' as blob)"), 20);
    assert_same_key(&endpoint);
    assert_one_effect_each(&stage, &endpoint).await;
}

/// R085: what the endpoint answered is kept as the result, up to its limit.
#[tokio::test]
async fn a_long_answer_is_cut_at_its_limit() {
    let stage = Stage::new();
    stage.place("1").await;
    let endpoint = Endpoint::start(|_, _| Plan::Act(Bytes::from(vec![b'x'; 1_000_000]))).await;
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    sidecar.stop().await;
    assert_eq!(stage.number("select length(result) from inbox"), 64 * 1024);
    assert_eq!(endpoint.calls().len(), 1);
}

/// What the endpoint refuses is a dead letter with its words, and its key goes on.
#[tokio::test]
async fn a_refusal_is_a_dead_letter_with_the_endpoints_words() {
    let stage = Stage::new();
    let refused = stage.place("1").await;
    let next = stage.place("1").await;
    let endpoint = Endpoint::start(move |call, _| match call.event.id == refused {
        true => Plan::Say(422, Vec::new(), "no such\norder".to_owned()),
        false => Plan::done(),
    })
    .await;
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    let ended = sidecar.stop().await;
    let dead = stage.dead().await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].event.as_ref().unwrap().id, refused);
    let words = "422 Unprocessable Entity: no such order";
    assert!(dead[0].reason.contains(words), "{}", dead[0].reason);
    let told = format!("event={refused} key=order/1 handler={GROUP} attempt=1");
    for told in [format!("not handled {told} status=422"), format!("dead letter {told}")] {
        assert!(ended.text.contains(&told), "{}", ended.text);
    }
    assert_eq!(endpoint.calls_of(refused).len(), 1, "asked once");
    assert_eq!(endpoint.effects(), [next]);
    assert_one_effect_each(&stage, &endpoint).await;
}

/// INV-5: an event that fails again and again while others are taken counts, blocks its own key
/// alone, becomes a dead letter after --attempts, and then its key goes on.
#[tokio::test]
async fn a_poison_event_counts_and_dies_and_its_key_goes_on() {
    let statuses = [500, 409, 404].map(Plan::status);
    let plans = statuses.into_iter().chain([Plan::Cut, Plan::Hang]);
    futures_util::future::join_all(plans.map(poisoned_by)).await;
}

/// One event is answered so, always; all others are taken.
async fn poisoned_by(plan: Plan) {
    let stage = Stage::new();
    let poison = stage.place("poison").await;
    let behind = stage.place("poison").await;
    let shown = format!("{plan:?}");
    // No call of another event is to take so long, on whatever machine.
    let timeout = if matches!(plan, Plan::Hang) { "8s" } else { "60s" };
    let endpoint = Endpoint::start(move |call, _| match call.event.id == poison {
        true => plan.clone(),
        false => Plan::done(),
    })
    .await;
    let sidecar = stage.sidecar(&endpoint, &["--attempts", "2", "--timeout", timeout]).await;
    // Others come all the while, and are taken: the endpoint is well.
    let begun = Instant::now();
    for other in 0.. {
        if begun.elapsed() > REST_MAX || !stage.dead().await.is_empty() {
            break;
        }
        stage.place(&format!("other/{other}")).await;
        // waits: orders come in one by one
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stage.settled().await;
    sidecar.stop().await;
    let dead = stage.dead().await;
    assert_eq!(dead.len(), 1, "{shown}");
    assert!(dead[0].reason.contains("gave up after 2 attempts"), "{}", dead[0].reason);
    let calls = endpoint.calls_of(poison);
    assert_eq!(calls.last().unwrap().attempt(), 2, "{shown}");
    assert_eq!(endpoint.calls_of(behind).len(), 1, "{shown}");
    assert_same_key(&endpoint);
    assert_one_effect_each(&stage, &endpoint).await;
}

/// INV-1: an endpoint that is being deployed, whatever it says meanwhile, costs no event an attempt.
#[tokio::test]
async fn an_endpoint_in_trouble_counts_against_no_event() {
    let statuses = [500, 503, 429, 401, 403, 404, 405, 410];
    futures_util::future::join_all(statuses.map(in_trouble_with)).await;
}

/// Six events; the first seven calls are answered with the status.
async fn in_trouble_with(status: u16) {
    let stage = Stage::new();
    for order in 0..6 {
        stage.place(&order.to_string()).await;
    }
    let left = AtomicU32::new(7);
    let take = |left: u32| left.checked_sub(1);
    let endpoint = Endpoint::start(move |_, _| match left.fetch_update(SeqCst, SeqCst, take) {
        Ok(_) => Plan::status(status),
        Err(_) => Plan::done(),
    })
    .await;
    let sidecar = stage.sidecar(&endpoint, &["--attempts", "1"]).await;
    stage.settled().await;
    let ended = sidecar.stop().await;
    assert!(stage.dead().await.is_empty(), "{status}");
    assert!(endpoint.calls().iter().all(|call| call.attempt() == 1), "{status}");
    assert!(ended.text.contains(" 7 failed attempts, 0 dead letters"), "{}", ended.text);
    assert_one_effect_each(&stage, &endpoint).await;
}

/// A redirect is never followed: the event goes nowhere that nobody configured.
#[tokio::test]
async fn a_redirect_is_never_followed() {
    let stage = Stage::new();
    let event = stage.place("1").await;
    let elsewhere = Endpoint::willing().await;
    let location = elsewhere.url();
    let endpoint = Endpoint::start(move |_, before| match before {
        0 => Plan::Say(307, vec![("location", location.clone())], String::new()),
        1 => Plan::Say(302, vec![("location", location.clone())], String::new()),
        _ => Plan::done(),
    })
    .await;
    let sidecar = stage.sidecar(&endpoint, &["--attempts", "1"]).await;
    stage.settled().await;
    sidecar.stop().await;
    assert!(elsewhere.calls().is_empty());
    assert_eq!(endpoint.effects(), [event]);
    assert!(stage.dead().await.is_empty());
}

/// An endpoint that is not there at all makes events wait, says so, and is found when it comes.
#[tokio::test]
async fn an_endpoint_that_is_away_is_waited_for() {
    let stage = Stage::new();
    for order in 0..30 {
        stage.place(&order.to_string()).await;
    }
    let away = Endpoint::willing().await;
    let url = away.url();
    let address = url.trim_start_matches("http://").trim_end_matches("/events").to_owned();
    drop(away);
    let mut sidecar = stage.sidecar_to(&url, &["--attempts", "1"]).await;
    let told = sidecar.hear("in a row; events wait, none counted").await;
    assert!(told.contains("connection refused"), "{told}");
    let endpoint = Endpoint::start_at(&address, false, Box::new(|_, _| Plan::done())).await;
    sidecar.hear("going on").await;
    stage.settled().await;
    sidecar.stop().await;
    assert!(endpoint.calls().iter().all(|call| call.attempt() == 1));
    assert!(stage.dead().await.is_empty());
    assert_one_effect_each(&stage, &endpoint).await;
}

/// A lone event whose calls time out is tried for ever: nobody knows whose fault it is.
#[tokio::test]
async fn a_lone_timeout_is_nobodys_fault() {
    let stage = Stage::new();
    let event = stage.place("1").await;
    let endpoint = Endpoint::start(|_, before| match before {
        0..3 => Plan::Hang,
        _ => Plan::done(),
    })
    .await;
    let sidecar = stage.sidecar(&endpoint, &["--attempts", "1", "--timeout", "200ms"]).await;
    stage.settled().await;
    sidecar.stop().await;
    assert_eq!(endpoint.effects(), [event]);
    assert!(endpoint.calls().iter().all(|call| call.attempt() == 1));
}

/// The server's wish is obeyed, whether the failure counts or not.
#[tokio::test]
async fn the_wish_of_the_endpoint_is_obeyed() {
    let stage = Stage::new();
    let event = stage.place("1").await;
    let endpoint = Endpoint::start(|_, before| match before {
        0 => Plan::Say(429, vec![("retry-after", "2".to_owned())], String::new()),
        _ => Plan::done(),
    })
    .await;
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    sidecar.stop().await;
    let calls = endpoint.calls_of(event);
    assert!(calls[1].at - calls[0].at >= Duration::from_secs(2));
}

/// R080, R085, F10: whatever the broker brings again is acknowledged and not called for.
#[tokio::test]
async fn what_the_broker_brings_again_is_not_called_for_again() {
    let stage = Stage::new();
    for number in 0..20 {
        let event = crate::stage::order(&(number % 7).to_string());
        stage.publish(&event, 1 + number % 5).await;
    }
    let endpoint = Endpoint::willing().await;
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    stage.settled().await;
    let ended = sidecar.stop().await;
    assert!(ended.text.contains("20 delivered in") && ended.text.contains(" 40 duplicates"));
    assert_eq!(endpoint.calls().len(), 20);
    assert_one_effect_each(&stage, &endpoint).await;
}

/// The same id with another payload is no duplicate: it is a dead letter with its code.
#[tokio::test]
async fn the_same_id_with_another_payload_is_a_dead_letter() {
    let stage = Stage::new();
    let event = crate::stage::order("1");
    stage.publish(&event, 1).await;
    let mut other = event.clone();
    other.payload = postrider_core::Payload::Json(Bytes::from_static(b"{\"cents\":9}"));
    let endpoint = Endpoint::willing().await;
    let sidecar = stage.sidecar(&endpoint, &[]).await;
    endpoint.called(1).await;
    stage.publish(&other, 1).await;
    stage.settled().await;
    sidecar.signal(Signal::INT);
    assert_eq!(sidecar.ended().await.code, Some(0));
    let dead = stage.dead().await;
    assert!(dead.len() == 1 && dead[0].reason.contains("PR-1101"), "{dead:?}");
    assert_eq!(endpoint.calls().len(), 1);
}
